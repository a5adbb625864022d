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

// Up to this size the partial sums are pushed (docs/design/0063-push-exchange.md). Above it each
// member sums one slice, in the order of the members, and all take the sums of the slices; of two
// members each takes the partial sum of the other. Not tuned.
inline constexpr int64_t kPushAllReduceBytes = Exchange::kMaxPushBytes;

// Returns the sum of the members' `partial`. All get the same bits. RESOURCE_EXHAUSTED: no memory;
// else the errors of Exchange::Take.
absl::StatusOr<std::shared_ptr<Blob>> AllReduceOver(Exchange& exchange, uint64_t launch,
                                                    uint32_t round, DType dtype,
                                                    std::shared_ptr<Blob> partial,
                                                    int64_t push_bytes = kPushAllReduceBytes);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_ALL_REDUCE_H_
