// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/strided.h"

#include <cstring>
#include <utility>

#include <fmt/ranges.h>

namespace fairway {
namespace {

constexpr int64_t kMaxBlock = int64_t{1} << 62;

std::vector<int64_t> DenseStrides(const Shape& shape, int64_t element_bytes) {
  std::vector<int64_t> strides(shape.dims.size());
  int64_t stride = element_bytes;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= shape.dims[d];
  }
  return strides;
}

// Copies elements between two layouts of one shape. `from_strides` and `to_strides` are as in
// StridedLayout.
void CopyElements(const Shape& shape, int64_t element_bytes, const char* from,
                  const std::vector<int64_t>& from_strides, char* to,
                  const std::vector<int64_t>& to_strides) {
  const int rank = shape.rank();
  if (rank == 0) {
    std::memcpy(to, from, element_bytes);
    return;
  }
  // The last dimension is copied in one piece where both sides are contiguous.
  const bool rows =
      from_strides[rank - 1] == element_bytes && to_strides[rank - 1] == element_bytes;
  const int outer = rows ? rank - 1 : rank;
  const int64_t piece = rows ? element_bytes * shape.dims[rank - 1] : element_bytes;
  std::vector<int64_t> index(outer, 0);
  int64_t from_offset = 0, to_offset = 0;
  while (true) {
    std::memcpy(to + to_offset, from + from_offset, piece);
    int d = outer - 1;
    for (; d >= 0; --d) {
      from_offset += from_strides[d];
      to_offset += to_strides[d];
      if (++index[d] < shape.dims[d]) break;
      from_offset -= from_strides[d] * shape.dims[d];
      to_offset -= to_strides[d] * shape.dims[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

absl::StatusOr<std::shared_ptr<Blob>> Allocate(int64_t bytes, BlockPool& blocks) {
  auto blob = blocks.Take(static_cast<size_t>(bytes));
  if (!blob.ok()) return Annotate(blob.status(), "an array's bytes in another order");
  return blob;
}

}  // namespace

absl::StatusOr<StridedLayout> CheckStrides(DType dtype, const Shape& shape,
                                           const std::optional<std::vector<int64_t>>& strides) {
  StridedLayout layout;
  layout.shape = shape;
  layout.element_bytes = BytesPerElement(dtype);
  FAIRWAY_ASSIGN_OR_RETURN(layout.dense_bytes, ByteSize(dtype, shape));
  layout.block_bytes = layout.dense_bytes;
  layout.dense = true;
  if (layout.dense_bytes == 0 || !strides.has_value()) {
    if (layout.dense_bytes > 0) layout.strides = DenseStrides(shape, layout.element_bytes);
    return layout;
  }
  if (strides->size() != shape.dims.size())
    return InvalidArgument("{} byte strides for {}", strides->size(), ToString(dtype, shape));
  layout.strides = DenseStrides(shape, layout.element_bytes);
  int64_t last = 0;
  for (size_t d = 0; d < strides->size(); ++d) {
    const int64_t stride = (*strides)[d];
    if (shape.dims[d] == 1) continue;  // never used
    if (stride <= 0 || stride % layout.element_bytes != 0)
      return Error(
          absl::StatusCode::kUnimplemented,
          "byte strides [{}] of {}: only positive multiples of the element's {} bytes are served",
          fmt::join(*strides, ","), ToString(dtype, shape), layout.element_bytes);
    int64_t extent = 0;
    if (__builtin_mul_overflow(stride, shape.dims[d] - 1, &extent) ||
        __builtin_add_overflow(last, extent, &last) || last > kMaxBlock)
      return InvalidArgument("byte strides [{}] of {} reach too far", fmt::join(*strides, ","),
                             ToString(dtype, shape));
    layout.dense = layout.dense && stride == layout.strides[d];
    layout.strides[d] = stride;
  }
  layout.block_bytes = last + layout.element_bytes;
  return layout;
}

absl::StatusOr<std::shared_ptr<const Blob>> ToDense(const StridedLayout& layout,
                                                    std::shared_ptr<const Blob> block,
                                                    BlockPool& blocks) {
  if (static_cast<int64_t>(block->size()) != layout.block_bytes)
    return InvalidArgument("the host buffer has {} bytes, expected {}", block->size(),
                           layout.block_bytes);
  if (layout.dense) return block;
  FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<Blob> out, Allocate(layout.dense_bytes, blocks));
  CopyElements(layout.shape, layout.element_bytes, block->data(), layout.strides, out->data(),
               DenseStrides(layout.shape, layout.element_bytes));
  return std::shared_ptr<const Blob>(std::move(out));
}

absl::StatusOr<std::shared_ptr<const Blob>> FromDense(const StridedLayout& layout,
                                                      std::shared_ptr<const Blob> dense,
                                                      BlockPool& blocks) {
  if (static_cast<int64_t>(dense->size()) != layout.dense_bytes)
    return Error(absl::StatusCode::kInternal, "an array of {} bytes was fetched, expected {}",
                 dense->size(), layout.dense_bytes);
  if (layout.dense) return dense;
  FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<Blob> out, Allocate(layout.block_bytes, blocks));
  std::memset(out->data(), 0, out->size());
  CopyElements(layout.shape, layout.element_bytes, dense->data(),
               DenseStrides(layout.shape, layout.element_bytes), out->data(), layout.strides);
  return std::shared_ptr<const Blob>(std::move(out));
}

}  // namespace fairway
