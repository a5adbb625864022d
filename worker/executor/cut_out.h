// SPDX-License-Identifier: Apache-2.0
// Cuts the bytes of a box out of a shard, to send them.
#ifndef FAIRWAY_WORKER_EXECUTOR_CUT_OUT_H_
#define FAIRWAY_WORKER_EXECUTOR_CUT_OUT_H_

#include "base/status.h"
#include "core/box.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// Returns the box alone, dense. If its bytes lie together in the shard, it is a view that keeps the
// shard alive; else a copy. The box has passed CheckBox. Any thread. INTERNAL: the shard is not as
// large as the box's array; RESOURCE_EXHAUSTED: no host memory.
absl::StatusOr<HostView> CutOut(const Box& box, const HostView& shard);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_CUT_OUT_H_
