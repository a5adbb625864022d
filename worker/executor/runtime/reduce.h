// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_REDUCE_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_REDUCE_H_

#include <cstdint>
#include <memory>

#include <absl/functional/function_ref.h>

#include "base/blob.h"
#include "base/status.h"
#include "worker/executor/runtime/exchange.h"

namespace fairway {

// Combines the blocks of all members of an exchange, at most Exchange::kMaxPushBytes each, and
// returns the same bytes to all (docs/design/0063-push-exchange.md). Every member calls it with the
// same `launch` and `round` and a block of the same size. `combine(into, more)` combines two blocks
// of that size, so that the result is in `into`; in the order of hosts, `into` is of lower members
// than `more`. It may be a small `own` that nobody else holds. RESOURCE_EXHAUSTED: no memory; else
// Exchange's errors.
absl::StatusOr<std::shared_ptr<Blob>> ReducePushed(
    Exchange& exchange, uint64_t launch, uint32_t round, std::shared_ptr<Blob> own,
    absl::FunctionRef<void(char* into, const char* more)> combine);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_REDUCE_H_
