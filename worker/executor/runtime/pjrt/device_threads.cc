// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/device_threads.h"

#include <string>

#include <absl/synchronization/blocking_counter.h>

namespace fairway::pjrt {

void DeviceThreads::Run(const std::vector<int>& devices, absl::FunctionRef<void(size_t)> part) {
  absl::BlockingCounter others(static_cast<int>(devices.size()) - 1);
  for (size_t i = 1; i < devices.size(); ++i) {
    ThreadOf(devices[i]).Run([&others, part, i] {
      part(i);
      others.DecrementCount();
    });
  }
  part(0);
  others.Wait();
}

BlockingPool& DeviceThreads::ThreadOf(int device) {
  const std::lock_guard lock(mutex_);
  auto& thread = threads_.at(static_cast<size_t>(device));
  if (thread == nullptr)
    thread = std::make_unique<BlockingPool>("fairway-m" + std::to_string(device), 1);
  return *thread;
}

}  // namespace fairway::pjrt
