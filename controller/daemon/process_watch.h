// SPDX-License-Identifier: Apache-2.0
// The events that tell a daemon to end or to read its settings again: signals, and the death of the
// process that started it.
#ifndef FAIRWAY_CONTROLLER_DAEMON_PROCESS_WATCH_H_
#define FAIRWAY_CONTROLLER_DAEMON_PROCESS_WATCH_H_

#include <functional>
#include <memory>
#include <vector>

#include "async/event_loop.h"

namespace fairway {

// Loop-confined.
class ProcessWatch {
 public:
  struct Events {
    // One of `signals` came (each time).
    std::function<void(int)> on_signal;
    // `life_fd`, the read end of a pipe whose write end the parent has, is at its end.
    std::function<void()> on_orphaned;
  };
  // Both events run in the loop. `life_fd` is -1 if there is no such pipe.
  static std::unique_ptr<ProcessWatch> Start(EventLoop& loop, const std::vector<int>& signals,
                                             int life_fd, Events events);
  virtual ~ProcessWatch() = default;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_PROCESS_WATCH_H_
