// SPDX-License-Identifier: Apache-2.0
// The shards of groups, as commands and reports name them. Plain values.
#ifndef FAIRWAY_GRAPH_SHARDS_H_
#define FAIRWAY_GRAPH_SHARDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "base/ids.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace fairway {

// One shard buffer: shard `shard` of group `group`.
struct ShardRef {
  GroupId group;
  int32_t shard = 0;
  friend bool operator==(const ShardRef&, const ShardRef&) = default;
  friend auto operator<=>(const ShardRef&, const ShardRef&) = default;
};

// The arguments of a launch on one device. Most have one or two.
using ShardRefs = absl::InlinedVector<ShardRef, 2>;

// A shard that an executor makes or receives.
struct LocalShard {
  int32_t shard = 0;   // its index in the group
  int32_t device = 0;  // local ordinal
  Shape shape;
};

// The shards of one group that lie on one executor.
struct GroupPart {
  GroupId group;
  DType dtype = DType::kInvalid;
  std::string memory_kind;  // empty: default
  std::vector<LocalShard> shards;
};

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_SHARDS_H_
