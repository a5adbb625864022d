// SPDX-License-Identifier: Apache-2.0
// The computations behind JAX's linear algebra on CPU. `Check` looks at shapes, element types and
// attributes. `Run` may only be called on a call that has passed Check, on any thread. It fails
// only because of the data: then `info` is not 0 (JAX's lowering makes the results NaN), or the
// results are NaN. Run may throw std::bad_alloc.
#ifndef FAIRWAY_WORKER_FFI_KERNELS_H_
#define FAIRWAY_WORKER_FFI_KERNELS_H_

#include "worker/ffi/call.h"

namespace fairway::ffi {

#define FAIRWAY_FFI_KERNEL(name)                 \
  template <typename T>                          \
  struct name {                                  \
    static absl::Status Check(const Call& call); \
    static void Run(const Call& call);           \
  }

// lapack_solve.cc
FAIRWAY_FFI_KERNEL(Trsm);   // a, b -> x; side, uplo, trans_x, diag
FAIRWAY_FFI_KERNEL(Getrf);  // a -> lu, pivots, info
FAIRWAY_FFI_KERNEL(Potrf);  // a -> factor, info; uplo
FAIRWAY_FFI_KERNEL(Gtsv);   // dl, d, du, b -> dl, d, du, x, info

// lapack_orthogonal.cc
FAIRWAY_FFI_KERNEL(Geqrf);  // a -> qr, tau
FAIRWAY_FFI_KERNEL(Geqp3);  // a, pivots -> qr, pivots, tau
FAIRWAY_FFI_KERNEL(Orgqr);  // a, tau -> q
FAIRWAY_FFI_KERNEL(Ormqr);  // a, tau, c -> qc; left, transpose
FAIRWAY_FFI_KERNEL(Gehrd);  // a -> h, tau, info; low, high
FAIRWAY_FFI_KERNEL(Sytrd);  // a -> a, d, e, tau, info; uplo. Hermitian if complex, as is Syevd

// lapack_spectral.cc
FAIRWAY_FFI_KERNEL(Gesdd);  // a -> a, s, u, vt, info; mode
FAIRWAY_FFI_KERNEL(Gesvd);  // the same
FAIRWAY_FFI_KERNEL(Syevd);  // a -> v, w, info; mode, uplo
FAIRWAY_FFI_KERNEL(
    Geev);  // a -> w (real: its two parts), vl, vr, info; compute_left, compute_right
FAIRWAY_FFI_KERNEL(Gees);  // a -> t, vs, w (as above), selected, info; mode, sort

#undef FAIRWAY_FFI_KERNEL

// tridiagonal_perturbed.cc: dl, d, du, b -> x, of any of the four types. Pivots near 0 are moved
// away from 0, so that singular systems have finite solutions (like LAPACK's lagtf and lagts).
struct TridiagonalPerturbed {
  static absl::Status Check(const Call& call);
  static void Run(const Call& call);
};

// csr_dense.cc: values, row starts, columns, dense -> product. Indices are data: if one points
// outside the operands, every element becomes -1 or NaN.
struct CsrDense {
  static absl::Status Check(const Call& call);
  static void Run(const Call& call);
};

// dce_sink.cc: x -> nothing. Makes the program compute x (jax.lax.dce_sink).
struct DceSink {
  static absl::Status Check(const Call& call);
  static void Run(const Call& call);
};

// own_part.cc: x -> x on the devices that the attributes name, zeros on the others. Attribute
// "devices<k>" is a mask of the ordinals 64k to 64k+63. "slices<d>" cuts dimension d of x into that
// many slices; then device n keeps only slice number "slice<d>_<n>".
struct OwnPart {
  static absl::Status Check(const Call& call);
  static void Run(const Call& call);
};

// callback.cc: anything -> anything, by the client's function number "function" (host_calls.h).
// Skips tokens on both sides.
struct Callback {
  static absl::Status Check(const Call& call);
  static void Run(const Call& call);
};

// callback.cc: the condition of loop number "loop" -> the same condition until a callback of the
// launch has failed, then false (CallingLaunch::GoesOn).
struct GoOn {
  static absl::Status Check(const Call& call);
  static void Run(const Call& call);
};

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_KERNELS_H_
