// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/launch_checks.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace fairway {
namespace {

absl::Status CheckDevices(const LaunchRequest& request, const RuntimeInfo& info,
                          const std::vector<int>& loaded) {
  for (int device : request.devices) FAIRWAY_RETURN_IF_ERROR(CheckPlace(info, device, ""));
  const bool fits = loaded.empty() ? request.devices.size() == 1 : request.devices == loaded;
  if (!fits) {
    return InvalidArgument("launched on devices [{}], loaded for [{}]",
                           fmt::join(request.devices, ","),
                           loaded.empty() ? "any one" : fmt::format("{}", fmt::join(loaded, ",")));
  }
  if (request.inputs.size() != request.devices.size()) {
    return InvalidArgument("inputs for {} devices, launched on {}", request.inputs.size(),
                           request.devices.size());
  }
  if (request.devices.size() > 1 && request.launch_id == 0) {
    return InvalidArgument("a gang without a launch id: its sums would mix with another's");
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const BufferSpec& got, const BufferSpec& want, size_t argument,
                        int device) {
  if (got.dtype != want.dtype || got.shape != want.shape) {
    return InvalidArgument("argument {} on device {} is {}, the program takes {}", argument, device,
                           ToString(got.dtype, got.shape), ToString(want.dtype, want.shape));
  }
  if (got.device != device) {
    return InvalidArgument("argument {} lies on device {}, the program runs on device {}", argument,
                           got.device, device);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlace(const RuntimeInfo& info, int device, std::string_view memory_kind) {
  if (device < 0 || device >= info.num_devices) {
    return InvalidArgument("no device {} (there are {})", device, info.num_devices);
  }
  const auto& kinds = info.memory_kinds;
  if (!memory_kind.empty() && std::find(kinds.begin(), kinds.end(), memory_kind) == kinds.end()) {
    return InvalidArgument("device {} has no memory of kind \"{}\" (it has {})", device,
                           memory_kind, fmt::join(kinds, ", "));
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(const Blob* bytes, DType dtype, const Shape& shape) {
  FAIRWAY_ASSIGN_OR_RETURN(int64_t size, ByteSize(dtype, shape));
  if (BitsInMemory(dtype) == 0) return InvalidArgument("{} has no bytes on a device", Name(dtype));
  if (bytes == nullptr || bytes->size() != static_cast<size_t>(size)) {
    return InvalidArgument("{} takes {} bytes, got {}", ToString(dtype, shape), size,
                           bytes == nullptr ? 0 : bytes->size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> DevicesToLoad(const RuntimeInfo& info,
                                               const std::vector<int>& compiled,
                                               const std::vector<int>& wanted) {
  if (!wanted.empty() && !compiled.empty() && wanted.size() != compiled.size()) {
    return InvalidArgument("{} devices for a program of {}", wanted.size(), compiled.size());
  }
  if (compiled.empty() && wanted.size() > 1) {
    return InvalidArgument("{} devices for a program of one", wanted.size());
  }
  const std::vector<int>& devices = wanted.empty() ? compiled : wanted;
  for (size_t i = 0; i < devices.size(); ++i) {
    FAIRWAY_RETURN_IF_ERROR(CheckPlace(info, devices[i], ""));
    if (std::find(devices.begin(), devices.begin() + i, devices[i]) != devices.begin() + i) {
      return InvalidArgument("device {} is listed twice", devices[i]);
    }
  }
  return devices;
}

absl::Status CheckLaunch(const LaunchRequest& request, const RuntimeInfo& info,
                         const std::vector<int>& loaded, const std::vector<BufferSpec>& parameters,
                         absl::FunctionRef<const BufferSpec&(DeviceBuffer&)> spec_of) {
  FAIRWAY_RETURN_IF_ERROR(CheckDevices(request, info, loaded));
  for (size_t d = 0; d < request.inputs.size(); ++d) {
    const int device = request.devices[d];
    const auto& inputs = request.inputs[d];
    if (inputs.size() != parameters.size()) {
      return InvalidArgument("{} arguments on device {}, the program takes {}", inputs.size(),
                             device, parameters.size());
    }
    for (size_t a = 0; a < inputs.size(); ++a) {
      if (inputs[a] == nullptr) {
        return InvalidArgument("argument {} on device {} is missing", a, device);
      }
      FAIRWAY_RETURN_IF_ERROR(CheckInput(spec_of(*inputs[a]), parameters[a], a, device));
    }
  }
  for (int a : request.non_donatable) {
    if (a < 0 || static_cast<size_t>(a) >= parameters.size()) {
      return InvalidArgument("non-donatable argument {} of {}", a, parameters.size());
    }
  }
  return absl::OkStatus();
}

absl::Status DonatedError(const BufferSpec& spec) {
  return Error(absl::StatusCode::kFailedPrecondition,
               "buffer {} on device {} was donated to an earlier program",
               ToString(spec.dtype, spec.shape), spec.device);
}

}  // namespace fairway
