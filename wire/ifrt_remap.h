// SPDX-License-Identifier: Apache-2.0
// IFRT's RemapPlanProto -> core RemapPlan.
#ifndef FAIRWAY_WIRE_IFRT_REMAP_H_
#define FAIRWAY_WIRE_IFRT_REMAP_H_

#include "base/status.h"
#include "core/remap.h"
#include "ifrt/ifrt.pb.h"

namespace fairway {

// Reads both forms: intervals of shards (`mappings`, all clients of today), and lists of devices
// (`input_devices_for_output`), whose shards lie on the same devices on both sides.
//
// INVALID_ARGUMENT: no input, an index out of range, an interval that does not go up, two sides of
// unequal length, a shard of an input used twice, one of an output given twice or not at all, or
// another element type on one side than on the other.
absl::StatusOr<RemapPlan> RemapPlanFromProto(const xla::ifrt::RemapPlanProto& proto);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_IFRT_REMAP_H_
