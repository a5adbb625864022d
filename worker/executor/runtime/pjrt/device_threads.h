// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_DEVICE_THREADS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_DEVICE_THREADS_H_

#include <memory>
#include <mutex>
#include <vector>

#include <absl/functional/function_ref.h>

#include "async/blocking_pool.h"

namespace fairway::pjrt {

// Threads for gangs whose devices wait for each other: one for each device, made when it is needed.
// Thread-safe.
class DeviceThreads {
 public:
  explicit DeviceThreads(int num_devices) : threads_(static_cast<size_t>(num_devices)) {}

  // Calls part(i) for each of `devices`, all at once: the first on this thread, the others on those
  // of their devices. Returns when all have returned. Concurrent calls have no device in common.
  void Run(const std::vector<int>& devices, absl::FunctionRef<void(size_t)> part);

 private:
  BlockingPool& ThreadOf(int device);

  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockingPool>> threads_;  // by device. Guarded by mutex_
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_DEVICE_THREADS_H_
