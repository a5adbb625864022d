// SPDX-License-Identifier: Apache-2.0
// How the shards of some arrays make up other arrays. A pure value. Follows IFRT's RemapPlan
// (xla/python/ifrt/remap_plan.h).
#ifndef FAIRWAY_CORE_REMAP_H_
#define FAIRWAY_CORE_REMAP_H_

#include <cstdint>
#include <vector>

#include "core/sharding.h"

namespace fairway {

struct RemapPlan {
  // Shard `shard` of inputs[array].
  struct From {
    int32_t array = 0;
    int32_t shard = 0;
    friend bool operator==(const From&, const From&) = default;
  };
  std::vector<ArraySpec> inputs;
  std::vector<ArraySpec> outputs;
  // [output][shard]: the shard that it is. No shard of an input is listed twice.
  std::vector<std::vector<From>> shards;
};

}  // namespace fairway

#endif  // FAIRWAY_CORE_REMAP_H_
