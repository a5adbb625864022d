// SPDX-License-Identifier: Apache-2.0
// The Fortran routines of LAPACK and BLAS with 64-bit integers (OpenBLAS, "ILP64"), so that no
// extent and no workspace overflows. The hidden lengths of character arguments come last, as in
// gfortran.
#ifndef FAIRWAY_WORKER_FFI_LAPACK_H_
#define FAIRWAY_WORKER_FFI_LAPACK_H_

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "worker/ffi/call.h"

namespace fairway::ffi {

using Int = int64_t;
inline constexpr Int kQuery = -1;  // a workspace of this size asks how large it should be
using C64 = std::complex<float>;
using C128 = std::complex<double>;

extern "C" {

// T: element type; p: its letter.
#define FAIRWAY_LAPACK_COMMON(T, p, gqr, mqr, trd)                                              \
  void p##trsm_(const char* side, const char* uplo, const char* trans, const char* diag,        \
                const Int* m, const Int* n, const T* alpha, const T* a, const Int* lda, T* b,   \
                const Int* ldb, size_t, size_t, size_t, size_t);                                \
  void p##getrf_(const Int* m, const Int* n, T* a, const Int* lda, Int* ipiv, Int* info);       \
  void p##potrf_(const char* uplo, const Int* n, T* a, const Int* lda, Int* info, size_t);      \
  void p##gtsv_(const Int* n, const Int* nrhs, T* dl, T* d, T* du, T* b, const Int* ldb,        \
                Int* info);                                                                     \
  void p##geqrf_(const Int* m, const Int* n, T* a, const Int* lda, T* tau, T* work,             \
                 const Int* lwork, Int* info);                                                  \
  void p##gqr##_(const Int* m, const Int* n, const Int* k, T* a, const Int* lda, const T* tau,  \
                 T* work, const Int* lwork, Int* info);                                         \
  void p##mqr##_(const char* side, const char* trans, const Int* m, const Int* n, const Int* k, \
                 T* a, const Int* lda, const T* tau, T* c, const Int* ldc, T* work,             \
                 const Int* lwork, Int* info, size_t, size_t);                                  \
  void p##gehrd_(const Int* n, const Int* low, const Int* high, T* a, const Int* lda, T* tau,   \
                 T* work, const Int* lwork, Int* info);                                         \
  void p##trd##_(const char* uplo, const Int* n, T* a, const Int* lda, TypeTraits<T>::Real* d,  \
                 TypeTraits<T>::Real* e, T* tau, T* work, const Int* lwork, Int* info, size_t);

#define FAIRWAY_LAPACK_REAL(T, p)                                                                 \
  FAIRWAY_LAPACK_COMMON(T, p, orgqr, ormqr, sytrd)                                                \
  void p##geqp3_(const Int* m, const Int* n, T* a, const Int* lda, Int* jpvt, T* tau, T* work,    \
                 const Int* lwork, Int* info);                                                    \
  void p##gesdd_(const char* job, const Int* m, const Int* n, T* a, const Int* lda, T* s, T* u,   \
                 const Int* ldu, T* vt, const Int* ldvt, T* work, const Int* lwork, Int* iwork,   \
                 Int* info, size_t);                                                              \
  void p##gesvd_(const char* jobu, const char* jobvt, const Int* m, const Int* n, T* a,           \
                 const Int* lda, T* s, T* u, const Int* ldu, T* vt, const Int* ldvt, T* work,     \
                 const Int* lwork, Int* info, size_t, size_t);                                    \
  void p##syevd_(const char* job, const char* uplo, const Int* n, T* a, const Int* lda, T* w,     \
                 T* work, const Int* lwork, Int* iwork, const Int* liwork, Int* info, size_t,     \
                 size_t);                                                                         \
  void p##geev_(const char* jobvl, const char* jobvr, const Int* n, T* a, const Int* lda, T* wr,  \
                T* wi, T* vl, const Int* ldvl, T* vr, const Int* ldvr, T* work, const Int* lwork, \
                Int* info, size_t, size_t);                                                       \
  void p##gees_(const char* jobvs, const char* sort, void* select, const Int* n, T* a,            \
                const Int* lda, Int* sdim, T* wr, T* wi, T* vs, const Int* ldvs, T* work,         \
                const Int* lwork, void* bwork, Int* info, size_t, size_t);

