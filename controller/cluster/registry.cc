// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/registry.h"

#include <algorithm>
#include <utility>

#include "base/time_text.h"

namespace fairway {

bool Registry::IslandUp(const Island& island) const {
  const auto wanted = executors.at(island.executors[0]).spec.island_workers;
  return island.executors.size() == static_cast<size_t>(wanted) &&
         island.up == island.executors.size();
}

const Cordon* Registry::CordonOf(const Island& island) const {
  if (cordons.empty() || island.forgotten) return nullptr;
  const auto it = cordons.find(island.name);
  return it == cordons.end() ? nullptr : &it->second;
}

absl::Status Registry::Drained(const Island& island) const {
  const Cordon* const cordon = CordonOf(island);
  if (cordon == nullptr || !cordon->drained || Planted(Bug::kDrainedTakesWork))
    return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable,
               "island {} is drained: {} cordoned it on {}, and nobody had anything there. Open a "
               "new session, which gets other islands, or ask an operator for `fairway uncordon "
               "{}`",
               island.name, cordon->by, TimeText(cordon->since), island.name);
}

absl::Status Registry::TakesWork(const Island& island) const {
  return island.forgotten ? island.gone : Drained(island);
}

void Registry::UpdateOpen(const Island& island) {
  if (island.forgotten) return;  // it went down before, and its name may be another one's
  open_islands.erase(island.name);
  closed_islands.erase(island.name);
  if (!IslandUp(island)) return;
  const bool open = CordonOf(island) == nullptr || Planted(Bug::kShowCordoned);
  (open ? open_islands : closed_islands).emplace(island.name, island.id);
}

absl::Status Registry::AnyOpen() const {
  if (!open_islands.empty()) return absl::OkStatus();
  if (closed_islands.empty())
    return Error(absl::StatusCode::kUnavailable,
                 "no island is up: {} known. Start a worker (fairway-worker --controller ...) or "
                 "wait for one to return",
                 islands.size());
  const Island& island = islands.at(closed_islands.rbegin()->second);
  const Cordon& cordon = *CordonOf(island);
  return Error(absl::StatusCode::kUnavailable,
               "no island takes new sessions: all that are up are cordoned, island {} by {} since "
               "{}. Ask an operator for `fairway uncordon {}`, or try again later",
               island.name, cordon.by, TimeText(cordon.since), island.name);
}

std::string Registry::Where(IslandId id) const {
  const Island& island = islands.at(id);
  std::string workers;
  for (const ExecutorId executor : island.executors)
    workers += (workers.empty() ? "" : ", ") + executors.at(executor).spec.worker;
  return fmt::format("island {} (worker {})", island.name, workers);
}

DeviceId Registry::NewDevices(uint32_t count) {
  if (const auto free = free_devices.find(count); free != free_devices.end())
    return DeviceId(free_devices.extract(free).mapped());
  const DeviceId first(next_device);
  next_device += count;
  device_owner.resize(next_device);
  return first;
}

absl::Status Registry::CheckRegistry() const {
  size_t listed = 0, named = 0, named_islands = 0;
  for (const auto& [id, island] : islands) {
    listed += island.executors.size();
    size_t up = 0;
    for (const ExecutorId executor : island.executors) {
      const auto it = executors.find(executor);
      if (it == executors.end() || it->second.island != id)
        return Error(absl::StatusCode::kInternal, "island {} lists executor {}, which is not its",
                     id, executor);
      up += it->second.up ? 1 : 0;
      const auto name = executor_of_worker.find(it->second.spec.worker);
      named += name != executor_of_worker.end() && name->second == executor ? 1 : 0;
    }
    const auto name = island_by_name.find(island.name);
    const bool found = name != island_by_name.end() && name->second == id;
    named_islands += found ? 1 : 0;
    const bool shown = open_islands.contains(island.name) || closed_islands.contains(island.name);
    if (!island.forgotten && shown != IslandUp(island))
      return Error(absl::StatusCode::kInternal, "island {} is up: {}; new sessions know of it: {}",
                   id, !shown, shown);
    if (up != island.up || found == island.forgotten)
      return Error(absl::StatusCode::kInternal,
                   "island {} has {} executors up and counts {}; its name leads to it: {}", id, up,
                   island.up, found);
  }
  for (const auto& [open, cordoned] : {std::pair(&open_islands, false), {&closed_islands, true}}) {
    for (const auto& [name, id] : *open) {
      const auto known = island_by_name.find(name);
      if (known == island_by_name.end() || known->second != id ||
          cordons.contains(name) != cordoned)
        return Error(absl::StatusCode::kInternal, "island {} is among those that are {}", name,
                     cordoned ? "cordoned" : "open");
    }
  }
  if (named != executor_of_worker.size() || named_islands != island_by_name.size())
    return Error(absl::StatusCode::kInternal, "a name leads to nothing");
  if (listed != executors.size())
    return Error(absl::StatusCode::kInternal,
                 "{} executors of islands are listed, but there are {}", listed, executors.size());
  size_t devices = 1;  // number 0 belongs to nobody
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
