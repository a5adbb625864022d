// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "worker/ffi/kernels.h"

namespace fairway::ffi {
namespace {

// One system of order n >= 1. U has three diagonals; L is applied to the right sides at once.
template <typename T>
class System {
 public:
  using Real = RealOf<T>;

  System(int64_t n, int64_t columns) : n_(n), columns_(columns), u_(3 * n) {}

  void Solve(const T* dl, const T* d, const T* du, const T* b, T* x) {
    if (x != b) std::copy_n(b, n_ * columns_, x);
    Factor(dl, d, du, x);
    // Looks at all rows of U but the last but one, like jaxlib, so that singular systems get
    // jaxlib's solutions.
    Real largest = std::max(std::abs(d[0]), n_ > 1 ? std::abs(du[0]) : Real(0));
    for (int64_t k = 0; k + 2 < n_; ++k) {
      for (int diagonal : {0, 1, 2}) largest = std::max(largest, std::abs(u(k, diagonal)));
    }
    largest = std::max(largest, std::abs(u(n_ - 1, 0)));
    const Real step = std::numeric_limits<Real>::epsilon() * largest;
    for (int64_t k = n_ - 1; k >= 0; --k) SolveRow(k, step, x);
  }

 private:
  T& u(int64_t row, int diagonal) { return u_[3 * row + diagonal]; }

  // Eliminates with row pivoting: of two rows, the one that is larger relative to its own size
  // leads.
  void Factor(const T* dl, const T* d, const T* du, T* x) {
    std::fill(u_.begin(), u_.end(), T(0));
    u(0, 0) = d[0];
    if (n_ > 1) u(0, 1) = du[0];
    Real scale = std::abs(u(0, 0)) + std::abs(u(0, 1));
    for (int64_t k = 0; k + 1 < n_; ++k) {
      const T below = dl[k + 1];
      const T beyond = k + 2 < n_ ? du[k + 1] : T(0);
      const Real next_scale = std::abs(below) + std::abs(d[k + 1]) + std::abs(beyond);
      const Real lead = u(k, 0) == T(0) ? 0 : std::abs(u(k, 0)) / scale;
      if (below == T(0) || std::abs(below) / next_scale <= lead) {
        const T factor = below == T(0) ? T(0) : below / u(k, 0);
        u(k + 1, 0) = d[k + 1] - factor * u(k, 1);
        u(k + 1, 1) = beyond;
        if (below != T(0)) {
          for (int64_t c = 0; c < columns_; ++c) x[c * n_ + k + 1] -= factor * x[c * n_ + k];
        }
        scale = next_scale;
        continue;
      }
      const T factor = u(k, 0) / below;
      const T right = u(k, 1);
      u(k, 0) = below;
      u(k, 1) = d[k + 1];
      u(k, 2) = beyond;
      u(k + 1, 0) = right - factor * d[k + 1];
      u(k + 1, 1) = -factor * beyond;
      for (int64_t c = 0; c < columns_; ++c) {
        T* column = x + c * n_ + k;
        const T upper = column[0];
        column[0] = column[1];
        column[1] = upper - factor * column[1];
      }
      scale = std::abs(u(k + 1, 0)) + std::abs(u(k + 1, 1));
    }
  }

  void SolveRow(int64_t k, Real step, T* x) {
    for (int64_t c = 0; c < columns_; ++c) {
      T* column = x + c * n_;
      if (k + 1 < n_) column[k] -= u(k, 1) * column[k + 1];
      if (k + 2 < n_) column[k] -= u(k, 2) * column[k + 2];
    }
    const T inverse = T(1) / SafePivot(k, step, x);
    for (int64_t c = 0; c < columns_; ++c) x[c * n_ + k] *= inverse;
  }

  // Returns the pivot of row k, moved until neither its inverse nor the row divided by it
  // overflows. Tiny pivots under tiny right sides are scaled with the row instead.
  T SafePivot(int64_t k, Real step, T* x) {
    constexpr Real kSmallest = std::numeric_limits<Real>::min();
    constexpr Real kLargest = 1 / kSmallest;
    T pivot = u(k, 0);
    Real size = std::abs(pivot);
    if (!(size < 1)) return pivot;
    Real row = 0;
    for (int64_t c = 0; c < columns_; ++c) row = std::max(row, std::abs(x[c * n_ + k]));
    Real move = std::copysign(std::max(step, kSmallest), std::real(pivot));
    while (size < 1) {
      if (size < kSmallest && size != 0 && row * kSmallest <= size) {
        for (int64_t c = 0; c < columns_; ++c) x[c * n_ + k] *= kLargest;
        return pivot * kLargest;
      }
      if (size >= kSmallest && row <= size * kLargest) return pivot;
      pivot += move;
      move *= 2;
      size = std::abs(pivot);
    }
    return pivot;
  }

  const int64_t n_, columns_;
  std::vector<T> u_;
};

template <typename T>
void SolveAll(const Call& call) {
  const Matrices b = MatricesOf(call.args[3]);
  if (b.rows == 0) return;
  System<T> system(b.rows, b.cols);
  for (int64_t i = 0; i < b.count; ++i) {
    system.Solve(call.args[0].as<T>() + i * b.rows, call.args[1].as<T>() + i * b.rows,
                 call.args[2].as<T>() + i * b.rows, call.args[3].as<T>() + i * b.size(),
                 call.rets[0].as<T>() + i * b.size());
  }
}

}  // namespace

absl::Status TridiagonalPerturbed::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 4, 1));
  const DType dtype = call.args[3].dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64 && dtype != DType::kC64 &&
      dtype != DType::kC128) {
    return InvalidArgument("operand 3 is of {}, expected f32, f64, c64 or c128", Name(dtype));
  }
  FAIRWAY_RETURN_IF_ERROR(CheckMatrices(call, 3, dtype));
  const Matrices b = MatricesOf(call.args[3]);
  for (size_t i = 0; i < 3; ++i) FAIRWAY_RETURN_IF_ERROR(CheckArg(call, i, dtype, b, {b.rows}));
  return CheckRet(call, 0, dtype, b, {b.rows, b.cols});
}

void TridiagonalPerturbed::Run(const Call& call) {
  switch (call.args[3].dtype) {
    case DType::kF32:
      return SolveAll<float>(call);
    case DType::kF64:
      return SolveAll<double>(call);
    case DType::kC64:
      return SolveAll<std::complex<float>>(call);
    default:
      return SolveAll<std::complex<double>>(call);
  }
}

}  // namespace fairway::ffi