#define FAIRWAY_LAPACK_COMPLEX(T, p)                                                            \
  FAIRWAY_LAPACK_COMMON(T, p, ungqr, unmqr, hetrd)                                              \
  void p##geqp3_(const Int* m, const Int* n, T* a, const Int* lda, Int* jpvt, T* tau, T* work,  \
                 const Int* lwork, TypeTraits<T>::Real* rwork, Int* info);                      \
  void p##gesdd_(const char* job, const Int* m, const Int* n, T* a, const Int* lda,             \
                 TypeTraits<T>::Real* s, T* u, const Int* ldu, T* vt, const Int* ldvt, T* work, \
                 const Int* lwork, TypeTraits<T>::Real* rwork, Int* iwork, Int* info, size_t);  \
  void p##gesvd_(const char* jobu, const char* jobvt, const Int* m, const Int* n, T* a,         \
                 const Int* lda, TypeTraits<T>::Real* s, T* u, const Int* ldu, T* vt,           \
                 const Int* ldvt, T* work, const Int* lwork, TypeTraits<T>::Real* rwork,        \
                 Int* info, size_t, size_t);                                                    \
  void p##heevd_(const char* job, const char* uplo, const Int* n, T* a, const Int* lda,         \
                 TypeTraits<T>::Real* w, T* work, const Int* lwork, TypeTraits<T>::Real* rwork, \
                 const Int* lrwork, Int* iwork, const Int* liwork, Int* info, size_t, size_t);  \
  void p##geev_(const char* jobvl, const char* jobvr, const Int* n, T* a, const Int* lda, T* w, \
                T* vl, const Int* ldvl, T* vr, const Int* ldvr, T* work, const Int* lwork,      \
                TypeTraits<T>::Real* rwork, Int* info, size_t, size_t);                         \
  void p##gees_(const char* jobvs, const char* sort, void* select, const Int* n, T* a,          \
                const Int* lda, Int* sdim, T* w, T* vs, const Int* ldvs, T* work,               \
                const Int* lwork, TypeTraits<T>::Real* rwork, void* bwork, Int* info, size_t,   \
                size_t);

FAIRWAY_LAPACK_REAL(float, s)
FAIRWAY_LAPACK_REAL(double, d)
FAIRWAY_LAPACK_COMPLEX(C64, c)
FAIRWAY_LAPACK_COMPLEX(C128, z)

#undef FAIRWAY_LAPACK_COMMON
#undef FAIRWAY_LAPACK_REAL
#undef FAIRWAY_LAPACK_COMPLEX

void openblas_set_num_threads(int threads);

}  // extern "C"

// The routines of one element type under common names.
template <typename T>
struct Lapack;

#define FAIRWAY_LAPACK_TYPE(T, p, gqr, mqr, trd, evd) \
  template <>                                         \
  struct Lapack<T> {                                  \
    static constexpr auto trsm = &p##trsm_;           \
    static constexpr auto getrf = &p##getrf_;         \
    static constexpr auto potrf = &p##potrf_;         \
    static constexpr auto gtsv = &p##gtsv_;           \
    static constexpr auto geqrf = &p##geqrf_;         \
    static constexpr auto geqp3 = &p##geqp3_;         \
    static constexpr auto orgqr = &p##gqr##_;         \
    static constexpr auto ormqr = &p##mqr##_;         \
    static constexpr auto gehrd = &p##gehrd_;         \
    static constexpr auto sytrd = &p##trd##_;         \
    static constexpr auto gesdd = &p##gesdd_;         \
    static constexpr auto gesvd = &p##gesvd_;         \
    static constexpr auto syevd = &p##evd##_;         \
    static constexpr auto geev = &p##geev_;           \
    static constexpr auto gees = &p##gees_;           \
  }

FAIRWAY_LAPACK_TYPE(float, s, orgqr, ormqr, sytrd, syevd);
FAIRWAY_LAPACK_TYPE(double, d, orgqr, ormqr, sytrd, syevd);
FAIRWAY_LAPACK_TYPE(C64, c, ungqr, unmqr, hetrd, heevd);
FAIRWAY_LAPACK_TYPE(C128, z, ungqr, unmqr, hetrd, heevd);

#undef FAIRWAY_LAPACK_TYPE

// Converts the answer of a workspace query to a size. A float rounds large sizes, perhaps down.
template <typename T>
Int WorkSize(T answer) {
  const RealOf<T> size = std::real(answer);
  return 1 + static_cast<Int>(std::ceil(size + size * std::numeric_limits<RealOf<T>>::epsilon()));
}

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_LAPACK_H_
