// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <algorithm>

#include <absl/container/inlined_vector.h>

#include "base/planted.h"

namespace fairway {

const Admission::Device& Admission::Of(DeviceId device) const {
  static const Device kNone;
  return device.value < devices_.size() ? devices_[device.value] : kNone;
}

void Admission::SetDevice(DeviceId device, int64_t limit) {
  At(device).limit = limit;
  Touch(device);
}

void Admission::Forget(IslandId island) {
  islands_.erase(island);
  ForgetSets();
}

void Admission::ForgetDevice(DeviceId device) {
  Device& at = At(device);
  std::vector<SetId> sets = std::move(at.sets);
  at = Device();
  at.sets = std::move(sets);  // nobody uses them; Forget takes them away
}

Admission::SetId Admission::Use(const SharedVector<MemoryNeed>& needs) {
  if (!needs.empty() && last_needs_.begin() == needs.begin()) {
    if (sets_[last_set_].users++ == 0) --unused_;
    return last_set_;
  }
  std::vector<DeviceId> devices;
  devices.reserve(needs.size());
  for (const MemoryNeed& need : needs) devices.push_back(need.device);
  steps_ += devices.size();
  const auto [key, fresh] = numbers_of_.try_emplace(std::move(devices));
  if (fresh) {
    if (free_sets_.empty()) {
      free_sets_.push_back(static_cast<SetId>(sets_.size()));
      sets_.emplace_back();
    }
    const SetId id = key->second = free_sets_.back();
    free_sets_.pop_back();
    Set& set = sets_[id];
    set.key = key;
    set.overlaps = {id};
    for (const DeviceId device : key->first) {
      std::vector<SetId>& others = At(device).sets;
      steps_ += others.size();
      for (const SetId other : others) {
        if (std::exchange(sets_[other].marked, true)) continue;
        set.overlaps.push_back(other);
        sets_[other].overlaps.push_back(id);
      }
      others.push_back(id);
    }
    for (const SetId other : set.overlaps) sets_[other].marked = false;
  } else if (sets_[key->second].users == 0) {
    --unused_;
  }
  ++sets_[key->second].users;
  last_needs_ = needs;
  return last_set_ = key->second;
}

void Admission::EndUse(SetId set) {
  if (--sets_[set].users == 0 && ++unused_ > kKept) ForgetSets();
}

void Admission::ForgetSets() {
  last_needs_ = {};
  for (auto& [id, island] : islands_)
    std::erase_if(island.looking, [&](SetId set) { return sets_[set].users == 0; });
  for (auto it = numbers_of_.begin(); it != numbers_of_.end();) {
    const SetId id = it->second;
    Set& set = sets_[id];
    if (set.users > 0) {
      ++it;
      continue;
    }
    for (const DeviceId device : it->first) std::erase(At(device).sets, id);
    for (const SetId other : set.overlaps) {
      if (other != id) std::erase(sets_[other].overlaps, id);
    }
    set = Set();
    free_sets_.push_back(id);
    it = numbers_of_.erase(it);
  }
  unused_ = 0;
}

void Admission::Enqueue(NodeId node, SessionId session, IslandId island,
                        SharedVector<MemoryNeed> needs) {
  Island& at = islands_[island];
  const auto [it, fresh] = at.waiting.try_emplace(node);
  if (!fresh) return;
  Waiting& waiting = it->second;
  waiting.session = session;
  waiting.set = Use(needs);
  waiting.least = needs.empty() ? 0 : INT64_MAX;
  for (const MemoryNeed& need : needs) {
    At(need.device).island = island;
    waiting.least = std::min(waiting.least, need.bytes);
  }
  waiting.needs = std::move(needs);
  at.candidates[session].insert(node);
}

bool Admission::Remove(NodeId node, IslandId island) {
  const auto at = islands_.find(island);
  if (at == islands_.end()) return false;
  const auto it = at->second.waiting.find(node);
  if (it == at->second.waiting.end()) return false;
  DropCandidate(at->second, it->second.session, node);
  if (it->second.in_lines) LeaveLines(at->second, node, it->second);
  // Room may have been kept for it.
  for (const MemoryNeed& need : it->second.needs) Touch(need.device);
  EndUse(it->second.set);
  at->second.waiting.erase(it);
  return true;
}

void Admission::Touch(DeviceId device) {
  Device& touched = At(device);
  if (touched.touched) return;
  const auto at = islands_.find(touched.island);
  if (at == islands_.end() || at->second.lines.empty()) return;
  touched.touched = true;
  at->second.touched.push_back(device);
}

void Admission::Release(DeviceId device, int64_t bytes) {
  At(device).used -= bytes;
  Touch(device);
}

void Admission::WillRelease(DeviceId device, int64_t bytes) {
  At(device).will_release += bytes;
  if (bytes < 0) Touch(device);  // room is kept for those only for whom there will be enough
}

std::optional<Admission::Shortage> Admission::ShortageOf(NodeId node,
                                                         const Waiting& waiting) const {
  if (Planted(Bug::kAdmitBeyondMemory)) return std::nullopt;
  std::optional<Shortage> shortage;
  steps_ += waiting.needs.size();
  for (const MemoryNeed& need : waiting.needs) {
    const int64_t lacks = need.bytes - room(need.device);
    if (lacks <= 0) continue;
    const Device& device = Of(need.device);
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

bool Admission::Fits(NodeId node, const Waiting& waiting) const {
  if (Planted(Bug::kAdmitBeyondMemory)) return true;
  return std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
    ++steps_;
    int64_t free = room(need.device);
    const Kept& kept = Of(need.device).kept;
    if (kept.node && kept.node < node)
      free = std::min(free, free + will_release(need.device) - kept.bytes);
    return need.bytes <= free;
  });
}

bool Admission::Leads(const Island& island, NodeId node, const Waiting& waiting) const {
  if (Planted(Bug::kAdmitOutOfOrder)) return true;
  if (island.lines.empty()) return true;
  const std::vector<SetId>& overlaps = sets_[waiting.set].overlaps;
  return std::all_of(overlaps.begin(), overlaps.end(), [&](SetId set) {
    ++steps_;
    const auto line = island.lines.find({set, waiting.session});
    return line == island.lines.end() || *line->second.begin() >= node;
  });
}

void Admission::SetFirst(Island& island, const Waiting& waiting, NodeId was, NodeId is) {
  if (was == is) return;
  if (was) island.firsts.erase({was, waiting.session});
  if (!is) return;
  island.firsts.insert({is, waiting.session});
  island.untold.insert(waiting.session);
}

void Admission::JoinLines(Island& island, NodeId node, Waiting& waiting) {
  if (std::exchange(waiting.in_lines, true)) return;
  ++steps_;
  std::set<NodeId>& line = island.lines[{waiting.set, waiting.session}];
  Set& set = sets_[waiting.set];
  if (line.empty() || node < *line.begin()) {
    if (!line.empty()) {
      set.firsts.erase({island.waiting.at(*line.begin()).least, waiting.session});
      set.heads.erase(*line.begin());
    }
    set.firsts.insert({waiting.least, waiting.session});
    set.heads.insert(node);
  }
  line.insert(node);
  std::set<NodeId>& all = island.by_session[waiting.session];
  const NodeId was = all.empty() ? NodeId() : *all.begin();
  all.insert(node);
  SetFirst(island, waiting, was, *all.begin());
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

void Admission::NoteShort(Island& island, NodeId node, SessionId session) {
  const auto all = island.by_session.find(session);
  if (all == island.by_session.end() || *all->second.begin() != node) return;
  const auto told = island.told.find(session);
  if (told == island.told.end() || told->second != node) island.untold.insert(session);
}

void Admission::LeaveLines(Island& island, NodeId node, const Waiting& waiting) {
  const SessionId session = waiting.session;
  const auto line = island.lines.find({waiting.set, session});
  if (*line->second.begin() == node) {
    Set& set = sets_[waiting.set];
    set.firsts.erase({waiting.least, session});
    set.heads.erase(node);
    if (line->second.size() > 1) {
      const NodeId next = *std::next(line->second.begin());
      set.firsts.insert({island.waiting.at(next).least, session});
      set.heads.insert(next);
    }
  }
  line->second.erase(node);
  if (line->second.empty()) island.lines.erase(line);
  for (const SetId set : sets_[waiting.set].overlaps) {
    ++steps_;
    const auto other = island.lines.find({set, session});
    if (other != island.lines.end()) island.candidates[session].insert(*other->second.begin());
  }
  const auto all = island.by_session.find(session);
  const NodeId was = *all->second.begin();
  all->second.erase(node);
  SetFirst(island, waiting, was, all->second.empty() ? NodeId() : *all->second.begin());
  island.held.erase(node);
  if (const auto told = island.told.find(session);
      told != island.told.end() && told->second == node)
    island.told.erase(told);
  if (!all->second.empty()) {
    // Room is kept for the new first, which may be in none of these lines.
    island.candidates[session].insert(*all->second.begin());
    return;
  }
  island.untold.erase(session);
  island.by_session.erase(all);
}

void Admission::Protect(Island& island, SessionId session) {
  const auto all = island.by_session.find(session);
  if (all == island.by_session.end()) return;
  const NodeId first = *all->second.begin();
  const Waiting& waiting = island.waiting.at(first);
  Set& set = sets_[waiting.set];
  ++steps_;
  if (set.kept && set.kept <= first) return;
  const bool covered =
      std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
        ++steps_;
        return need.bytes <= room(need.device) + will_release(need.device);
      });
  if (!covered) return;
  steps_ += waiting.needs.size();
  for (const MemoryNeed& need : waiting.needs) {
    Kept& kept = At(need.device).kept;
    if (!kept.node || first < kept.node) kept = {first, need.bytes};
  }
  if (!set.kept) protected_.push_back(waiting.set);
  set.kept = first;
}

