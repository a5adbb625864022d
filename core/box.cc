// SPDX-License-Identifier: Apache-2.0
#include "core/box.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fairway {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr size_t kMaxRank = 64;

int64_t Product(int64_t bytes, const std::vector<int64_t>& extents) {
  for (const int64_t extent : extents) bytes *= extent;
  return bytes;
}

// Returns the bytes from one index of a dimension to the next.
std::vector<int64_t> Strides(const Box& box) {
  std::vector<int64_t> strides(box.dims.size());
  int64_t stride = box.element_bytes;
  for (size_t d = box.dims.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= box.dims[d];
  }
  return strides;
}

}  // namespace

Box Box::Whole(int64_t element_bytes, std::vector<int64_t> dims) {
  Box box{element_bytes, dims, std::vector<int64_t>(dims.size(), 0), {}};
  box.extents = std::move(dims);
  return box;
}

int64_t Box::bytes() const { return Product(element_bytes, extents); }
int64_t Box::array_bytes() const { return Product(element_bytes, dims); }

absl::Status CheckBox(const Box& box) {
  const size_t rank = box.dims.size();
  if (rank > kMaxRank || box.origin.size() != rank || box.extents.size() != rank)
    return InvalidArgument("a box of ranks {}, {} and {}", rank, box.origin.size(),
                           box.extents.size());
  if (box.element_bytes < 1 || box.element_bytes > 64)
    return InvalidArgument("a box of elements of {} bytes", box.element_bytes);
  int64_t bytes = box.element_bytes;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t dim = box.dims[d];
    if (dim < 0 || box.origin[d] < 0 || box.extents[d] < 0 || box.origin[d] > dim ||
        box.extents[d] > dim - box.origin[d])
      return InvalidArgument("a box from {} of {} in dimension {} of {}", box.origin[d],
                             box.extents[d], d, dim);
    // Extents of 0 count as 1, so that no stride overflows either.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes) || bytes > kMaxBytes)
      return InvalidArgument("a box in an array of more than 2^62 bytes");
  }
  return absl::OkStatus();
}

void CopyBox(const Box& from, const char* source, const Box& to, char* target) {
  if (from.bytes() == 0) return;
  const size_t rank = from.dims.size();
  const std::vector<int64_t> from_strides = Strides(from);
  const std::vector<int64_t> to_strides = Strides(to);
  for (size_t d = 0; d < rank; ++d) {
    source += from.origin[d] * from_strides[d];
    target += to.origin[d] * to_strides[d];
  }
  // The inner dimensions that are dense on both sides form one run.
  size_t outer = rank;
  int64_t run = from.element_bytes;
  while (outer > 0) {
    --outer;
    run *= from.extents[outer];
    if (from.extents[outer] != from.dims[outer] || to.extents[outer] != to.dims[outer]) break;
  }
  std::vector<int64_t> index(outer, 0);
  while (true) {
    int64_t from_offset = 0, to_offset = 0;
    for (size_t d = 0; d < outer; ++d) {
      from_offset += index[d] * from_strides[d];
      to_offset += index[d] * to_strides[d];
    }
    std::memcpy(target + to_offset, source + from_offset, run);
    size_t d = outer;
    while (d > 0 && ++index[d - 1] == from.extents[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace fairway
