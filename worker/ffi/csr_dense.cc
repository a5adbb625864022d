// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "worker/ffi/kernels.h"

namespace fairway::ffi {
namespace {

bool OneOf(DType dtype, std::initializer_list<DType> list) {
  return std::find(list.begin(), list.end(), dtype) != list.end();
}

// Integers wrap around, as in XLA.
template <typename T>
T MultiplyAdd(T sum, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(sum) + static_cast<U>(a) * static_cast<U>(b));
  } else {
    return sum + a * b;
  }
}

template <typename T, typename Index>
void Multiply(const Call& call) {
  const int64_t stored = call.args[0].dims[0], inner = call.args[3].dims[0];
  const int64_t rows = call.rets[0].dims[0];
  const int64_t cols = call.rets[0].dims.size() > 1 ? call.rets[0].dims[1] : 1;
  const Index* starts = call.args[1].as<Index>();
  const Index* columns = call.args[2].as<Index>();
  const T* dense = call.args[3].as<T>();
  T* out = call.rets[0].as<T>();
  std::fill_n(out, rows * cols, T(0));
  for (int64_t row = 0; row < rows; ++row) {
    // Reads each index once: the program may have given the result the memory of the indices.
    const int64_t begin = starts[row], end = starts[row + 1];
    if (begin < 0 || end > stored) return Poison(call);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t column = columns[k];
      if (column < 0 || column >= inner) return Poison(call);
      const T value = call.args[0].as<T>()[k];
      const T* from = dense + column * cols;
      for (int64_t c = 0; c < cols; ++c) {
        out[row * cols + c] = MultiplyAdd(out[row * cols + c], value, from[c]);
      }
    }
  }
}

template <typename T>
void MultiplyBy(const Call& call) {
  if (call.args[1].dtype == DType::kS32) return Multiply<T, int32_t>(call);
  return Multiply<T, int64_t>(call);
}

}  // namespace

absl::Status CsrDense::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 4, 1));
  const DType dtype = call.args[0].dtype, index = call.args[1].dtype;
  if (!OneOf(dtype,
             {DType::kS32, DType::kS64, DType::kF32, DType::kF64, DType::kC64, DType::kC128}) ||
      !OneOf(index, {DType::kS32, DType::kS64})) {
    return InvalidArgument("a sparse matrix of {} with indices of {}", Name(dtype), Name(index));
  }
  const Value& dense = call.args[3];
  if (call.args[0].dims.size() != 1 || dense.dims.empty() || dense.dims.size() > 2 ||
      call.rets[0].dims.size() != dense.dims.size()) {
    return InvalidArgument("ranks {}, {} and {}, expected 1 and twice 1 or twice 2",
                           call.args[0].dims.size(), dense.dims.size(), call.rets[0].dims.size());
  }
  const Matrices none;
  const int64_t stored = call.args[0].dims[0], rows = call.rets[0].dims[0];
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 1, index, none, {rows + 1}));
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 2, index, none, {stored}));
  if (dense.dims.size() == 1) {
    FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 3, dtype, none, {dense.dims[0]}));
    return CheckRet(call, 0, dtype, none, {rows});
  }
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 3, dtype, none, {dense.dims[0], dense.dims[1]}));
  return CheckRet(call, 0, dtype, none, {rows, dense.dims[1]});
}

void CsrDense::Run(const Call& call) {
  switch (call.args[0].dtype) {
    case DType::kS32:
      return MultiplyBy<int32_t>(call);
    case DType::kS64:
      return MultiplyBy<int64_t>(call);
    case DType::kF32:
      return MultiplyBy<float>(call);
    case DType::kF64:
      return MultiplyBy<double>(call);
    case DType::kC64:
      return MultiplyBy<std::complex<float>>(call);
    default:
      return MultiplyBy<std::complex<double>>(call);
  }
}

}  // namespace fairway::ffi
