// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "worker/ffi/kernels.h"
#include "worker/ffi/lapack.h"

namespace fairway::ffi {

template <typename T>
absl::Status Geqrf<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 2));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 0, kDTypeOf<T>));
  const Matrices a = MatricesOf(call.args[0]);
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  return CheckRet(call, 1, kDTypeOf<T>, a, {a.smaller()});
}

template <typename T>
void Geqrf<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  const Matrices a = MatricesOf(call.args[0]);
  const Int m = a.rows, n = a.cols, lda = a.leading();
  Int info = 0;
  T size = 0;
  Lapack<T>::geqrf(&m, &n, nullptr, &lda, nullptr, &size, &kQuery, &info);
  const Int lwork = std::max(WorkSize(size), n);
  std::vector<T> work(lwork);
  for (int64_t i = 0; i < a.count; ++i) {
    Lapack<T>::geqrf(&m, &n, call.rets[0].as<T>() + i * a.size(), &lda,
                     call.rets[1].as<T>() + i * a.smaller(), work.data(), &lwork, &info);
  }
}

template <typename T>
absl::Status Geqp3<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 2, 3));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 0, kDTypeOf<T>));
  const Matrices a = MatricesOf(call.args[0]);
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 1, DType::kS32, a, {a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 1, DType::kS32, a, {a.cols}));
  return CheckRet(call, 2, kDTypeOf<T>, a, {a.smaller()});
}

template <typename T>
void Geqp3<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  CopyToResult(call, 1, 1);
  const Matrices a = MatricesOf(call.args[0]);
  const Int m = a.rows, n = a.cols, lda = a.leading();
  std::vector<RealOf<T>> rwork(kIsComplex<T> ? 2 * n : 0);
  const auto factor = [&](T* matrix, Int* pivots, T* tau, T* work, const Int* lwork, Int* info) {
    if constexpr (kIsComplex<T>) {
      Lapack<T>::geqp3(&m, &n, matrix, &lda, pivots, tau, work, lwork, rwork.data(), info);
    } else {
      Lapack<T>::geqp3(&m, &n, matrix, &lda, pivots, tau, work, lwork, info);
    }
  };
  Int info = 0;
  T size = 0;
  factor(nullptr, nullptr, nullptr, &size, &kQuery, &info);
  const Int lwork = std::max(WorkSize(size), 3 * n + 1);
  std::vector<T> work(lwork);
  std::vector<Int> pivots(n);
  for (int64_t i = 0; i < a.count; ++i) {
    int32_t* narrow = call.rets[1].as<int32_t>() + i * n;
    std::copy_n(narrow, n, pivots.begin());
    factor(call.rets[0].as<T>() + i * a.size(), pivots.data(),
           call.rets[2].as<T>() + i * a.smaller(), work.data(), &lwork, &info);
    std::copy(pivots.begin(), pivots.end(), narrow);
  }
}

template <typename T>
absl::Status Orgqr<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 2, 1));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 0, kDTypeOf<T>));
  const Matrices a = MatricesOf(call.args[0]);
  const int64_t reflectors = call.args[1].dims.empty() ? 0 : call.args[1].dims.back();
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 1, kDTypeOf<T>, a, {reflectors}));
  if (a.rows < a.cols || a.cols < reflectors) {
    return InvalidArgument("{} reflectors for matrices of {} by {}: expected rows >= columns >= {}",
                           reflectors, a.rows, a.cols, reflectors);
  }
  return CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols});
}

template <typename T>
void Orgqr<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  const Matrices a = MatricesOf(call.args[0]);
  const Int m = a.rows, n = a.cols, k = call.args[1].dims.back(), lda = a.leading();
  Int info = 0;
  T size = 0;
  Lapack<T>::orgqr(&m, &n, &k, nullptr, &lda, nullptr, &size, &kQuery, &info);
  const Int lwork = std::max(WorkSize(size), n);
  std::vector<T> work(lwork);
  for (int64_t i = 0; i < a.count; ++i) {
    Lapack<T>::orgqr(&m, &n, &k, call.rets[0].as<T>() + i * a.size(), &lda,
                     call.args[1].as<T>() + i * k, work.data(), &lwork, &info);
  }
}

template <typename T>
absl::Status Ormqr<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 3, 1));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 0, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 2, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckFlag(call, "left"));
  FAIRWAY_RETURN_IF_ERROR(CheckFlag(call, "transpose"));
  const Matrices a = MatricesOf(call.args[0]), c = MatricesOf(call.args[2]);
  const int64_t order = AttributeOr(call, "left", 0) ? c.rows : c.cols;
  const int64_t reflectors = call.args[1].dims.empty() ? 0 : call.args[1].dims.back();
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 0, kDTypeOf<T>, c, {order, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckArg(call, 1, kDTypeOf<T>, c, {reflectors}));
  if (reflectors > a.cols || reflectors > order) {
    return InvalidArgument("{} reflectors for matrices of {} by {}", reflectors, order, a.cols);
  }
  return CheckRet(call, 0, kDTypeOf<T>, c, {c.rows, c.cols});
}

