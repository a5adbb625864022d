// SPDX-License-Identifier: Apache-2.0
// A runtime without a plugin: devices are the memory of this host, and programs are made of native
// kernels (proto/fairway/v1/native.proto).
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_HOST_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_HOST_RUNTIME_H_

#include <memory>

#include "worker/executor/runtime/native/native_runtime.h"

namespace fairway {

// A launch whose inputs are there runs inside the call; a launch whose inputs come later runs on a
// thread of the runtime. One thread runs a gang, kernel by kernel over all its devices, so its
// devices never wait for each other. Thread-safe.
class HostRuntime final : public NativeRuntime {
 public:
  explicit HostRuntime(int num_devices);
  // Runs the launches that are queued. A launch that still waits for an input then runs on the
  // thread that brings the input.
  ~HostRuntime() override;

  absl::StatusOr<std::shared_ptr<LoadedExecutable>> Link(const LinkRequest& request) override {
    return LinkNative(request);
  }
  absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                      absl::AnyInvocable<void(absl::Status)> done) override;

  class Threads;  // shared with the launches that wait

 private:
  const std::shared_ptr<Threads> threads_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_HOST_RUNTIME_H_
