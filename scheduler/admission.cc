// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <algorithm>
#include <utility>

#include <absl/container/inlined_vector.h>

#include "base/planted.h"

namespace fairway {

std::vector<MemoryNeed> InRows(std::vector<MemoryNeed> needs) {
  const auto by_device = [](const MemoryNeed& a, const MemoryNeed& b) {
    return std::pair(a.device, a.bytes) < std::pair(b.device, b.bytes);
  };
  if (!std::is_sorted(needs.begin(), needs.end(), by_device))
    std::sort(needs.begin(), needs.end(), by_device);
  std::vector<MemoryNeed> rows;
  for (const MemoryNeed& need : needs) {
    const bool goes_on = !rows.empty() && rows.back().bytes == need.bytes &&
                         rows.back().at(rows.back().count) == need.device;
    if (goes_on) {
      ++rows.back().count;
    } else {
      rows.push_back(need);
    }
  }
  rows.shrink_to_fit();
  return rows;
}

const Admission::Room& Admission::RoomOf(DeviceId device) const {
  static const Room kNone;
  return device.value < rooms_.size() ? rooms_[device.value] : kNone;
}

void Admission::SetDevice(DeviceId device, int64_t limit) {
  Change(device, 1, [limit](Room& room) { room.limit = limit; });
  Touch(device, 1);
}

void Admission::Forget(IslandId island) {
  islands_.erase(island);
  for (const SetId id : std::exchange(unused_, {})) ForgetSet(id);
}

void Admission::ForgetDevice(DeviceId device) {
  Device& at = At(device);
  std::set<SetId> sets = std::move(at.sets);
  if (const auto island = islands_.find(RoomOf(device).island); island != islands_.end()) {
    for (const SetId id : sets) island->second.looking.erase(id);
  }
  Change(device, 1, [](Room& room) { room = Room(); });
  at = Device();
  at.sets = std::move(sets);  // nobody uses them; Forget takes them away
}

Admission::SetId Admission::Use(const SharedVector<MemoryNeed>& needs) {
  if (!needs.empty() && last_needs_.begin() == needs.begin()) {
    if (sets_[last_set_].users++ == 0) std::erase(unused_, last_set_);
    return last_set_;
  }
  std::vector<DeviceId> devices;
  for (const MemoryNeed& need : needs) {
    for (uint32_t i = 0; i < need.count; ++i) devices.push_back(need.at(i));
  }
  if (!std::is_sorted(devices.begin(), devices.end())) std::sort(devices.begin(), devices.end());
  steps_ += devices.size();
  const auto [key, fresh] = numbers_of_.try_emplace(std::move(devices));
  if (fresh) {
    if (free_sets_.empty()) {
      free_sets_.push_back(static_cast<SetId>(sets_.size()));
      sets_.emplace_back();
    }
    key->second = free_sets_.back();
    free_sets_.pop_back();
    sets_[key->second].key = key;
    steps_ += kMapSteps * key->first.size();
    for (const DeviceId device : key->first) At(device).sets.insert(key->second);
  } else if (sets_[key->second].users == 0) {
    std::erase(unused_, key->second);
  }
  ++sets_[key->second].users;
  last_needs_ = needs;
  return last_set_ = key->second;
}

void Admission::EndUse(SetId set) {
  if (--sets_[set].users > 0) return;
  unused_.push_back(set);
  if (unused_.size() <= kKept) return;
  const SetId oldest = unused_.front();
  unused_.erase(unused_.begin());
  ForgetSet(oldest);
}

void Admission::ForgetSet(SetId id) {
  Set& set = sets_[id];
  const std::vector<DeviceId>& devices = set.key->first;
  if (last_set_ == id) last_needs_ = {};
  steps_ += kMapSteps * devices.size();
  for (const DeviceId device : devices) At(device).sets.erase(id);
  if (!devices.empty()) {
    const auto island = islands_.find(RoomOf(devices[0]).island);
    if (island != islands_.end()) island->second.looking.erase(id);
  }
  numbers_of_.erase(set.key);
  set = Set();
  free_sets_.push_back(id);
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
    Change(need.device, need.count, [island](Room& room) { room.island = island; });
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
  for (const MemoryNeed& need : it->second.needs) Touch(need.device, need.count);
  EndUse(it->second.set);
  at->second.waiting.erase(it);
  return true;
}

void Admission::Touch(DeviceId device, uint32_t count) {
  const auto at = islands_.find(RoomOf(device).island);
  if (at == islands_.end() || at->second.by_session.empty()) return;  // nobody waits there
  for (uint32_t i = 0; i < count; ++i) {
    const DeviceId each(device.value + i);
    Device& touched = At(each);
    if (std::exchange(touched.touched, true)) {
      touched.again = touched.marked > 0;
    } else {
      at->second.touched.push_back(each);
    }
  }
}

void Admission::Release(DeviceId device, int64_t bytes, uint32_t count) {
  Change(device, count, [bytes](Room& room) { room.used -= bytes; });
  Touch(device, count);
}

void Admission::WillRelease(DeviceId device, int64_t bytes, uint32_t count) {
  Change(device, count, [bytes](Room& room) { room.will_release += bytes; });
  if (bytes < 0) Touch(device, count);  // room is kept for those only for whom there is enough
}

std::optional<Admission::Shortage> Admission::ShortageOf(NodeId node,
                                                         const Waiting& waiting) const {
  if (Planted(Bug::kAdmitBeyondMemory)) return std::nullopt;
  std::optional<Shortage> shortage;
  if (HasRoom(waiting)) return shortage;
  for (const MemoryNeed& need : waiting.needs) {
    steps_ += need.count;
    for (uint32_t i = 0; i < need.count; ++i) {
      const Room& room = RoomOf(need.at(i));
      const int64_t lacks = need.bytes - room.free();
      if (lacks <= 0) continue;
      const int64_t limit = room.limit == 0 ? kNoLimit : room.limit;
      const bool hopeless = need.bytes > limit;
      if (!shortage || (hopeless && !shortage->hopeless))
        shortage = Shortage{node,
                            waiting.session,
                            need.at(i),
                            need.bytes,
                            room.used,
                            limit,
                            shortage ? shortage->lacks : 0,
                            hopeless};
      shortage->lacks += lacks;
    }
  }
  return shortage;
}

bool Admission::HasRoom(const Waiting& waiting) const {
  return std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
    return rooms_.AllOf(need.device.value, need.count, [&](const Room& room) {
      ++steps_;
      return need.bytes <= room.free();
    });
  });
}

