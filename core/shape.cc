// SPDX-License-Identifier: Apache-2.0
#include "core/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace fairway {

int64_t Shape::num_elements() const {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

std::string ToString(DType dtype, const Shape& shape) {
  return fmt::format("{}[{}]", Name(dtype), fmt::join(shape.dims, ","));
}

absl::StatusOr<int64_t> ByteSize(DType dtype, const Shape& shape) {
  constexpr int64_t kLargest = int64_t{1} << 62;
  const int64_t element = BytesPerElement(dtype);
  // types without bytes are bounded as if an element had one
  int64_t bytes = std::max<int64_t>(1, element);
  for (const int64_t dim : shape.dims) {
    if (dim < 0) return InvalidArgument("{}: extent {} is negative", ToString(dtype, shape), dim);
    if (dim > kLargest || __builtin_mul_overflow(bytes, dim, &bytes) || bytes > kLargest)
      return InvalidArgument("{}: larger than 2^62 bytes", ToString(dtype, shape));
  }
  return element == 0 ? 0 : bytes;
}

}  // namespace fairway
