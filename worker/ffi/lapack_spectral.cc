// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/ffi/kernels.h"
#include "worker/ffi/lapack.h"

namespace fairway::ffi {
namespace {

constexpr int32_t kNotFinite = -4;  // the number of jaxlib's own handlers

// Copies the matrices to the first result and fills the others with NaN: LAPACK does not write what
// it could not compute, and the memory holds bytes of another array.
void CopyAndPoisonTheRest(const Call& call) {
  CopyToResult(call, 0, 0);
  Poison({{}, call.rets.subspan(1), {}});
}

template <typename T>
bool AllFinite(const T* values, int64_t count) {
  return std::all_of(values, values + count, [](const T& value) {
    return std::isfinite(std::real(value)) && std::isfinite(std::imag(value));
  });
}

template <typename T>
void Clear(const Value& value, const Matrices& like, int64_t each) {
  std::fill_n(value.as<T>(), like.count * each, T(0));
}

// For gesdd and gesvd, which differ only in their algorithm.
template <typename T>
absl::Status CheckSingularValues(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 5));
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 0, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "mode", "ASN"));
  const Matrices a = MatricesOf(call.args[0]);
  const char mode = Letter(call, "mode");
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 1, kDTypeOf<RealOf<T>>, a, {a.smaller()}));
  const auto vectors = [&](int64_t u, int64_t vt) {
    FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 2, kDTypeOf<T>, a, {a.rows, u}));
    return CheckRet(call, 3, kDTypeOf<T>, a, {vt, a.cols});
  };
  // Without vectors JAX passes results of either shape.
  const bool full = mode == 'A' || (mode == 'N' && vectors(a.rows, a.cols).ok());
  FAIRWAY_RETURN_IF_ERROR(full ? vectors(a.rows, a.cols) : vectors(a.smaller(), a.smaller()));
  return CheckRet(call, 4, DType::kS32, a, {});
}

