// SPDX-License-Identifier: Apache-2.0
// The native kernels: arithmetic on the bytes of shards. They trust their caller, because
// NativeProgram::Make has checked the types.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_KERNELS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_KERNELS_H_

#include <chrono>
#include <cstdint>

#include "core/dtype.h"

namespace fairway::kernels {

// out[i] += in[i] for `bytes` bytes of `dtype`. Integers wrap around.
void AddInto(DType dtype, char* out, const char* in, int64_t bytes);
// out[i] = in[i] * factor; `out` may be `in`.
void Scale(DType dtype, char* out, const char* in, double factor, int64_t bytes);
// out[m,n] = a[m,k] b[k,n], dense and row-major, f32 or f64. Computes on the calling thread.
void Matmul(DType dtype, char* out, const char* a, const char* b, int64_t m, int64_t k, int64_t n);
// Computes until `time` has passed.
void BusyWait(std::chrono::nanoseconds time);

}  // namespace fairway::kernels

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_KERNELS_H_
