// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <algorithm>

#include "base/planted.h"

namespace fairway {

Admission::Device Admission::Of(DeviceId device) const {
  return device.value < devices_.size() ? devices_[device.value] : Device();
}

void Admission::SetDevice(DeviceId device, int64_t limit) {
  Device& at = At(device);
  at.limit = limit;
  Touch(device, at.island);
}

void Admission::Forget(IslandId island) { islands_.erase(island); }
void Admission::ForgetDevice(DeviceId device) { At(device) = Device(); }

void Admission::Enqueue(NodeId node, SessionId session, IslandId island,
                        std::vector<MemoryNeed> needs) {
  Island& at = islands_[island];
  for (const MemoryNeed& need : needs) At(need.device).island = island;
  if (at.waiting.emplace(node, Waiting{session, std::move(needs)}).second)
    at.candidates[session].insert(node);
}

bool Admission::Remove(NodeId node, IslandId island) {
  const auto at = islands_.find(island);
  if (at == islands_.end()) return false;
  const auto it = at->second.waiting.find(node);
  if (it == at->second.waiting.end()) return false;
  DropCandidate(at->second, it->second.session, node);
  if (it->second.in_lines) LeaveLines(at->second, node, it->second);
  if (!at->second.lines.empty()) {  // room may have been kept for it
    for (const MemoryNeed& need : it->second.needs) at->second.touched.insert(need.device);
  }
  at->second.waiting.erase(it);
  return true;
}

void Admission::Touch(DeviceId device, IslandId waiting) {
  const auto at = islands_.find(waiting);
  if (at != islands_.end() && !at->second.lines.empty()) at->second.touched.insert(device);
}

void Admission::Release(DeviceId device, int64_t bytes) {
  Device& at = At(device);
  at.used -= bytes;
  Touch(device, at.island);
}

void Admission::WillRelease(DeviceId device, int64_t bytes) { At(device).will_release += bytes; }

std::optional<Admission::Shortage> Admission::ShortageOf(NodeId node,
                                                         const Waiting& waiting) const {
  if (Planted(Bug::kAdmitBeyondMemory)) return std::nullopt;
  std::optional<Shortage> shortage;
  for (const MemoryNeed& need : waiting.needs) {
    const int64_t lacks = need.bytes - room(need.device);
    if (lacks <= 0) continue;
    const Device device = Of(need.device);
    const int64_t limit = device.limit == 0 ? kNoLimit : device.limit;
    const bool hopeless = need.bytes > limit;
    if (!shortage || (hopeless && !shortage->hopeless))
      shortage = Shortage{node,
                          waiting.session,
                          need.device,
                          need.bytes,
                          device.used,
                          limit,
                          shortage ? shortage->lacks : 0,
                          hopeless};
    shortage->lacks += lacks;
  }
  return shortage;
}

bool Admission::Fits(NodeId node, const Waiting& waiting, const KeptOn& kept) const {
  if (Planted(Bug::kAdmitBeyondMemory)) return true;
  return std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
    int64_t free = room(need.device);
    const auto it = kept.find(need.device);
    if (it != kept.end() && it->second.node < node)
      free = std::min(free, free + will_release(need.device) - it->second.bytes);
    return need.bytes <= free;
  });
}

bool Admission::Leads(const Island& island, NodeId node, const Waiting& waiting) {
  if (Planted(Bug::kAdmitOutOfOrder)) return true;
  if (island.lines.empty()) return true;
  return std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
    const auto line = island.lines.find({need.device, waiting.session});
    return line == island.lines.end() || *line->second.begin() >= node;
  });
}

void Admission::JoinLines(Island& island, NodeId node, Waiting& waiting) {
  if (std::exchange(waiting.in_lines, true)) return;
  for (const MemoryNeed& need : waiting.needs)
    island.lines[{need.device, waiting.session}].insert(node);
  island.by_session[waiting.session].insert(node);
}

void Admission::DropCandidate(Island& island, SessionId session, NodeId node) {
  const auto candidates = island.candidates.find(session);
  if (candidates == island.candidates.end()) return;
  candidates->second.erase(node);
  if (candidates->second.empty()) island.candidates.erase(candidates);
}

NodeId Admission::NextCandidate(Island& island) {
  const auto next = island.policy.Pick(island.candidates);
  const NodeId node = next->second.extract(next->second.begin()).value();
  if (next->second.empty()) island.candidates.erase(next);
  return node;
}

void Admission::LeaveLines(Island& island, NodeId node, const Waiting& waiting) {
  for (const MemoryNeed& need : waiting.needs) {
    const auto line = island.lines.find({need.device, waiting.session});
    line->second.erase(node);
    if (line->second.empty()) {
      island.lines.erase(line);
    } else {
      island.candidates[waiting.session].insert(*line->second.begin());
    }
  }
  const auto all = island.by_session.find(waiting.session);
  all->second.erase(node);
  island.held.erase(node);
  if (const auto told = island.told.find(waiting.session);
      told != island.told.end() && told->second == node)
    island.told.erase(told);
  if (all->second.empty()) island.by_session.erase(all);
}