bool Admission::Fits(NodeId node, const Waiting& waiting) const {
  if (Planted(Bug::kAdmitBeyondMemory)) return true;
  if (!HasRoom(waiting)) return false;
  if (protected_.empty()) return true;  // no room is kept
  return std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
    for (uint32_t i = 0; i < need.count; ++i) {
      ++steps_;
      const size_t at = need.at(i).value;
      if (at >= devices_.size()) continue;
      const Kept& kept = devices_[at].kept;
      if (!kept.node || kept.node >= node) continue;
      if (need.bytes > rooms_[at].free() + rooms_[at].will_release - kept.bytes) return false;
    }
    return true;
  });
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
  if (all == island.by_session.end() || *all->second.all.begin() != node) return;
  const auto told = island.told.find(session);
  if (told == island.told.end() || told->second != node) island.untold.insert(session);
}

void Admission::Protect(Island& island, SessionId session) {
  const auto all = island.by_session.find(session);
  if (all == island.by_session.end()) return;
  const NodeId first = *all->second.all.begin();
  const Waiting& waiting = island.waiting.at(first);
  Set& set = sets_[waiting.set];
  ++steps_;
  if (set.kept && set.kept <= first) return;
  const bool covered =
      std::all_of(waiting.needs.begin(), waiting.needs.end(), [&](const MemoryNeed& need) {
        return rooms_.AllOf(need.device.value, need.count, [&](const Room& room) {
          ++steps_;
          return need.bytes <= room.free() + room.will_release;
        });
      });
  if (!covered) return;
  for (const MemoryNeed& need : waiting.needs) {
    steps_ += need.count;
    for (uint32_t i = 0; i < need.count; ++i) {
      Kept& kept = At(need.at(i)).kept;
      if (!kept.node || first < kept.node) kept = {first, need.bytes};
    }
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
  if (protected_.empty()) return;
  for (const MemoryNeed& need : waiting.needs) {
    steps_ += need.count;
    for (uint32_t i = 0; i < need.count; ++i) {
      Kept& kept = At(need.at(i)).kept;
      if (kept.node == node) kept = {};
    }
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
  MarkTouched(island);
  for (size_t left = std::min(island.looking.size(), kLookedAtOnce); left > 0; --left) {
    auto next = island.looking.lower_bound(island.looked);
    if (next == island.looking.end()) next = island.looking.begin();
    const SetId id = *next;
    island.looked = id + 1;
    LookAt(island, id);
    if (sets_[id].left == 0) island.looking.erase(id);
  }
}

void Admission::MarkTouched(Island& island) {
  for (size_t left = kMarkedAtOnce; !island.touched.empty() && left > 0; --left) {
    Device& device = At(island.touched.front());
    auto it = device.sets.lower_bound(device.marked);
    for (; it != device.sets.end() && left > 1; ++it, --left) {
      ++steps_;
      Set& set = sets_[*it];
      if (set.left == 0 && !set.firsts.empty()) island.looking.insert(*it);
      set.left = set.firsts.size();
    }
    ++steps_;
    if (it != device.sets.end()) {
      device.marked = *it;
      return;
    }
    device.marked = 0;
    if (std::exchange(device.again, false)) continue;
    device.touched = false;
    island.touched.pop_front();
  }
}

void Admission::LookAt(Island& island, SetId id) {
  Set& set = sets_[id];
  if (set.heads.empty()) set.left = 0;  // they have left since
  if (set.left == 0) return;
  // Whoever room is kept for goes first. What all others may take is less, unless one of them is
  // older: those leave no room for it.
  if (set.kept) {
    const SessionId session = island.waiting.at(set.kept).session;
    island.candidates[session].insert(set.kept);
  }
  int64_t free = INT64_MAX;
  steps_ += set.key->first.size();
  for (const DeviceId needed : set.key->first) {
    const Kept& kept = At(needed).kept;
    const bool leaves = kept.node && kept.node <= *set.heads.begin();
    const int64_t more = leaves ? will_release(needed) - kept.bytes : 0;
    free = std::min(free, room(needed) + std::min<int64_t>(more, 0));
  }
  for (int i = 0; i < kTried && set.left > 0; ++i, --set.left) {
    steps_ += kMapSteps;
    auto next = set.firsts.upper_bound(set.served);
    if (next == set.firsts.end() || next->first > free) next = set.firsts.begin();
    if (next == set.firsts.end() || next->first > free) {
      set.left = 0;
      break;
    }
    set.served = *next;
    const SessionId session = next->second;
    const Lines& of = island.by_session.at(session);
    island.candidates[session].insert(*of.lines.at(id).begin());
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
    for (const MemoryNeed& need : waiting.needs)
      Change(need.device, need.count, [&](Room& room) { room.used += need.bytes; });
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

std::vector<NodeId> Admission::TryHeldAgain(IslandId island, NodeId from, size_t most) {
  std::vector<NodeId> held;
  const auto at = islands_.find(island);
  if (at == islands_.end()) return held;
  for (auto it = at->second.held.lower_bound(from);
       it != at->second.held.end() && held.size() < most; ++it) {
    at->second.candidates[at->second.waiting.at(*it).session].insert(*it);
    held.push_back(*it);
  }
  return held;
}

void Admission::ServeNext(IslandId island, SessionId session) {
  Island& at = islands_[island];
  at.policy.ServeNext(session);
  if (const auto all = at.by_session.find(session); all != at.by_session.end())
    at.candidates[session].insert(*all->second.all.begin());
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
  const NodeId first = *all->second.all.begin();
  return ShortageOf(first, found->second.waiting.at(first));
}

std::vector<Admission::Shortage> Admission::Firsts(IslandId island) const {
  std::vector<Shortage> firsts;
  NodeId from;
  Firsts(island, SIZE_MAX, from, firsts);
  return firsts;
}

size_t Admission::Firsts(IslandId island, size_t most, NodeId& from,
                         std::vector<Shortage>& firsts) const {
  const auto found = islands_.find(island);
  const NodeId begin = std::exchange(from, NodeId());
  if (found == islands_.end()) return 0;
  const Island& at = found->second;
  size_t looked = 0;
  for (auto it = at.firsts.lower_bound({begin, SessionId()}); it != at.firsts.end(); ++it) {
    if (looked++ == most) {
      from = it->first;
      return most;
    }
    if (auto shortage = ShortageOf(it->first, at.waiting.at(it->first)))
      firsts.push_back(*shortage);
  }
  return looked;
}

std::optional<Admission::Shortage> Admission::Oldest(IslandId island) const {
  const auto found = islands_.find(island);
  if (found == islands_.end()) return std::nullopt;
  for (const auto& [node, session] : found->second.firsts) {
    if (auto shortage = ShortageOf(node, found->second.waiting.at(node))) return shortage;
  }
  return std::nullopt;
}

std::vector<Admission::Shortage> Admission::NewFirsts(IslandId island, size_t most) {
  std::vector<Shortage> fresh;
  const auto found = islands_.find(island);
  if (found == islands_.end()) return fresh;
  std::set<SessionId>& untold = found->second.untold;
  for (; !untold.empty() && most > 0; --most) {
    steps_ += kMapSteps;
    const SessionId session = untold.extract(untold.begin()).value();
    const auto first = First(island, session);
    if (!first) continue;
    NodeId& told = found->second.told[session];
    if (std::exchange(told, first->node) != first->node) fresh.push_back(*first);
  }
  std::sort(fresh.begin(), fresh.end(),
            [](const Shortage& a, const Shortage& b) { return a.node < b.node; });
  return fresh;
}

bool Admission::HasNewFirsts(IslandId island) const {
  const auto found = islands_.find(island);
  return found != islands_.end() && !found->second.untold.empty();
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

int64_t Admission::used(DeviceId device) const { return RoomOf(device).used; }

int64_t Admission::limit(DeviceId device) const { return RoomOf(device).limit; }

int64_t Admission::will_release(DeviceId device) const { return RoomOf(device).will_release; }

int64_t Admission::room(DeviceId device) const { return RoomOf(device).free(); }

}  // namespace fairway
