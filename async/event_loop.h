// SPDX-License-Identifier: Apache-2.0
// The one event loop of a process. It owns all control state of the process (docs/architecture.md,
// "Threads and processes").
#ifndef FAIRWAY_ASYNC_EVENT_LOOP_H_
#define FAIRWAY_ASYNC_EVENT_LOOP_H_

#include <cassert>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "async/loop.h"

namespace boost::asio {
class io_context;
}

namespace fairway {

// Owned by main. Runs handlers one at a time on the thread that calls Run. Logs the name of a
// handler that takes over 20 ms.
class EventLoop final : public Loop {
 public:
  EventLoop();
  ~EventLoop() override;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Thread-safe. Runs `handler` in the loop, after all handlers that were posted before. `name`
  // must outlive the loop (a literal); it appears in the log if the handler is slow.
  void Post(std::string_view name, Handler handler) override;
  // Thread-safe. The same, but not before `delay` has passed. It cannot be cancelled: check your
  // state in the handler.
  void PostAfter(std::chrono::milliseconds delay, std::string_view name, Handler handler);

  // Runs handlers until Stop; call it from one thread.
  void Run();
  // Thread-safe. Run returns after the current handler. Queued handlers are destroyed with the
  // loop.
  void Stop();
  bool InLoop() const;

  // For transports that live in the loop.
  boost::asio::io_context& io_context();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fairway

#define FAIRWAY_ASSERT_IN_LOOP(loop) assert((loop).InLoop())

#endif  // FAIRWAY_ASYNC_EVENT_LOOP_H_
