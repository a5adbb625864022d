// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <array>

namespace fairway {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array kRows = {
    Row{DType::kPred, "pred", 8},
    Row{DType::kS1, "s1", 8},
    Row{DType::kS2, "s2", 8},
    Row{DType::kS4, "s4", 8},
    Row{DType::kS8, "s8", 8},
    Row{DType::kS16, "s16", 16},
    Row{DType::kS32, "s32", 32},
    Row{DType::kS64, "s64", 64},
    Row{DType::kU1, "u1", 8},
    Row{DType::kU2, "u2", 8},
    Row{DType::kU4, "u4", 8},
    Row{DType::kU8, "u8", 8},
    Row{DType::kU16, "u16", 16},
    Row{DType::kU32, "u32", 32},
    Row{DType::kU64, "u64", 64},
    Row{DType::kF4E2M1FN, "f4e2m1fn", 8},
    Row{DType::kF8E3M4, "f8e3m4", 8},
    Row{DType::kF8E4M3, "f8e4m3", 8},
    Row{DType::kF8E4M3FN, "f8e4m3fn", 8},
    Row{DType::kF8E4M3B11FNUZ, "f8e4m3b11fnuz", 8},
    Row{DType::kF8E4M3FNUZ, "f8e4m3fnuz", 8},
    Row{DType::kF8E5M2, "f8e5m2", 8},
    Row{DType::kF8E5M2FNUZ, "f8e5m2fnuz", 8},
    Row{DType::kF8E8M0FNU, "f8e8m0fnu", 8},
    Row{DType::kF16, "f16", 16},
    Row{DType::kBF16, "bf16", 16},
    Row{DType::kF32, "f32", 32},
    Row{DType::kF64, "f64", 64},
    Row{DType::kC64, "c64", 64},
    Row{DType::kC128, "c128", 128},
    Row{DType::kToken, "token", 0},
    Row{DType::kOpaque, "opaque", 0},
    Row{DType::kString, "string", 0},
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

int BitsInMemory(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? 0 : row->bits;
}

}  // namespace fairway
