// SPDX-License-Identifier: Apache-2.0
// The events that tell a daemon to end: signals, and the death of the process that started it.
#ifndef FAIRWAY_CONTROLLER_DAEMON_PROCESS_WATCH_H_
#define FAIRWAY_CONTROLLER_DAEMON_PROCESS_WATCH_H_

#include <functional>
#include <memory>

#include "async/event_loop.h"

namespace fairway {

// Loop-confined.
class ProcessWatch {
 public:
  // `on_signal`: SIGTERM or SIGINT came (each time). `on_orphaned`: `life_fd`, the read end of a
  // pipe whose write end the parent has, is at its end; -1: no such pipe. Both run in the loop.
  static std::unique_ptr<ProcessWatch> Start(EventLoop& loop, int life_fd,
                                             std::function<void(int)> on_signal,
                                             std::function<void()> on_orphaned);
  virtual ~ProcessWatch() = default;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_PROCESS_WATCH_H_