void Admission::ProtectOldest(Island& island) {
  int oldest = 0;
  for (auto it = island.firsts.begin(); it != island.firsts.end() && oldest < kProtected;
       ++it, ++oldest)
    Protect(island, it->second);
}

void Admission::Unprotect(NodeId node, const Waiting& waiting) {
  steps_ += waiting.needs.size();
  for (const MemoryNeed& need : waiting.needs) {
    Kept& kept = At(need.device).kept;
    if (kept.node == node) kept = {};
  }
  if (sets_[waiting.set].kept == node) {
    sets_[waiting.set].kept = NodeId();
    std::erase(protected_, waiting.set);
  }
}

void Admission::UnprotectAll() {
  for (const SetId id : std::exchange(protected_, {})) {
    steps_ += sets_[id].key->first.size();
    for (const DeviceId device : sets_[id].key->first) At(device).kept = {};
    sets_[id].kept = NodeId();
  }
}

void Admission::TakeTouched(Island& island) {
  for (const DeviceId id : std::exchange(island.touched, {})) {
    Device& device = At(id);
    device.touched = false;
    steps_ += 1 + device.sets.size();
    for (const SetId set : device.sets) {
      if (sets_[set].left == 0 && !sets_[set].firsts.empty()) island.looking.push_back(set);
      sets_[set].left = sets_[set].firsts.size();
    }
  }
  for (const SetId id : std::exchange(island.looking, {})) {
    Set& set = sets_[id];
    if (set.heads.empty()) set.left = 0;  // they have left since
    if (set.left == 0) continue;
    // Whoever room is kept for goes first. What all others may take is less, unless one of them is
    // older: those leave no room for it.
    if (set.kept) {
      const SessionId session = island.waiting.at(set.kept).session;
      island.candidates[session].insert(set.kept);
    }
    int64_t free = INT64_MAX;
    steps_ += set.key->first.size();
    for (const DeviceId needed : set.key->first) {
      const Device& device = At(needed);
      const bool leaves = device.kept.node && device.kept.node <= *set.heads.begin();
      const int64_t more = leaves ? device.will_release - device.kept.bytes : 0;
      free = std::min(free, room(needed) + std::min<int64_t>(more, 0));
    }
    for (int i = 0; i < kTried && set.left > 0; ++i, --set.left) {
      ++steps_;
      auto next = set.firsts.upper_bound(set.served);
      if (next == set.firsts.end() || next->first > free) next = set.firsts.begin();
      if (next == set.firsts.end() || next->first > free) {
        set.left = 0;
        break;
      }
      set.served = *next;
      const SessionId session = next->second;
      island.candidates[session].insert(*island.lines.at({id, session}).begin());
    }
    if (set.left > 0) island.looking.push_back(id);
  }
}

