// SPDX-License-Identifier: Apache-2.0
// A runtime that simulates devices: programs take the time that they declare and compute nothing
// (docs/design/0044-sim-runtime.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_SIM_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_SIM_RUNTIME_H_

#include <memory>

#include "worker/executor/runtime/native/native_runtime.h"

namespace fairway {

// A launch begins when the executor had been told of it, its inputs are there, and all its devices
// are free; it ends after the time of its `sleep` and `busy_wait` steps, all other steps take none.
// These times are computed, each from those before it, so that late timers do not add up. The
// devices of a gang begin and end together, over all executors if it has an all_reduce.
//
// Results have the right types and are zeros. Buffers of up to kKeptBytes keep the bytes that were
// put or received, larger ones read as zeros and take no memory. Thread-safe.
class SimRuntime final : public NativeRuntime {
 public:
  static constexpr size_t kKeptBytes = 64 << 10;

  explicit SimRuntime(int num_devices);
  // What is under way ends without waiting for its time.
  ~SimRuntime() override;

  void NoteLaunch(uint64_t launch_id) override;
  absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                      absl::AnyInvocable<void(absl::Status)> done) override;

  struct Devices;  // shared with launches that wait

 private:
  const std::shared_ptr<Devices> devices_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_SIM_RUNTIME_H_