void Admission::Protect(const Island& island, SessionId session, KeptOn& kept) const {
  const auto all = island.by_session.find(session);
  if (all == island.by_session.end()) return;
  const NodeId first = *all->second.begin();
  const Waiting& waiting = island.waiting.at(first);
  const bool covered =
      std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
        return need.bytes <= room(need.device) + will_release(need.device);
      });
  if (!covered) return;
  for (const MemoryNeed& need : waiting.needs) {
    const auto [it, absent] = kept.try_emplace(need.device, Kept{first, need.bytes});
    if (!absent && first < it->second.node) it->second = {first, need.bytes};
  }
}

std::vector<NodeId> Admission::Admit(IslandId island, size_t most, May may) {
  std::vector<NodeId> admitted;
  const auto found = islands_.find(island);
  if (found == islands_.end()) return admitted;
  Island& at = found->second;
  for (const DeviceId device : std::exchange(at.touched, {})) {
    for (auto line = at.lines.lower_bound({device, SessionId()});
         line != at.lines.end() && line->first.first == device; ++line)
      at.candidates[line->first.second].insert(*line->second.begin());
  }
  if (at.candidates.empty()) return admitted;
  KeptOn kept;
  for (const auto& [session, all] : at.by_session) Protect(at, session, kept);
  for (size_t looked = 0; !at.candidates.empty() && looked < most; ++looked) {
    const NodeId node = NextCandidate(at);
    const auto it = at.waiting.find(node);
    Waiting& waiting = it->second;
    at.held.erase(node);
    if (!Leads(at, node, waiting) || !Fits(node, waiting, kept)) {
      if (waiting.in_lines) continue;
      JoinLines(at, node, waiting);
      Protect(at, waiting.session, kept);
      continue;
    }
    if (!may(node)) {
      JoinLines(at, node, waiting);
      Protect(at, waiting.session, kept);
      at.held.insert(node);
      continue;
    }
    for (const MemoryNeed& need : waiting.needs) At(need.device).used += need.bytes;
    if (waiting.in_lines) {
      LeaveLines(at, node, waiting);
      std::erase_if(kept, [&](const auto& entry) { return entry.second.node == node; });
      Protect(at, waiting.session, kept);
    }
    admitted.push_back(node);
    at.waiting.erase(it);
  }
  std::sort(admitted.begin(), admitted.end());
  return admitted;
}

std::vector<NodeId> Admission::TryHeldAgain(IslandId island) {
  const auto at = islands_.find(island);
  if (at == islands_.end()) return {};
  for (const NodeId node : at->second.held)
    at->second.candidates[at->second.waiting.at(node).session].insert(node);
  return {at->second.held.begin(), at->second.held.end()};
}

void Admission::ServeNext(IslandId island, SessionId session) {
  islands_[island].policy.ServeNext(session);
}

bool Admission::HasCandidates(IslandId island) const {
  const auto at = islands_.find(island);
  return at != islands_.end() && (!at->second.candidates.empty() || !at->second.touched.empty());
}

std::optional<Admission::Shortage> Admission::First(IslandId island, SessionId session) const {
  const auto found = islands_.find(island);
  if (found == islands_.end()) return std::nullopt;
  const auto all = found->second.by_session.find(session);
  if (all == found->second.by_session.end()) return std::nullopt;
  const NodeId first = *all->second.begin();
  return ShortageOf(first, found->second.waiting.at(first));
}

std::vector<Admission::Shortage> Admission::Firsts(IslandId island) const {
  std::vector<Shortage> firsts;
  const auto found = islands_.find(island);
  if (found == islands_.end()) return firsts;
  for (const auto& [session, all] : found->second.by_session) {
    if (auto shortage = First(island, session)) firsts.push_back(*shortage);
  }
  std::sort(firsts.begin(), firsts.end(),
            [](const Shortage& a, const Shortage& b) { return a.node < b.node; });
  return firsts;
}

std::vector<Admission::Shortage> Admission::NewFirsts(IslandId island) {
  std::vector<Shortage> fresh;
  const auto found = islands_.find(island);
  if (found == islands_.end()) return fresh;
  for (const Shortage& first : Firsts(island)) {
    NodeId& told = found->second.told[first.session];
    if (std::exchange(told, first.node) != first.node) fresh.push_back(first);
  }
  return fresh;
}

std::vector<NodeId> Admission::Queue(IslandId island, size_t most) const {
  std::vector<NodeId> nodes;
  if (const auto at = islands_.find(island); at != islands_.end()) {
    for (const auto& [node, waiting] : at->second.waiting) {
      if (nodes.size() == most) break;
      nodes.push_back(node);
    }
  }
  return nodes;
}

size_t Admission::waiting(IslandId island) const {
  const auto at = islands_.find(island);
  return at == islands_.end() ? 0 : at->second.waiting.size();
}

int64_t Admission::used(DeviceId device) const { return Of(device).used; }

int64_t Admission::limit(DeviceId device) const { return Of(device).limit; }

int64_t Admission::will_release(DeviceId device) const { return Of(device).will_release; }

int64_t Admission::room(DeviceId device) const {
  const Device of = Of(device);
  return (of.limit == 0 ? kNoLimit : of.limit) - of.used;
}

}  // namespace fairway