std::vector<NodeId> Admission::Admit(IslandId island, size_t most, May may) {
  std::vector<NodeId> admitted;
  const auto found = islands_.find(island);
  if (found == islands_.end()) return admitted;
  Island& at = found->second;
  if (!HasCandidates(island)) return admitted;
  ProtectOldest(at);
  TakeTouched(at);
  absl::InlinedVector<SetId, 32> left;
  for (size_t looked = 0; !at.candidates.empty() && looked < most; ++looked) {
    const NodeId node = NextCandidate(at);
    const auto it = at.waiting.find(node);
    Waiting& waiting = it->second;
    at.held.erase(node);
    if (!Leads(at, node, waiting) || !Fits(node, waiting)) {
      if (waiting.in_lines) {
        NoteShort(at, node, waiting.session);
        continue;
      }
      JoinLines(at, node, waiting);
      Protect(at, waiting.session);
      continue;
    }
    if (!may(node)) {
      JoinLines(at, node, waiting);
      Protect(at, waiting.session);
      at.held.insert(node);
      continue;
    }
    steps_ += waiting.needs.size();
    for (const MemoryNeed& need : waiting.needs) At(need.device).used += need.bytes;
    if (waiting.in_lines) {
      LeaveLines(at, node, waiting);
      Unprotect(node, waiting);
      Protect(at, waiting.session);
    }
    admitted.push_back(node);
    left.push_back(waiting.set);
    at.waiting.erase(it);
  }
  UnprotectAll();
  for (const SetId set : left) EndUse(set);
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
  Island& at = islands_[island];
  at.policy.ServeNext(session);
  if (const auto all = at.by_session.find(session); all != at.by_session.end())
    at.candidates[session].insert(*all->second.begin());
}

