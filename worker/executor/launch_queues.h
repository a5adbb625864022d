// SPDX-License-Identifier: Apache-2.0
// The threads that call Runtime::Launch: one for gangs, in the order given, and one per device for
// single-device programs, because a cheap program runs inside the call (docs/architecture.md,
// "Threads and processes").
#ifndef FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_
#define FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "async/blocking_pool.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

struct LaunchJob {
  std::shared_ptr<LoadedExecutable> executable;
  std::vector<int> devices;
  std::vector<std::vector<std::shared_ptr<DeviceBuffer>>> inputs;  // [device][argument]
  std::vector<int> non_donatable;
  uint64_t launch_id = 0;
  // Called once, on any thread, when the execution has ended: its outputs, computed, or the error.
  absl::AnyInvocable<void(absl::StatusOr<LaunchResult>)> done;
};

// Owns threads and nothing else. Thread-safe.
class LaunchQueues {
 public:
  LaunchQueues(Runtime* runtime, int num_devices);
  // Launches what is queued first.
  ~LaunchQueues();

  // Gangs are launched one after another in the order of these calls.
  void LaunchGang(LaunchJob job);
  void LaunchSingle(LaunchJob job);

 private:
  Runtime* const runtime_;
  BlockingPool gangs_;
  std::vector<std::unique_ptr<BlockingPool>> singles_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_LAUNCH_QUEUES_H_
