// SPDX-License-Identifier: Apache-2.0
// For tests: runs an event loop on the calling thread until a condition holds.
#ifndef FAIRWAY_ASYNC_RUN_UNTIL_H_
#define FAIRWAY_ASYNC_RUN_UNTIL_H_

#include <chrono>
#include <functional>
#include <memory>

#include "async/event_loop.h"

namespace fairway {

// Runs `loop` until `holds` returns true; it is called every millisecond, in the loop. False: `cap`
// passed first.
inline bool RunUntil(EventLoop& loop, std::function<bool()> holds,
                     std::chrono::milliseconds cap = std::chrono::seconds(120)) {
  struct Watch : std::enable_shared_from_this<Watch> {
    EventLoop* loop;
    std::function<bool()> holds;
    std::chrono::steady_clock::time_point until;
    bool held = false;
    void Look() {
      if (holds == nullptr) return;
      held = holds();
      if (held || std::chrono::steady_clock::now() > until) return loop->Stop();
      loop->PostAfter(std::chrono::milliseconds(1), "run until",
                      [self = shared_from_this()] { self->Look(); });
    }
  };
  auto watch = std::make_shared<Watch>();
  watch->loop = &loop;
  watch->holds = std::move(holds);
  watch->until = std::chrono::steady_clock::now() + cap;
  loop.Post("run until", [watch] { watch->Look(); });
  loop.Run();
  watch->holds = nullptr;
  return watch->held;
}

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_RUN_UNTIL_H_