// Calls `decompose(a, s, u, ldu, vt, ldvt, work, lwork, info)` for every matrix.
template <typename T, typename Decompose>
void SingularValues(const Call& call, Decompose decompose) {
  CopyAndPoisonTheRest(call);
  const Matrices a = MatricesOf(call.args[0]);
  const Matrices u = MatricesOf(call.rets[2]), vt = MatricesOf(call.rets[3]);
  if (Letter(call, "mode") == 'N') {
    Clear<T>(call.rets[2], a, u.size());
    Clear<T>(call.rets[3], a, vt.size());
  }
  const Int ldu = u.leading(), ldvt = vt.leading();
  Int info = 0;
  T size = 0;
  decompose(nullptr, nullptr, nullptr, &ldu, nullptr, &ldvt, &size, &kQuery, &info);
  const Int lwork = WorkSize(size);
  std::vector<T> work(lwork);
  for (int64_t i = 0; i < a.count; ++i) {
    T* matrix = call.rets[0].as<T>() + i * a.size();
    info = kNotFinite;
    if (AllFinite(matrix, a.size())) {  // else LAPACK may print lines for each matrix
      decompose(matrix, call.rets[1].as<RealOf<T>>() + i * a.smaller(),
                call.rets[2].as<T>() + i * u.size(), &ldu, call.rets[3].as<T>() + i * vt.size(),
                &ldvt, work.data(), &lwork, &info);
    }
    call.rets[4].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

// In LAPACK's packing: a complex pair has its real and imaginary part in two columns.
template <typename Real>
void Unpack(Int n, const Real* imaginary, const Real* packed, std::complex<Real>* out) {
  for (Int j = 0; j < n; ++j) {
    const Real* column = packed + j * n;
    if (imaginary[j] == 0 || j + 1 == n) {
      std::copy_n(column, n, out + j * n);
      continue;
    }
    for (Int i = 0; i < n; ++i) {
      out[j * n + i] = {column[i], column[n + i]};
      out[(j + 1) * n + i] = {column[i], -column[n + i]};
    }
    ++j;
  }
}

}  // namespace

template <typename T>
absl::Status Gesdd<T>::Check(const Call& call) {
  return CheckSingularValues<T>(call);
}

template <typename T>
void Gesdd<T>::Run(const Call& call) {
  const Matrices a = MatricesOf(call.args[0]);
  const char mode = Letter(call, "mode");
  const Int m = a.rows, n = a.cols, lda = a.leading(), small = a.smaller();
  const Int large = std::max(m, n);
  std::vector<Int> iwork(8 * small + 1);
  std::vector<RealOf<T>> rwork;
  if (kIsComplex<T>) {
    rwork.resize(1 + (mode == 'N' ? 7 * small
                                  : std::max(5 * small * small + 5 * small,
                                             2 * large * small + 2 * small * small + small)));
  }
  SingularValues<T>(call, [&](T* matrix, RealOf<T>* s, T* u, const Int* ldu, T* vt, const Int* ldvt,
                              T* work, const Int* lwork, Int* info) {
    if constexpr (kIsComplex<T>) {
      Lapack<T>::gesdd(&mode, &m, &n, matrix, &lda, s, u, ldu, vt, ldvt, work, lwork, rwork.data(),
                       iwork.data(), info, 1);
    } else {
      Lapack<T>::gesdd(&mode, &m, &n, matrix, &lda, s, u, ldu, vt, ldvt, work, lwork, iwork.data(),
                       info, 1);
    }
  });
}

template <typename T>
absl::Status Gesvd<T>::Check(const Call& call) {
  return CheckSingularValues<T>(call);
}

template <typename T>
void Gesvd<T>::Run(const Call& call) {
  const Matrices a = MatricesOf(call.args[0]);
  const char mode = Letter(call, "mode");
  const Int m = a.rows, n = a.cols, lda = a.leading();
  std::vector<RealOf<T>> rwork(kIsComplex<T> ? 5 * a.smaller() + 1 : 0);
  SingularValues<T>(call, [&](T* matrix, RealOf<T>* s, T* u, const Int* ldu, T* vt, const Int* ldvt,
                              T* work, const Int* lwork, Int* info) {
    if constexpr (kIsComplex<T>) {
      Lapack<T>::gesvd(&mode, &mode, &m, &n, matrix, &lda, s, u, ldu, vt, ldvt, work, lwork,
                       rwork.data(), info, 1, 1);
    } else {
      Lapack<T>::gesvd(&mode, &mode, &m, &n, matrix, &lda, s, u, ldu, vt, ldvt, work, lwork, info,
                       1, 1);
    }
  });
}

template <typename T>
absl::Status Syevd<T>::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 3));
  FAIRWAY_RETURN_IF_ERROR(CheckSquare(call, 0, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "mode", "VN"));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "uplo", "LU"));
  const Matrices a = MatricesOf(call.args[0]);
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 1, kDTypeOf<RealOf<T>>, a, {a.rows}));
  return CheckRet(call, 2, DType::kS32, a, {});
}

