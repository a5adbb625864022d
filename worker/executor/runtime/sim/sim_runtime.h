// SPDX-License-Identifier: Apache-2.0
// A runtime that simulates devices: programs take the time that they declare and compute nothing
// (docs/design/0044-sim-runtime.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_SIM_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_SIM_RUNTIME_H_

#include <memory>

#include "worker/executor/runtime/native/native_runtime.h"

namespace fairway {

// A launch begins when the executor has got it, its inputs are there, and all its devices are free.
// It ends after the time of its `sleep` and `busy_wait` steps; all other steps take no time. These
// times are computed, each from earlier ones, so that late timers do not add up. The devices of a
// gang begin and end together; over all executors if the gang has an all_reduce.
//
// Results have the right types and are zeros. Buffers of up to kKeptBytes keep the bytes that were
// put or received. Larger ones read as zeros and take no memory. Thread-safe.
class SimRuntime final : public NativeRuntime {
 public:
  static constexpr size_t kKeptBytes = 64 << 10;

  explicit SimRuntime(int num_devices);
  // Ends launches that are under way without waiting for their time.
  ~SimRuntime() override;

  void NoteLaunch(uint64_t launch_id) override;
  absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                      absl::AnyInvocable<void(absl::Status)> done) override;

  struct Devices;  // shared with the launches that wait

 private:
  const std::shared_ptr<Devices> devices_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_SIM_RUNTIME_H_
