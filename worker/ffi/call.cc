// SPDX-License-Identifier: Apache-2.0
#include "worker/ffi/call.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include <fmt/ranges.h>

namespace fairway::ffi {
namespace {

constexpr int64_t kLargestExtent = std::numeric_limits<int32_t>::max();

std::string Describe(const Value& value) {
  return fmt::format("{}[{}]", Name(value.dtype), fmt::join(value.dims, ","));
}

absl::Status CheckShape(std::string_view what, size_t index, const Value& value, DType dtype,
                        const Matrices& like, std::initializer_list<int64_t> inner) {
  const size_t rank = like.batch.size() + inner.size();
  if (value.dtype == dtype && value.dims.size() == rank &&
      std::equal(like.batch.begin(), like.batch.end(), value.dims.begin()) &&
      std::equal(inner.begin(), inner.end(), value.dims.begin() + like.batch.size())) {
    return absl::OkStatus();
  }
  std::vector<int64_t> expected(like.batch.begin(), like.batch.end());
  expected.insert(expected.end(), inner.begin(), inner.end());
  return InvalidArgument("{} {} is {}, expected {}[{}]", what, index, Describe(value), Name(dtype),
                         fmt::join(expected, ","));
}

int64_t Elements(const Value& value) {
  int64_t count = 1;
  for (int64_t extent : value.dims) count *= extent;
  return count;
}

template <typename T>
void Fill(const Value& value, T with) {
  std::fill_n(value.as<T>(), Elements(value), with);
}

}  // namespace

Matrices MatricesOf(const Value& value) {
  Matrices out;
  const size_t rank = value.dims.size();
  out.batch = value.dims.first(rank - 2);
  out.rows = value.dims[rank - 2];
  out.cols = value.dims[rank - 1];
  out.count = 1;
  for (int64_t extent : out.batch) out.count *= extent;
  return out;
}

absl::Status CheckCounts(const Call& call, size_t args, size_t rets) {
  if (call.args.size() == args && call.rets.size() == rets) return absl::OkStatus();
  return InvalidArgument("{} operands and {} results, expected {} and {}", call.args.size(),
                         call.rets.size(), args, rets);
}

absl::Status CheckMatrices(const Call& call, size_t arg, DType dtype) {
  const Value& value = call.args[arg];
  if (value.dtype != dtype || value.dims.size() < 2) {
    return InvalidArgument("operand {} is {}, expected matrices of {}", arg, Describe(value),
                           Name(dtype));
  }
  for (int64_t extent : value.dims.last(2)) {
    if (extent > kLargestExtent) {
      return InvalidArgument("operand {} is {}; matrices may have at most {} rows and columns", arg,
                             Describe(value), kLargestExtent);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSquare(const Call& call, size_t arg, DType dtype) {
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, arg, dtype));
  const Matrices matrices = MatricesOf(call.args[arg]);
  if (matrices.rows == matrices.cols) return absl::OkStatus();
  return InvalidArgument("operand {} is {}, expected square matrices", arg,
                         Describe(call.args[arg]));
}

absl::Status CheckArg(const Call& call, size_t arg, DType dtype, const Matrices& like,
                      std::initializer_list<int64_t> inner) {
  return CheckShape("operand", arg, call.args[arg], dtype, like, inner);
}

absl::Status CheckRet(const Call& call, size_t ret, DType dtype, const Matrices& like,
                      std::initializer_list<int64_t> inner) {
  return CheckShape("result", ret, call.rets[ret], dtype, like, inner);
}

int64_t AttributeOr(const Call& call, std::string_view name, int64_t otherwise) {
  for (const Attribute& attribute : call.attributes) {
    if (attribute.name == name) return attribute.value;
  }
  return otherwise;
}

absl::Status CheckLetter(const Call& call, std::string_view name, std::string_view letters) {
  const int64_t value = AttributeOr(call, name, -1);
  for (char letter : letters) {
    if (value == letter) return absl::OkStatus();
  }
  return InvalidArgument("attribute \"{}\" is {}, expected the code of one of the letters {}", name,
                         value == -1 ? "not an integer" : std::to_string(value), letters);
}

absl::Status CheckFlag(const Call& call, std::string_view name) {
  const int64_t value = AttributeOr(call, name, -1);
  if (value == 0 || value == 1) return absl::OkStatus();
  return InvalidArgument("attribute \"{}\" is missing or no bool", name);
}

void CopyToResult(const Call& call, size_t arg, size_t ret) {
  const Value& from = call.args[arg];
  const Value& to = call.rets[ret];
  if (from.data == to.data) return;
  const int64_t bytes = MemoryBytes(from);
  if (bytes > 0) std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
}

int64_t MemoryBytes(const Value& value) {
  const int packed = PackedBits(value.dtype);
  return (Elements(value) * (packed > 0 ? packed : BitsInMemory(value.dtype)) + 7) / 8;
}

// The first element is in the lowest bits of its byte.
void ReadElements(const Value& value, char* bytes) {
  const int64_t size = MemoryBytes(value);
  if (size == 0) return;
  const int bits = PackedBits(value.dtype);
  if (bits == 0) {
    std::memcpy(bytes, value.data, static_cast<size_t>(size));
    return;
  }
  const int each = 8 / bits, mask = (1 << bits) - 1;
  const int64_t count = Elements(value);
  for (int64_t i = 0; i < count; ++i) {
    const int byte = value.as<uint8_t>()[i / each];
    bytes[i] = static_cast<char>(byte >> (bits * static_cast<int>(i % each)) & mask);
  }
}

void WriteElements(const char* bytes, const Value& value) {
  const int64_t size = MemoryBytes(value);
  if (size == 0) return;
  const int bits = PackedBits(value.dtype);
  if (bits == 0) {
    std::memcpy(value.data, bytes, static_cast<size_t>(size));
    return;
  }
  std::memset(value.data, 0, static_cast<size_t>(size));
  const int each = 8 / bits, mask = (1 << bits) - 1;
  const int64_t count = Elements(value);
  for (int64_t i = 0; i < count; ++i) {
    value.as<uint8_t>()[i / each] |=
        static_cast<uint8_t>((bytes[i] & mask) << (bits * static_cast<int>(i % each)));
  }
}

void Poison(const Call& call) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Value& value : call.rets) {
    switch (value.dtype) {
      case DType::kF32:
        Fill<float>(value, kNan);
        break;
      case DType::kF64:
        Fill<double>(value, kNan);
        break;
      case DType::kC64:
        Fill<std::complex<float>>(value, {kNan, kNan});
        break;
      case DType::kC128:
        Fill<std::complex<double>>(value, {kNan, kNan});
        break;
      default: {
        const int64_t bytes = MemoryBytes(value);
        if (bytes > 0) std::memset(value.data, 0xff, static_cast<size_t>(bytes));
      }
    }
  }
}

}  // namespace fairway::ffi
