// SPDX-License-Identifier: Apache-2.0
// The bytes of a box of a shard, to be sent.
#ifndef FAIRWAY_WORKER_EXECUTOR_CUT_OUT_H_
#define FAIRWAY_WORKER_EXECUTOR_CUT_OUT_H_

#include "base/status.h"
#include "core/box.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// The box alone, dense. A view of the shard's own bytes, which it keeps alive, where they lie
// together there; else a copy. The box has passed CheckBox. Any thread.
// INTERNAL: the shard has not as many bytes as the box's array; RESOURCE_EXHAUSTED: no host memory.
absl::StatusOr<HostView> CutOut(const Box& box, const HostView& shard);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_CUT_OUT_H_
