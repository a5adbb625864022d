// SPDX-License-Identifier: Apache-2.0
// Islands that never come back are forgotten, with their executors and devices. Ids of islands and
// executors are not used again; numbers of devices are, once nothing knows the island any more.
#include <algorithm>

#include "controller/cluster/fleet.h"
#include "controller/cluster/state.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {

DeviceId Cluster::State::NewDevices(uint32_t count) {
  if (const auto free = free_devices.find(count); free != free_devices.end())
    return DeviceId(free_devices.extract(free).mapped());
  const DeviceId first(next_device);
  next_device += count;
  device_owner.resize(next_device);
  return first;
}

bool Cluster::State::Needed(const Island& island) const {
  if (island.sessions > 0 || island.telling > 0) return true;
  // Of sessions that have ended: what was launched runs to its end.
  for (const auto& [session, has] : holdings) {
    const auto stake = has.stakes.find(island.id);
    if (stake == has.stakes.end()) continue;
    if (stake->second.groups != nullptr || stake->second.nodes > 0) return true;
  }
  return std::ranges::any_of(executables,
                             [&](const auto& entry) { return entry.second.island == island.id; });
}

bool Cluster::Fleet::ForgetIsland(IslandId id, const absl::Status& cause) {
  const Operation operation(*state_);
  State& s = *state_;
  const auto it = s.islands.find(id);
  if (it == s.islands.end()) return true;
  Island& island = it->second;
  if (std::ranges::any_of(island.executors,
                          [&](ExecutorId executor) { return s.executors.at(executor).up; }))
    return false;
  if (!island.forgotten) {
    island.forgotten = true;
    island.gone = Error(absl::StatusCode::kUnavailable, "island {}: {}", island.name, Text(cause));
    s.BeginLoss(island, nullptr, island.gone);
    s.Settle();
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
    s.with_frees.erase(executor_id);
    s.executors.erase(executor_id);
  }
  s.admission.Forget(id);
  s.to_pump.erase(id);
  s.islands.erase(it);
  return true;
}

absl::Status Cluster::State::CheckIslands() const {
  size_t listed = 0;
  std::map<IslandId, size_t> known;
  const auto count = [&](const Session& session) {
    int32_t slice = -1;
    for (const VirtualDevice& device : session.devices) {
      if (std::exchange(slice, device.slice_index) != device.slice_index) ++known[device.island_id];
    }
  };
  for (const auto& [id, session] : sessions) count(session);
  for (const auto& [id, list] : work) {
    if (list.closing != nullptr) count(list.closing->session);
  }
  for (const auto& [id, island] : islands) {
    listed += island.executors.size();
    if (island.sessions != known[id])
      return Error(absl::StatusCode::kInternal, "island {} counts {} sessions, but has {}", id,
                   island.sessions, known[id]);
  }
  if (listed != executors.size() || known.size() > islands.size())
    return Error(absl::StatusCode::kInternal,
                 "{} executors of islands are listed, but there are {}; sessions know {} islands "
                 "of {}",
                 listed, executors.size(), known.size(), islands.size());
  size_t devices = 1;  // the first number is nobody's
  for (const auto& [count, first] : free_devices) devices += count;
  for (const auto& [id, executor] : executors) {
    devices += executor.spec.num_devices;
    for (int i = 0; i < executor.spec.num_devices; ++i) {
      if (device_owner[executor.first_device.value + i] != &executor)
        return Error(absl::StatusCode::kInternal, "device {} is not executor {}'s",
                     executor.first_device.value + i, id);
    }
  }
  if (devices == next_device && devices == device_owner.size()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "{} devices are known or free, of {}", devices,
               next_device);
}

}  // namespace fairway
