// SPDX-License-Identifier: Apache-2.0
#include "core/shape.h"

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
  int64_t bytes = BytesPerElement(dtype);
  for (const int64_t dim : shape.dims) {
    if (dim < 0) return InvalidArgument("{}: extent {} is negative", ToString(dtype, shape), dim);
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > (int64_t{1} << 62))
      return InvalidArgument("{}: larger than 2^62 bytes", ToString(dtype, shape));
  }
  return bytes;
}

}  // namespace fairway
