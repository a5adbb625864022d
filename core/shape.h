// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CORE_SHAPE_H_
#define FAIRWAY_CORE_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/dtype.h"

namespace fairway {

// Extents, major dimension first. An empty list is a scalar; an extent may be 0.
struct Shape {
  std::vector<int64_t> dims;

  int rank() const { return static_cast<int>(dims.size()); }
  // 1 for a scalar. Meaningful only for shapes that passed ByteSize.
  int64_t num_elements() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

// "f32[128,512]"
std::string ToString(DType dtype, const Shape& shape);

// Returns the bytes of a dense array. INVALID_ARGUMENT: a negative extent, or an extent or a size
// above 2^62.
absl::StatusOr<int64_t> ByteSize(DType dtype, const Shape& shape);

}  // namespace fairway

#endif  // FAIRWAY_CORE_SHAPE_H_
