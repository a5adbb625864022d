// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_POSTED_H_
#define FAIRWAY_WORKER_EXECUTOR_POSTED_H_

#include <memory>
#include <string_view>
#include <utility>

#include "async/event_loop.h"

namespace fairway {

// Wraps a handler of a session. It may be called on any thread; it posts the handler to the loop,
// and drops it if the session is destroyed before it runs.
template <typename F>
class Posted {
 public:
  Posted(EventLoop* loop, std::string_view name, std::weak_ptr<bool> alive, F f)
      : loop_(loop), name_(name), alive_(std::move(alive)), f_(std::move(f)) {}
  template <typename... Args>
  void operator()(Args... args) {
    loop_->Post(name_, [alive = std::move(alive_), f = std::move(f_),
                        ... args = std::move(args)]() mutable {
      if (alive.lock() != nullptr) f(std::move(args)...);
    });
  }

 private:
  EventLoop* loop_;
  std::string_view name_;
  std::weak_ptr<bool> alive_;
  F f_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_POSTED_H_
