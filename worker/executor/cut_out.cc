// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/cut_out.h"

#include <memory>
#include <optional>

#include "base/blob.h"

namespace fairway {
namespace {

// Returns where the box begins in its array if its bytes lie together. They do if, after the first
// dimension with more than one index, the box has all indices of every dimension.
std::optional<size_t> OffsetOf(const Box& box) {
  int64_t offset = 0, stride = box.element_bytes;
  bool partial = false;  // some inner dimension is not whole
  for (size_t d = box.dims.size(); d-- > 0;) {
    if (partial && box.extents[d] != 1) return std::nullopt;
    partial = partial || box.extents[d] != box.dims[d];
    offset += box.origin[d] * stride;
    stride *= box.dims[d];
  }
  return static_cast<size_t>(offset);
}

}  // namespace

absl::StatusOr<HostView> CutOut(const Box& box, const HostView& shard) {
  if (box.array_bytes() != static_cast<int64_t>(shard.bytes.size()))
    return Error(absl::StatusCode::kInternal, "a box of {} bytes in a shard of {}",
                 box.array_bytes(), shard.bytes.size());
  const auto size = static_cast<size_t>(box.bytes());
  if (size == 0) return HostView{shard.bytes.substr(0, 0), shard.owner};
  if (const auto offset = OffsetOf(box))
    return HostView{shard.bytes.substr(*offset, size), shard.owner};
  auto blob = Blob::Make(size);
  if (blob == nullptr)
    return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes of a shard",
                 size);
  CopyBox(box, shard.bytes.data(), box.Alone(), blob->data());
  return HostView{blob->view(), blob};
}

}  // namespace fairway