template <typename T>
void Ormqr<T>::Run(const Call& call) {
  CopyToResult(call, 2, 0);
  const Matrices a = MatricesOf(call.args[0]), c = MatricesOf(call.args[2]);
  const char side = AttributeOr(call, "left", 0) ? 'L' : 'R';
  const char trans = !AttributeOr(call, "transpose", 0) ? 'N' : kIsComplex<T> ? 'C' : 'T';
  const Int m = c.rows, n = c.cols, k = call.args[1].dims.back();
  const Int lda = a.leading(), ldc = c.leading();
  Int info = 0;
  T size = 0;
  Lapack<T>::ormqr(&side, &trans, &m, &n, &k, nullptr, &lda, nullptr, nullptr, &ldc, &size, &kQuery,
                   &info, 1, 1);
  const Int lwork = std::max({WorkSize(size), m, n});
  std::vector<T> work(lwork), reflectors(a.rows * k);
  for (int64_t i = 0; i < c.count; ++i) {
    // Copies them, because LAPACK writes into them while it works, and others may read the operand.
    std::copy_n(call.args[0].as<T>() + i * a.size(), a.rows * k, reflectors.data());
    Lapack<T>::ormqr(&side, &trans, &m, &n, &k, reflectors.data(), &lda,
                     call.args[1].as<T>() + i * k, call.rets[0].as<T>() + i * c.size(), &ldc,
                     work.data(), &lwork, &info, 1, 1);
  }
}

template <typename T>
absl::Status Gehrd<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 3));
  FAIRWAY_RETURN_IF_ERROR(CheckSquare(call, 0, kDTypeOf<T>));
  const Matrices a = MatricesOf(call.args[0]);
  const int64_t low = AttributeOr(call, "low", -1), high = AttributeOr(call, "high", -1);
  if (a.rows > 0 && (low < 1 || high < low || high > a.rows)) {
    return InvalidArgument("low {} and high {}, expected 1 <= low <= high <= {}", low, high,
                           a.rows);
  }
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 1, kDTypeOf<T>, a, {std::max<int64_t>(a.rows - 1, 0)}));
  return CheckRet(call, 2, DType::kS32, a, {});
}

template <typename T>
void Gehrd<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  const Matrices a = MatricesOf(call.args[0]);
  const Int n = a.rows, lda = a.leading(), reflectors = std::max<Int>(n - 1, 0);
  const Int low = n == 0 ? 1 : AttributeOr(call, "low", 1);
  const Int high = n == 0 ? 0 : AttributeOr(call, "high", n);
  Int info = 0;
  T size = 0;
  Lapack<T>::gehrd(&n, &low, &high, nullptr, &lda, nullptr, &size, &kQuery, &info);
  const Int lwork = std::max(WorkSize(size), n);
  std::vector<T> work(lwork);
  for (int64_t i = 0; i < a.count; ++i) {
    Lapack<T>::gehrd(&n, &low, &high, call.rets[0].as<T>() + i * a.size(), &lda,
                     call.rets[1].as<T>() + i * reflectors, work.data(), &lwork, &info);
    call.rets[2].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

template <typename T>
absl::Status Sytrd<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 5));
  FAIRWAY_RETURN_IF_ERROR(CheckSquare(call, 0, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "uplo", "LU"));
  const Matrices a = MatricesOf(call.args[0]);
  const int64_t less = std::max<int64_t>(a.rows - 1, 0);
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 1, kDTypeOf<RealOf<T>>, a, {a.rows}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 2, kDTypeOf<RealOf<T>>, a, {less}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 3, kDTypeOf<T>, a, {less}));
  return CheckRet(call, 4, DType::kS32, a, {});
}

template <typename T>
void Sytrd<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  const Matrices a = MatricesOf(call.args[0]);
  const char uplo = Letter(call, "uplo");
  const Int n = a.rows, lda = a.leading(), less = std::max<Int>(n - 1, 0);
  Int info = 0;
  T size = 0;
  Lapack<T>::sytrd(&uplo, &n, nullptr, &lda, nullptr, nullptr, nullptr, &size, &kQuery, &info, 1);
  const Int lwork = WorkSize(size);
  std::vector<T> work(lwork);
  for (int64_t i = 0; i < a.count; ++i) {
    Lapack<T>::sytrd(&uplo, &n, call.rets[0].as<T>() + i * a.size(), &lda,
                     call.rets[1].as<RealOf<T>>() + i * n, call.rets[2].as<RealOf<T>>() + i * less,
                     call.rets[3].as<T>() + i * less, work.data(), &lwork, &info, 1);
    call.rets[4].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

#define FAIRWAY_FFI_INSTANTIATE(T) \
  template struct Geqrf<T>;        \
  template struct Geqp3<T>;        \
  template struct Orgqr<T>;        \
  template struct Ormqr<T>;        \
  template struct Gehrd<T>;        \
  template struct Sytrd<T>

FAIRWAY_FFI_INSTANTIATE(float);
FAIRWAY_FFI_INSTANTIATE(double);
FAIRWAY_FFI_INSTANTIATE(C64);
FAIRWAY_FFI_INSTANTIATE(C128);
#undef FAIRWAY_FFI_INSTANTIATE

}  // namespace fairway::ffi
