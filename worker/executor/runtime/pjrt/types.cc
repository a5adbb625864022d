// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/types.h"

#include <cstddef>

#include "pjrt_c_api.h"

namespace fairway::pjrt {
namespace {

struct Row {
  DType dtype;
  int buffer_type;
  int primitive_type;
};

constexpr int kNone = -1;
constexpr Row kRows[] = {
    {DType::kPred, PJRT_Buffer_Type_PRED, 1},
    {DType::kS8, PJRT_Buffer_Type_S8, 2},
    {DType::kS16, PJRT_Buffer_Type_S16, 3},
    {DType::kS32, PJRT_Buffer_Type_S32, 4},
    {DType::kS64, PJRT_Buffer_Type_S64, 5},
    {DType::kU8, PJRT_Buffer_Type_U8, 6},
    {DType::kU16, PJRT_Buffer_Type_U16, 7},
    {DType::kU32, PJRT_Buffer_Type_U32, 8},
    {DType::kU64, PJRT_Buffer_Type_U64, 9},
    {DType::kF16, PJRT_Buffer_Type_F16, 10},
    {DType::kF32, PJRT_Buffer_Type_F32, 11},
    {DType::kF64, PJRT_Buffer_Type_F64, 12},
    {DType::kOpaque, kNone, 14},
    {DType::kC64, PJRT_Buffer_Type_C64, 15},
    {DType::kBF16, PJRT_Buffer_Type_BF16, 16},
    {DType::kToken, PJRT_Buffer_Type_TOKEN, 17},
    {DType::kC128, PJRT_Buffer_Type_C128, 18},
    {DType::kF8E5M2, PJRT_Buffer_Type_F8E5M2, 19},
    {DType::kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN, 20},
    {DType::kS4, PJRT_Buffer_Type_S4, 21},
    {DType::kU4, PJRT_Buffer_Type_U4, 22},
    {DType::kF8E4M3B11FNUZ, PJRT_Buffer_Type_F8E4M3B11FNUZ, 23},
    {DType::kF8E5M2FNUZ, PJRT_Buffer_Type_F8E5M2FNUZ, 24},
    {DType::kF8E4M3FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ, 25},
    {DType::kS2, PJRT_Buffer_Type_S2, 26},
    {DType::kU2, PJRT_Buffer_Type_U2, 27},
    {DType::kF8E4M3, PJRT_Buffer_Type_F8E4M3, 28},
    {DType::kF8E3M4, PJRT_Buffer_Type_F8E3M4, 29},
    {DType::kS1, kNone, 30},
    {DType::kU1, kNone, 31},
    {DType::kF4E2M1FN, PJRT_Buffer_Type_F4E2M1FN, 32},
    {DType::kF8E8M0FNU, PJRT_Buffer_Type_F8E8M0FNU, 33},
};

}  // namespace

std::optional<int> ToBufferType(DType dtype) {
  if (BitsInMemory(dtype) == 0) return std::nullopt;  // a token would abort the process
  for (const Row& row : kRows) {
    if (row.dtype == dtype && row.buffer_type != kNone) return row.buffer_type;
  }
  return std::nullopt;
}

DType FromBufferType(int type) {
  for (const Row& row : kRows) {
    if (row.buffer_type == type) return row.dtype;
  }
  return DType::kInvalid;
}

DType FromPrimitiveType(int type) {
  for (const Row& row : kRows) {
    if (row.primitive_type == type) return row.dtype;
  }
  return DType::kInvalid;
}

bool IsSubByte(DType dtype) {
  switch (dtype) {
    case DType::kS1:
    case DType::kS2:
    case DType::kS4:
    case DType::kU1:
    case DType::kU2:
    case DType::kU4:
    case DType::kF4E2M1FN:
      return true;
    default:
      return false;
  }
}

}  // namespace fairway::pjrt
