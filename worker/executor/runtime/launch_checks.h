// SPDX-License-Identifier: Apache-2.0
// The checks that every runtime makes before it touches a device.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_LAUNCH_CHECKS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_LAUNCH_CHECKS_H_

#include <memory>
#include <string_view>
#include <vector>

#include <absl/functional/function_ref.h>

#include "base/blob.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// The type of a buffer and its device.
struct BufferSpec {
  DType dtype = DType::kInvalid;
  Shape shape;
  int device = 0;  // local ordinal
};

// INVALID_ARGUMENT: no such device, or it has no memory of that kind (empty: the default kind).
absl::Status CheckPlace(const RuntimeInfo& info, int device, std::string_view memory_kind);

// INVALID_ARGUMENT: `bytes` is not dtype[shape], or the type has no bytes.
absl::Status CheckBytes(const Blob* bytes, DType dtype, const Shape& shape);

// Returns the devices to load code for, given `compiled`, the devices it was compiled for (empty:
// any one), and `wanted`, those that the caller of Runtime::Load wants. INVALID_ARGUMENT: another
// number of devices, a device that does not exist, or one listed twice.
absl::StatusOr<std::vector<int>> DevicesToLoad(const RuntimeInfo& info,
                                               const std::vector<int>& compiled,
                                               const std::vector<int>& wanted);

// INVALID_ARGUMENT: the request's devices are not `loaded` (empty: any one), a device has no
// inputs, an argument is missing or is not parameters[a] on its device, a non-donatable index is
// out of range, or a gang has no launch id. Ignores `parameters[a].device`.
absl::Status CheckLaunch(const LaunchRequest& request, const RuntimeInfo& info,
                         const std::vector<int>& loaded, const std::vector<BufferSpec>& parameters,
                         absl::FunctionRef<const BufferSpec&(DeviceBuffer&)> spec_of);

// Returns the error of reading a donated buffer: FAILED_PRECONDITION.
absl::Status DonatedError(const BufferSpec& spec);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_LAUNCH_CHECKS_H_
