// SPDX-License-Identifier: Apache-2.0
// What a daemon tells the service manager that started it: systemd's protocol, sd_notify(3), one
// datagram for each message.
#ifndef FAIRWAY_ASYNC_SERVICE_MANAGER_H_
#define FAIRWAY_ASYNC_SERVICE_MANAGER_H_

#include <chrono>
#include <string>
#include <string_view>

#include "async/event_loop.h"

namespace fairway {

// Owned by main, and lives as long as its loop. Without $NOTIFY_SOCKET nothing here does anything.
// Loop-confined, but for the constructor.
class ServiceManager {
 public:
  // Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: children must not
  // speak for this process. So it is made before any thread starts.
  explicit ServiceManager(EventLoop& loop);
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  // This process serves. From now on the loop says, three times within the time of the watchdog,
  // that it runs; the service manager ends a process whose loop hangs. Calls after the first do
  // nothing.
  void Ready();
  // This process ends, within `limit`; systemd waits so long, if its own limit is shorter.
  void Stopping(std::chrono::milliseconds limit);

 private:
  void KeepAlive();
  void Tell(const std::string& message);

  EventLoop& loop_;
  std::string socket_;  // a path, or "@" and an abstract name; empty: nobody asks
  std::chrono::milliseconds watchdog_{0};  // 0: nobody waits for signs of life
  bool ready_ = false;
};

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_SERVICE_MANAGER_H_
