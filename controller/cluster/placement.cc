// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/placement.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "controller/cluster/virtual_device.h"

namespace fairway {

absl::StatusOr<std::vector<IslandShards>> SplitByIsland(const Session& session,
                                                        const std::vector<int32_t>& devices) {
  std::vector<IslandShards> out;
  for (size_t i = 0; i < devices.size(); ++i) {
    const int32_t id = devices[i];
    if (id < 0 || static_cast<size_t>(id) >= session.devices.size())
      return InvalidArgument("there is no device {}: this session has devices 0 to {}", id,
                             session.devices.size() - 1);
    const IslandId island = session.devices[id].island_id;
    auto it = std::find_if(out.begin(), out.end(),
                           [&](const IslandShards& s) { return s.island == island; });
    if (it == out.end()) it = out.insert(out.end(), IslandShards{island, {}});
    it->positions.push_back(static_cast<int32_t>(i));
  }
  return out;
}

// The memory kind in the groups' terms: empty for the default.
absl::StatusOr<std::string> MemoryKind(const VirtualDevice& device, const std::string& asked) {
  if (asked.empty() || device.memory_kinds.empty() || asked == device.memory_kinds[0])
    return std::string();
  if (std::find(device.memory_kinds.begin(), device.memory_kinds.end(), asked) ==
      device.memory_kinds.end())
    return InvalidArgument("device {} has no memory of kind \"{}\"; it has: {}", device.id, asked,
                           fmt::join(device.memory_kinds, ", "));
  return asked;
}

}  // namespace fairway
