// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include "base/planted.h"

namespace fairway {

Admission::Device& Admission::At(DeviceId device) {
  if (device.value >= devices_.size()) devices_.resize(device.value + 1);
  return devices_[device.value];
}

Admission::Device Admission::Of(DeviceId device) const {
  return device.value < devices_.size() ? devices_[device.value] : Device();
}

void Admission::SetDevice(DeviceId device, int64_t limit) { At(device).limit = limit; }

void Admission::Enqueue(NodeId node, IslandId island, std::vector<MemoryNeed> needs) {
  queues_[island].emplace(node, std::move(needs));
}

bool Admission::Remove(NodeId node, IslandId island) {
  const auto it = queues_.find(island);
  return it != queues_.end() && it->second.erase(node) > 0;
}

void Admission::Release(DeviceId device, int64_t bytes) { At(device).used -= bytes; }

void Admission::Reset(DeviceId device) { At(device).used = 0; }

std::optional<Admission::Shortage> Admission::FirstShortage(
    NodeId node, const std::vector<MemoryNeed>& needs) const {
  if (Planted(Bug::kAdmitBeyondMemory)) return std::nullopt;
  for (const MemoryNeed& need : needs) {
    const Device device = Of(need.device);
    const int64_t limit = device.limit == 0 ? kNoLimit : device.limit;
    if (need.bytes > room(need.device))
      return Shortage{node, need.device, need.bytes, device.used, limit, need.bytes > limit};
  }
  return std::nullopt;
}

std::vector<NodeId> Admission::Admit(IslandId island) {
  std::vector<NodeId> admitted;
  const auto queue = queues_.find(island);
  if (queue == queues_.end()) return admitted;
  for (auto it = queue->second.begin(); it != queue->second.end();) {
    if (FirstShortage(it->first, it->second)) {
      if (!Planted(Bug::kAdmitOutOfOrder)) break;
      ++it;
      continue;
    }
    for (const MemoryNeed& need : it->second) At(need.device).used += need.bytes;
    admitted.push_back(it->first);
    it = queue->second.erase(it);
  }
  return admitted;
}

std::optional<Admission::Shortage> Admission::Head(IslandId island) const {
  const auto queue = queues_.find(island);
  if (queue == queues_.end() || queue->second.empty()) return std::nullopt;
  const auto& [node, needs] = *queue->second.begin();
  return FirstShortage(node, needs);
}

std::vector<NodeId> Admission::Queue(IslandId island) const {
  std::vector<NodeId> nodes;
  if (const auto queue = queues_.find(island); queue != queues_.end()) {
    for (const auto& [node, needs] : queue->second) nodes.push_back(node);
  }
  return nodes;
}

size_t Admission::waiting(IslandId island) const {
  const auto queue = queues_.find(island);
  return queue == queues_.end() ? 0 : queue->second.size();
}

int64_t Admission::used(DeviceId device) const { return Of(device).used; }

int64_t Admission::limit(DeviceId device) const { return Of(device).limit; }

int64_t Admission::room(DeviceId device) const {
  const Device of = Of(device);
  return (of.limit == 0 ? kNoLimit : of.limit) - of.used;
}

}  // namespace fairway
