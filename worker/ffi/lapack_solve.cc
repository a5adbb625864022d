// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "worker/ffi/kernels.h"
#include "worker/ffi/lapack.h"

namespace fairway::ffi {

template <typename T>
absl::Status Trsm<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 2, 1));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 1, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "side", "LR"));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "uplo", "LU"));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "trans_x", "NTC"));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "diag", "NU"));
  const Matrices b = MatricesOf(call.args[1]);
  const int64_t order = Letter(call, "side") == 'L' ? b.rows : b.cols;
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 0, kDTypeOf<T>, b, {order, order}));
  return CheckRet(call, 0, kDTypeOf<T>, b, {b.rows, b.cols});
}

template <typename T>
void Trsm<T>::Run(const Call& call) {
  CopyToResult(call, 1, 0);
  const Matrices b = MatricesOf(call.args[1]);
  const char side = Letter(call, "side"), uplo = Letter(call, "uplo");
  const char trans = Letter(call, "trans_x"), diag = Letter(call, "diag");
  const Int order = side == 'L' ? b.rows : b.cols, leading = std::max<Int>(order, 1);
  const Int m = b.rows, n = b.cols, ldb = b.leading();
  const T one = 1;
  for (int64_t i = 0; i < b.count; ++i) {
    Lapack<T>::trsm(&side, &uplo, &trans, &diag, &m, &n, &one,
                    call.args[0].as<T>() + i * order * order, &leading,
                    call.rets[0].as<T>() + i * b.size(), &ldb, 1, 1, 1, 1);
  }
}

template <typename T>
absl::Status Getrf<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 3));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 0, kDTypeOf<T>));
  const Matrices a = MatricesOf(call.args[0]);
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 1, DType::kS32, a, {a.smaller()}));
  return CheckRet(call, 2, DType::kS32, a, {});
}

template <typename T>
void Getrf<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  const Matrices a = MatricesOf(call.args[0]);
  const Int m = a.rows, n = a.cols, lda = a.leading();
  std::vector<Int> pivots(a.smaller());
  for (int64_t i = 0; i < a.count; ++i) {
    Int info = 0;
    Lapack<T>::getrf(&m, &n, call.rets[0].as<T>() + i * a.size(), &lda, pivots.data(), &info);
    std::copy(pivots.begin(), pivots.end(), call.rets[1].as<int32_t>() + i * a.smaller());
    call.rets[2].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

template <typename T>
absl::Status Potrf<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 2));
  FAIRWAY_RETURN_IF_ERROR(CheckSquare(call, 0, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "uplo", "LU"));
  const Matrices a = MatricesOf(call.args[0]);
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  return CheckRet(call, 1, DType::kS32, a, {});
}

template <typename T>
void Potrf<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  const Matrices a = MatricesOf(call.args[0]);
  const char uplo = Letter(call, "uplo");
  const Int n = a.rows, lda = a.leading();
  for (int64_t i = 0; i < a.count; ++i) {
    Int info = 0;
    Lapack<T>::potrf(&uplo, &n, call.rets[0].as<T>() + i * a.size(), &lda, &info, 1);
    call.rets[1].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

template <typename T>
absl::Status Gtsv<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 4, 5));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 3, kDTypeOf<T>));
  const Matrices b = MatricesOf(call.args[3]);
  for (size_t i = 0; i < 3; ++i) {
    FAIRWAY_RETURN_IF_ERROR(CheckArg(call, i, kDTypeOf<T>, b, {b.rows}));
    FAIRWAY_RETURN_IF_ERROR(CheckRet(call, i, kDTypeOf<T>, b, {b.rows}));
  }
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 3, kDTypeOf<T>, b, {b.rows, b.cols}));
  return CheckRet(call, 4, DType::kS32, b, {});
}

template <typename T>
void Gtsv<T>::Run(const Call& call) {
  for (size_t i = 0; i < 4; ++i) CopyToResult(call, i, i);
  const Matrices b = MatricesOf(call.args[3]);
  const Int n = b.rows, columns = b.cols, ldb = b.leading();
  for (int64_t i = 0; i < b.count; ++i) {
    T* dl = call.rets[0].as<T>() + i * n;
    Int info = 0;
    // JAX's lower diagonal has an unused element in front.
    Lapack<T>::gtsv(&n, &columns, n > 0 ? dl + 1 : dl, call.rets[1].as<T>() + i * n,
                    call.rets[2].as<T>() + i * n, call.rets[3].as<T>() + i * b.size(), &ldb, &info);
    call.rets[4].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

#define FAIRWAY_FFI_INSTANTIATE(T) \
  template struct Trsm<T>;         \
  template struct Getrf<T>;        \
  template struct Potrf<T>;        \
  template struct Gtsv<T>

FAIRWAY_FFI_INSTANTIATE(float);
FAIRWAY_FFI_INSTANTIATE(double);
FAIRWAY_FFI_INSTANTIATE(C64);
FAIRWAY_FFI_INSTANTIATE(C128);
#undef FAIRWAY_FFI_INSTANTIATE

}  // namespace fairway::ffi
