// SPDX-License-Identifier: Apache-2.0
// The common part of the runtimes of native programs (host, sim): code, buffers, the checks of a
// launch, its inputs and outputs. The subclass carries the launch out.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_RUNTIME_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_RUNTIME_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/executor/runtime/native/native_launch.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// Loads v1::NativeCode (proto/fairway/v1/native.proto). Poison passes from inputs to outputs.
// Thread-safe.
class NativeRuntime : public Runtime {
 public:
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

  // A buffer whose bytes come later, like PjrtRuntime::Expect.
  struct Incoming {
    std::unique_ptr<DeviceBuffer> buffer;
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Blob>>)> fulfil;
  };
  absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device);

 protected:
  // What Runtime::Link says, for a subclass that can run blocks.
  absl::StatusOr<std::shared_ptr<LoadedExecutable>> LinkNative(const LinkRequest& request) const;

  // `device_memory`: as RuntimeInfo's. `kept`: as for NativeCell.
  NativeRuntime(std::string name, std::string version, int num_devices, int64_t device_memory,
                size_t kept);

  // Checks the request, takes its inputs and makes its outputs. After that the caller must carry
  // `launch` out and end it. The caller sets `launch.due`, or leaves it nullptr. Errors: those of
  // Runtime::Launch.
  absl::StatusOr<LaunchResult> Begin(const LaunchRequest& request,
                                     absl::AnyInvocable<void(absl::Status)> done,
                                     NativeLaunch& launch) const;

 private:
  RuntimeInfo info_;
  const size_t kept_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_RUNTIME_H_
