// SPDX-License-Identifier: Apache-2.0
// Where a session's virtual devices lie. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_PLACEMENT_H_
#define FAIRWAY_CONTROLLER_CLUSTER_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "controller/cluster/state.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {

// The shards of an array that become one group, because they lie on one island.
struct IslandShards {
  IslandId island;
  std::vector<int32_t> positions;  // in the sharding's device list
};

// INVALID_ARGUMENT: the session has no such device.
absl::StatusOr<std::vector<IslandShards>> SplitByIsland(const Session& session,
                                                        const std::vector<int32_t>& devices);

// The memory kind in the groups' terms: empty for the default. INVALID_ARGUMENT: the device has no
// memory of that kind.
absl::StatusOr<std::string> MemoryKind(const VirtualDevice& device, const std::string& asked);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PLACEMENT_H_
