// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <array>

namespace fairway {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;            // of an element's value; 0: no bytes
  int primitive_type;  // xla.PrimitiveType; 0: none
  int buffer_type;     // PJRT_Buffer_Type; 0: none
};

constexpr std::array kRows = {
    Row{DType::kPred, "pred", 8, 1, 1},
    Row{DType::kS1, "s1", 1, 30, 0},
    Row{DType::kS2, "s2", 2, 26, 24},
    Row{DType::kS4, "s4", 4, 21, 21},
    Row{DType::kS8, "s8", 8, 2, 2},
    Row{DType::kS16, "s16", 16, 3, 3},
    Row{DType::kS32, "s32", 32, 4, 4},
    Row{DType::kS64, "s64", 64, 5, 5},
    Row{DType::kU1, "u1", 1, 31, 0},
    Row{DType::kU2, "u2", 2, 27, 25},
    Row{DType::kU4, "u4", 4, 22, 22},
    Row{DType::kU8, "u8", 8, 6, 6},
    Row{DType::kU16, "u16", 16, 7, 7},
    Row{DType::kU32, "u32", 32, 8, 8},
    Row{DType::kU64, "u64", 64, 9, 9},
    Row{DType::kF4E2M1FN, "f4e2m1fn", 4, 32, 29},
    Row{DType::kF8E3M4, "f8e3m4", 8, 29, 27},
    Row{DType::kF8E4M3, "f8e4m3", 8, 28, 26},
    Row{DType::kF8E4M3FN, "f8e4m3fn", 8, 20, 17},
    Row{DType::kF8E4M3B11FNUZ, "f8e4m3b11fnuz", 8, 23, 18},
    Row{DType::kF8E4M3FNUZ, "f8e4m3fnuz", 8, 25, 20},
    Row{DType::kF8E5M2, "f8e5m2", 8, 19, 16},
    Row{DType::kF8E5M2FNUZ, "f8e5m2fnuz", 8, 24, 19},
    Row{DType::kF8E8M0FNU, "f8e8m0fnu", 8, 33, 28},
    Row{DType::kF16, "f16", 16, 10, 10},
    Row{DType::kBF16, "bf16", 16, 16, 13},
    Row{DType::kF32, "f32", 32, 11, 11},
    Row{DType::kF64, "f64", 64, 12, 12},
    Row{DType::kC64, "c64", 64, 15, 14},
    Row{DType::kC128, "c128", 128, 18, 15},
    Row{DType::kToken, "token", 0, 17, 23},
    Row{DType::kOpaque, "opaque", 0, 14, 0},
    Row{DType::kString, "string", 0, 0, 0},
};

constexpr const Row* Find(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

}  // namespace

std::string_view Name(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? "invalid" : row->name;
}

std::optional<DType> DTypeFromNumber(int32_t number) {
  const Row* row = Find(static_cast<DType>(number));
  if (row == nullptr) return std::nullopt;
  return row->dtype;
}

std::optional<DType> DTypeFromPrimitiveType(int32_t number) {
  for (const Row& row : kRows) {
    if (row.primitive_type == number && number != 0) return row.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromPjrtType(int32_t number) {
  for (const Row& row : kRows) {
    if (row.buffer_type == number && number != 0) return row.dtype;
  }
  return std::nullopt;
}

int32_t PrimitiveTypeOf(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? 0 : row->primitive_type;
}

std::optional<int32_t> PjrtTypeOf(DType dtype) {
  const Row* row = Find(dtype);
  if (row == nullptr || row->bits == 0 || row->buffer_type == 0) return std::nullopt;
  return row->buffer_type;
}

int BitsInMemory(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? 0 : (row->bits + 7) / 8 * 8;
}

int PackedBits(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr || row->bits >= 8 ? 0 : row->bits;
}

}  // namespace fairway