template <typename T>
void Syevd<T>::Run(const Call& call) {
  CopyToResult(call, 0, 0);
  const Matrices a = MatricesOf(call.args[0]);
  const char mode = Letter(call, "mode"), uplo = Letter(call, "uplo");
  const Int n = a.rows, lda = a.leading();
  struct Sizes {
    Int work, rwork, iwork;
  };
  const auto decompose = [&](T* matrix, RealOf<T>* w, T* work, RealOf<T>* rwork, Int* iwork,
                             const Sizes& size, Int* info) {
    if constexpr (kIsComplex<T>) {
      Lapack<T>::syevd(&mode, &uplo, &n, matrix, &lda, w, work, &size.work, rwork, &size.rwork,
                       iwork, &size.iwork, info, 1, 1);
    } else {
      Lapack<T>::syevd(&mode, &uplo, &n, matrix, &lda, w, work, &size.work, iwork, &size.iwork,
                       info, 1, 1);
    }
  };
  Int info = 0, integers = 0;
  T size = 0;
  RealOf<T> reals = 0;
  decompose(nullptr, nullptr, &size, &reals, &integers, {kQuery, kQuery, kQuery}, &info);
  const Sizes sizes = {WorkSize(size), WorkSize(reals), integers + 1};
  std::vector<T> work(sizes.work);
  std::vector<RealOf<T>> rwork(kIsComplex<T> ? sizes.rwork : 0);
  std::vector<Int> iwork(sizes.iwork);
  for (int64_t i = 0; i < a.count; ++i) {
    decompose(call.rets[0].as<T>() + i * a.size(), call.rets[1].as<RealOf<T>>() + i * n,
              work.data(), rwork.data(), iwork.data(), sizes, &info);
    call.rets[2].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

template <typename T>
absl::Status Geev<T>::Check(const Call& call) {
  constexpr size_t kParts = kIsComplex<T> ? 1 : 2;  // of the eigenvalues
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, kParts + 3));
  FAIRWAY_RETURN_IF_ERROR(CheckSquare(call, 0, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "compute_left", "VN"));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "compute_right", "VN"));
  const Matrices a = MatricesOf(call.args[0]);
  for (size_t i = 0; i < kParts; ++i) {
    FAIRWAY_RETURN_IF_ERROR(CheckRet(call, i, kDTypeOf<T>, a, {a.rows}));
  }
  for (size_t i = kParts; i < kParts + 2; ++i) {
    FAIRWAY_RETURN_IF_ERROR(
        CheckRet(call, i, kDTypeOf<std::complex<RealOf<T>>>, a, {a.rows, a.cols}));
  }
  return CheckRet(call, kParts + 2, DType::kS32, a, {});
}

template <typename T>
void Geev<T>::Run(const Call& call) {
  using Complex = std::complex<RealOf<T>>;
  constexpr size_t kParts = kIsComplex<T> ? 1 : 2;
  const Matrices a = MatricesOf(call.args[0]);
  const char jobs[2] = {Letter(call, "compute_left"), Letter(call, "compute_right")};
  const Int n = a.rows, lda = a.leading();
  const Value* vectors = &call.rets[kParts];
  Poison(call);  // results that are not finite stay NaN
  for (int side = 0; side < 2; ++side) {
    if (jobs[side] == 'N') Clear<Complex>(vectors[side], a, a.size());
  }
  std::vector<T> packed[2];  // the eigenvectors in LAPACK's packing for real matrices
  if (!kIsComplex<T>) {
    for (auto& side : packed) side.resize(a.size() + 1);
  }
  std::vector<RealOf<T>> rwork(kIsComplex<T> ? 2 * n + 1 : 0);
  const auto decompose = [&](T* matrix, int64_t i, T* work, const Int* lwork, Int* info) {
    if constexpr (kIsComplex<T>) {
      Lapack<T>::geev(&jobs[0], &jobs[1], &n, matrix, &lda, call.rets[0].as<T>() + i * n,
                      vectors[0].as<T>() + i * a.size(), &lda, vectors[1].as<T>() + i * a.size(),
                      &lda, work, lwork, rwork.data(), info, 1, 1);
    } else {
      Lapack<T>::geev(&jobs[0], &jobs[1], &n, matrix, &lda, call.rets[0].as<T>() + i * n,
                      call.rets[1].as<T>() + i * n, packed[0].data(), &lda, packed[1].data(), &lda,
                      work, lwork, info, 1, 1);
    }
  };
  std::vector<T> matrix(a.size() + 1);
  Int info = 0;
  T size = 0;
  decompose(matrix.data(), 0, &size, &kQuery, &info);
  const Int lwork = std::max(WorkSize(size), 4 * n);
  std::vector<T> work(lwork);
  for (int64_t i = 0; i < a.count; ++i) {
    const T* from = call.args[0].as<T>() + i * a.size();
    int32_t& result = call.rets[kParts + 2].as<int32_t>()[i];
    result = kNotFinite;
    if (!AllFinite(from, a.size())) continue;
    std::copy_n(from, a.size(), matrix.data());
    decompose(matrix.data(), i, work.data(), &lwork, &info);
    result = static_cast<int32_t>(info);
    if constexpr (!kIsComplex<T>) {
      for (int side = 0; side < 2 && info == 0; ++side) {
        if (jobs[side] == 'N') continue;
        Unpack(n, call.rets[1].as<T>() + i * n, packed[side].data(),
               vectors[side].as<Complex>() + i * a.size());
      }
    }
  }
}

