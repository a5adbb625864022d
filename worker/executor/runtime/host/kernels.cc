// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/host/kernels.h"

#include <algorithm>
#include <type_traits>

extern "C" {
// BLAS with 64-bit integers (cmake/FairwayFfi.cmake), column-major.
void sgemm_(const char*, const char*, const int64_t*, const int64_t*, const int64_t*, const float*,
            const float*, const int64_t*, const float*, const int64_t*, const float*, float*,
            const int64_t*);
void dgemm_(const char*, const char*, const int64_t*, const int64_t*, const int64_t*, const double*,
            const double*, const int64_t*, const double*, const int64_t*, const double*, double*,
            const int64_t*);
}

namespace fairway::kernels {
namespace {

// Calls `work` with a value of the C++ type of `dtype`. Integer types are unsigned, so that they
// wrap.
template <typename Work>
void OfType(DType dtype, Work work) {
  switch (dtype) {
    case DType::kF32:
      return work(float{});
    case DType::kF64:
      return work(double{});
    case DType::kS32:
      return work(uint32_t{});
    case DType::kS64:
      return work(uint64_t{});
    default:
      return;
  }
}

}  // namespace

void AddInto(DType dtype, char* out, const char* in, int64_t bytes) {
  OfType(dtype, [&](auto type) {
    using T = decltype(type);
    T* sum = reinterpret_cast<T*>(out);
    const T* more = reinterpret_cast<const T*>(in);
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(T)); ++i) sum[i] += more[i];
  });
}

void Scale(DType dtype, char* out, const char* in, double factor, int64_t bytes) {
  OfType(dtype, [&](auto type) {
    using T = decltype(type);
    T by;
    if constexpr (std::is_integral_v<T>) {
      by = static_cast<T>(static_cast<int64_t>(factor));
    } else {
      by = static_cast<T>(factor);
    }
    T* product = reinterpret_cast<T*>(out);
    const T* from = reinterpret_cast<const T*>(in);
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(T)); ++i) product[i] = from[i] * by;
  });
}

void Matmul(DType dtype, char* out, const char* a, const char* b, int64_t m, int64_t k, int64_t n) {
  if (m == 0 || n == 0) return;
  if (k == 0) return static_cast<void>(std::fill_n(out, m * n * BytesPerElement(dtype), '\0'));
  // Row-major a b is column-major b' a'.
  OfType(dtype, [&](auto type) {
    using T = decltype(type);
    const T one = 1, zero = 0;
    const T* left = reinterpret_cast<const T*>(b);
    const T* right = reinterpret_cast<const T*>(a);
    T* product = reinterpret_cast<T*>(out);
    if constexpr (std::is_same_v<T, float>) {
      sgemm_("N", "N", &n, &m, &k, &one, left, &n, right, &k, &zero, product, &n);
    } else if constexpr (std::is_same_v<T, double>) {
      dgemm_("N", "N", &n, &m, &k, &one, left, &n, right, &k, &zero, product, &n);
    }
  });
}

void BusyWait(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace fairway::kernels
