// SPDX-License-Identifier: Apache-2.0
// Converts IFRT's RemapPlanProto to a core RemapPlan.
#ifndef FAIRWAY_WIRE_IFRT_REMAP_H_
#define FAIRWAY_WIRE_IFRT_REMAP_H_

#include "base/status.h"
#include "core/remap.h"
#include "ifrt/ifrt.pb.h"

namespace fairway {

// Reads both forms: intervals of shards (`mappings`, which all present clients use), and lists of
// devices (`input_devices_for_output`), whose shards lie on the same devices on both sides.
//
// INVALID_ARGUMENT: no input; an index out of range; an interval that does not ascend; two sides of
// unequal length; a shard of an input used twice; a shard of an output given twice or not at all;
// different element types on the two sides.
absl::StatusOr<RemapPlan> RemapPlanFromProto(const xla::ifrt::RemapPlanProto& proto);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_IFRT_REMAP_H_