bool Admission::HasCandidates(IslandId island) const {
  const auto at = islands_.find(island);
  return at != islands_.end() && (!at->second.candidates.empty() || !at->second.touched.empty() ||
                                  !at->second.looking.empty());
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
  for (const auto& [node, session] : found->second.firsts) {
    if (auto shortage = ShortageOf(node, found->second.waiting.at(node)))
      firsts.push_back(*shortage);
  }
  return firsts;
}

std::optional<Admission::Shortage> Admission::Oldest(IslandId island) const {
  const auto found = islands_.find(island);
  if (found == islands_.end()) return std::nullopt;
  for (const auto& [node, session] : found->second.firsts) {
    if (auto shortage = ShortageOf(node, found->second.waiting.at(node))) return shortage;
  }
  return std::nullopt;
}

std::vector<Admission::Shortage> Admission::NewFirsts(IslandId island) {
  std::vector<Shortage> fresh;
  const auto found = islands_.find(island);
  if (found == islands_.end()) return fresh;
  for (const SessionId session : std::exchange(found->second.untold, {})) {
    ++steps_;
    const auto first = First(island, session);
    if (!first) continue;
    NodeId& told = found->second.told[session];
    if (std::exchange(told, first->node) != first->node) fresh.push_back(*first);
  }
  std::sort(fresh.begin(), fresh.end(),
            [](const Shortage& a, const Shortage& b) { return a.node < b.node; });
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
  const Device& of = Of(device);
  return (of.limit == 0 ? kNoLimit : of.limit) - of.used;
}

}  // namespace fairway
