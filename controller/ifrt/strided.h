// SPDX-License-Identifier: Apache-2.0
// Converts between the strided host arrays of clients and our dense bytes.
#ifndef FAIRWAY_CONTROLLER_IFRT_STRIDED_H_
#define FAIRWAY_CONTROLLER_IFRT_STRIDED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/blob.h"
#include "base/status.h"
#include "core/shape.h"
#include "transport/block_pool.h"

namespace fairway {

// The checked layout of a client's bytes: the smallest block that holds the array and begins at its
// first element.
struct StridedLayout {
  Shape shape;
  int64_t element_bytes = 0;
  std::vector<int64_t> strides;  // bytes, per dimension
  int64_t block_bytes = 0;       // 0 for an empty array
  int64_t dense_bytes = 0;       // may be far more than block_bytes, where elements overlap
  bool dense = false;            // major to minor without gaps
};

// No `strides`: dense. INVALID_ARGUMENT: their number is not the rank, or the block is larger than
// 2^62 bytes. UNIMPLEMENTED: a stride is negative, zero, or no multiple of the element.
absl::StatusOr<StridedLayout> CheckStrides(DType dtype, const Shape& shape,
                                           const std::optional<std::vector<int64_t>>& strides);

// `block` as dense bytes from `blocks`; the block itself when it is dense. INVALID_ARGUMENT: its
// size is not block_bytes. RESOURCE_EXHAUSTED: `blocks` has no memory left.
absl::StatusOr<std::shared_ptr<const Blob>> ToDense(const StridedLayout& layout,
                                                    std::shared_ptr<const Blob> block,
                                                    BlockPool& blocks);
// The opposite of ToDense. Gaps are zero.
absl::StatusOr<std::shared_ptr<const Blob>> FromDense(const StridedLayout& layout,
                                                      std::shared_ptr<const Blob> dense,
                                                      BlockPool& blocks);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_STRIDED_H_