template <typename T>
absl::Status Gees<T>::Check(const Call& call) {
  constexpr size_t kParts = kIsComplex<T> ? 1 : 2;
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, kParts + 4));
  FAIRWAY_RETURN_IF_ERROR(CheckSquare(call, 0, kDTypeOf<T>));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "mode", "VN"));
  FAIRWAY_RETURN_IF_ERROR(CheckLetter(call, "sort", "N"));
  const Matrices a = MatricesOf(call.args[0]);
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 0, kDTypeOf<T>, a, {a.rows, a.cols}));
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, 1, kDTypeOf<T>, a, {a.rows, a.cols}));
  for (size_t i = 2; i < kParts + 2; ++i) {
    FAIRWAY_RETURN_IF_ERROR(CheckRet(call, i, kDTypeOf<T>, a, {a.rows}));
  }
  FAIRWAY_RETURN_IF_ERROR(CheckRet(call, kParts + 2, DType::kS32, a, {}));
  return CheckRet(call, kParts + 3, DType::kS32, a, {});
}

template <typename T>
void Gees<T>::Run(const Call& call) {
  constexpr size_t kParts = kIsComplex<T> ? 1 : 2;
  CopyAndPoisonTheRest(call);
  const Matrices a = MatricesOf(call.args[0]);
  const char mode = Letter(call, "mode"), sort = 'N';
  const Int n = a.rows, lda = a.leading();
  if (mode == 'N') Clear<T>(call.rets[1], a, a.size());
  std::vector<RealOf<T>> rwork(kIsComplex<T> ? n + 1 : 0);
  const auto decompose = [&](int64_t i, T* work, const Int* lwork, Int* selected, Int* info) {
    T* matrix = call.rets[0].as<T>() + i * a.size();
    T* vectors = call.rets[1].as<T>() + i * a.size();
    if constexpr (kIsComplex<T>) {
      Lapack<T>::gees(&mode, &sort, nullptr, &n, matrix, &lda, selected,
                      call.rets[2].as<T>() + i * n, vectors, &lda, work, lwork, rwork.data(),
                      nullptr, info, 1, 1);
    } else {
      Lapack<T>::gees(&mode, &sort, nullptr, &n, matrix, &lda, selected,
                      call.rets[2].as<T>() + i * n, call.rets[3].as<T>() + i * n, vectors, &lda,
                      work, lwork, nullptr, info, 1, 1);
    }
  };
  Int info = 0, selected = 0;
  T size = 0;
  decompose(0, &size, &kQuery, &selected, &info);
  const Int lwork = std::max(WorkSize(size), 3 * n);
  std::vector<T> work(lwork);
  for (int64_t i = 0; i < a.count; ++i) {
    selected = 0;
    info = kNotFinite;
    if (AllFinite(call.rets[0].as<T>() + i * a.size(), a.size())) {
      decompose(i, work.data(), &lwork, &selected, &info);
    }
    call.rets[kParts + 2].as<int32_t>()[i] = static_cast<int32_t>(selected);
    call.rets[kParts + 3].as<int32_t>()[i] = static_cast<int32_t>(info);
  }
}

#define FAIRWAY_FFI_INSTANTIATE(T) \
  template struct Gesdd<T>;        \
  template struct Gesvd<T>;        \
  template struct Syevd<T>;        \
  template struct Geev<T>;         \
  template struct Gees<T>

FAIRWAY_FFI_INSTANTIATE(float);
FAIRWAY_FFI_INSTANTIATE(double);
FAIRWAY_FFI_INSTANTIATE(C64);
FAIRWAY_FFI_INSTANTIATE(C128);
#undef FAIRWAY_FFI_INSTANTIATE

}  // namespace fairway::ffi
