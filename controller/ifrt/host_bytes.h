// SPDX-License-Identifier: Apache-2.0
// How requests describe the host bytes of arrays.
#ifndef FAIRWAY_CONTROLLER_IFRT_HOST_BYTES_H_
#define FAIRWAY_CONTROLLER_IFRT_HOST_BYTES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "core/shape.h"
#include "ifrt/messages.pb.h"

namespace fairway {

// UNIMPLEMENTED: arrays of this element type have no bytes.
inline absl::Status CheckHasBytes(DType dtype) {
  if (BitsInMemory(dtype) > 0) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented, "arrays of element type {} are not served",
               Name(dtype));
}

inline std::optional<std::vector<int64_t>> StridesOf(bool given,
                                                     const xla::ifrt::proto::ByteStrides& strides) {
  if (!given) return std::nullopt;
  return std::vector<int64_t>(strides.strides().begin(), strides.strides().end());
}

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_HOST_BYTES_H_
