// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "worker/ffi/kernels.h"

namespace fairway::ffi {
namespace {

struct Range {
  int64_t begin = 0, end = 0;
};

// Returns the range that the device keeps of dimension `dim`.
Range Kept(const Call& call, size_t dim) {
  const int64_t extent = call.args[0].dims[dim];
  const int64_t slices = AttributeOr(call, fmt::format("slices{}", dim), 1);
  if (slices <= 1) return {0, extent};
  const int64_t slice = AttributeOr(call, fmt::format("slice{}_{}", dim, call.device), 0);
  if (slice < 0 || slice >= slices) return {0, 0};  // the program's own division
  const int64_t each = extent / slices + (extent % slices != 0 ? 1 : 0);
  if (each == 0 || slice > extent / each) return {0, 0};
  return {slice * each, std::min(extent, (slice + 1) * each)};
}

// Writes zeros where an index is outside the kept range of its dimension. `kept`: the ranges of the
// dimensions from that of `extents` on, up to the last one that is cut.
void ZeroTheRest(std::span<const int64_t> extents, std::span<const Range> kept, char* data,
                 int64_t bytes) {
  if (kept.empty()) return;
  const int64_t row = bytes / extents[0];
  const auto [begin, end] = kept[0];
  std::memset(data, 0, static_cast<size_t>(begin * row));
  std::memset(data + end * row, 0, static_cast<size_t>(bytes - end * row));
  for (int64_t i = begin; i < end; ++i) {
    ZeroTheRest(extents.subspan(1), kept.subspan(1), data + i * row, row);
  }
}

}  // namespace

absl::Status OwnPart::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 1));
  const Value &x = call.args[0], &part = call.rets[0];
  // or an element smaller than a byte
  if (x.dtype > DType::kC128 || BytesPerElement(x.dtype) == 0) {
    return InvalidArgument("operand 0 is of {}, which is not served", Name(x.dtype));
  }
  if (x.dtype == part.dtype && std::ranges::equal(x.dims, part.dims)) return absl::OkStatus();
  return InvalidArgument("operand and result differ in shape or element type ({}, {})",
                         Name(x.dtype), Name(part.dtype));
}

void OwnPart::Run(const Call& call) {
  int64_t bytes = BytesPerElement(call.args[0].dtype);
  for (int64_t extent : call.args[0].dims) bytes *= extent;
  if (bytes == 0) return;
  const std::string word = "devices" + std::to_string(call.device / 64);
  const auto mask = static_cast<uint64_t>(AttributeOr(call, word, 0));
  if (call.device < 0 || (mask >> (call.device % 64) & 1) == 0) {
    std::memset(call.rets[0].data, 0, static_cast<size_t>(bytes));
    return;
  }
  CopyToResult(call, 0, 0);
  const std::span<const int64_t> extents = call.args[0].dims;
  std::vector<Range> kept;
  for (size_t dim = 0; dim < extents.size(); ++dim) kept.push_back(Kept(call, dim));
  while (!kept.empty() && kept.back().begin == 0 && kept.back().end == extents[kept.size() - 1]) {
    kept.pop_back();
  }
  ZeroTheRest(extents, kept, call.rets[0].as<char>(), bytes);
}

}  // namespace fairway::ffi
