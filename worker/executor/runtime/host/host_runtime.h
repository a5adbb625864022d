// SPDX-License-Identifier: Apache-2.0
// A runtime that needs no plugin: devices are the memory of this host, programs are made of native
// kernels (proto/fairway/v1/native.proto).
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_HOST_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_HOST_RUNTIME_H_

#include <memory>
#include <string_view>
#include <vector>

#include "worker/executor/runtime/runtime.h"

namespace fairway {

// Runs v1::NativeCode. A launch whose inputs are there runs inside the call; one whose inputs come
// later runs on a thread of the runtime. A gang is run by one thread, kernel by kernel over all its
// devices, so its devices never wait for each other. Poison passes from inputs to outputs.
// Thread-safe.
class HostRuntime final : public Runtime {
 public:
  explicit HostRuntime(int num_devices);
  // Runs what is about to run; what still waits for an input then runs where that comes.
  ~HostRuntime() override;

  const RuntimeInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<LoadedExecutable>> Load(std::string_view code,
                                                         const std::vector<int>& devices) override;
  absl::StatusOr<std::shared_ptr<LoadedExecutable>> LoadShare(
      std::string_view code, const std::vector<int>& devices,
      std::shared_ptr<Exchange> exchange) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> FromHost(std::shared_ptr<Blob> bytes, DType dtype,
                                                         const Shape& shape, int device,
                                                         std::string_view memory_kind) override;
  void Read(DeviceBuffer& buffer, absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> CopyToDevice(DeviceBuffer& buffer, int device,
                                                             std::string_view memory_kind) override;
  absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                      absl::AnyInvocable<void(absl::Status)> done) override;

  // A buffer whose bytes come later; as PjrtRuntime::Expect.
  struct Incoming {
    std::unique_ptr<DeviceBuffer> buffer;
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Blob>>)> fulfil;
  };
  absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device);

  class Threads;  // shared with launches that wait

 private:
  RuntimeInfo info_;
  const std::shared_ptr<Threads> threads_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_HOST_RUNTIME_H_
