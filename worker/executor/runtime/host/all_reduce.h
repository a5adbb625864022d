// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_ALL_REDUCE_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_ALL_REDUCE_H_

#include <cstdint>
#include <memory>

#include "base/blob.h"
#include "base/status.h"
#include "core/dtype.h"
#include "worker/executor/runtime/exchange.h"

namespace fairway {

// Up to this size every member takes the partial sums of all others. Above it each member sums one
// slice, and all take the sums of the slices. Not tuned (docs/design/0042).
inline constexpr int64_t kDirectAllReduceBytes = 64 << 10;

// Returns the sum of the members' `partial`, added in the order of the members, so that all get the
// same bits. RESOURCE_EXHAUSTED: no memory; else the errors of Exchange::Take.
absl::StatusOr<std::shared_ptr<Blob>> AllReduceOver(Exchange& exchange, uint64_t launch,
                                                    uint32_t round, DType dtype,
                                                    std::shared_ptr<Blob> partial,
                                                    int64_t direct_bytes = kDirectAllReduceBytes);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_ALL_REDUCE_H_
