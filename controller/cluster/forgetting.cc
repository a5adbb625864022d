// SPDX-License-Identifier: Apache-2.0
// Forgets islands that never come back, with their executors and devices. Ids of islands and
// executors are not used again; numbers of devices are, once nothing knows the island any more.
#include <algorithm>

#include "controller/cluster/fleet.h"
#include "controller/cluster/state.h"

namespace fairway {

bool Cluster::Fleet::ForgetIsland(IslandId id, const absl::Status& cause) {
  const Operation operation(*state_);
  State& s = *state_;
  const auto it = s.islands.find(id);
  if (it == s.islands.end()) return true;
  Island& island = it->second;
  if (island.up > 0) return false;
  if (!island.forgotten) {
    island.forgotten = true;
    s.island_by_name.erase(island.name);
    for (const ExecutorId executor : island.executors)
      s.executor_of_worker.erase(s.executors.at(executor).spec.worker);
    island.gone = Error(absl::StatusCode::kUnavailable, "island {}: {}", island.name, Text(cause));
    s.losses.BeginLoss(island, nullptr, island.gone);
    s.work.GoOn();
  }
  if (s.Needed(island)) return false;
  for (const ExecutorId executor_id : island.executors) {
    const Executor& executor = s.executors.at(executor_id);
    const uint32_t first = executor.first_device.value;
    const auto count = static_cast<uint32_t>(executor.spec.num_devices);
    for (uint32_t device = first; device < first + count; ++device) {
      s.device_owner[device] = nullptr;
      s.admission.ForgetDevice(DeviceId(device));
    }
    s.free_devices.emplace(count, first);
    s.commands.Forget(executor_id);
    s.executors.erase(executor_id);
  }
  s.admission.Forget(id);
  s.to_pump.erase(id);
  s.islands.erase(it);
  return true;
}

}  // namespace fairway
