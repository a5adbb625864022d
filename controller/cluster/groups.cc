// SPDX-License-Identifier: Apache-2.0
// Shard groups: references, readiness, memory (rule B1).
#include "controller/cluster/groups.h"

#include <algorithm>
#include <unordered_set>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

Group& Cluster::Groups::Make(SessionId session, IslandId island, DType dtype,
                             const std::string& memory_kind) {
  return Insert(New(session, island, dtype, memory_kind));
}

Group& Cluster::Groups::Insert(std::unique_ptr<Group> group) {
  Group& made = s.all_groups.Insert(std::move(group));
  Stake& stake = s.StakeOf(made.session, s.HoldingsOf(made.session), made.island);
  made.stake = &stake;
  made.next = stake.groups;
  if (made.next != nullptr) made.next->previous = &made;
  stake.groups = &made;
  return made;
}

void Cluster::Groups::ShareLists(Group& group) {
  if (group.places.size() < 2) return;
  group.own_places = true;
  const Shape& first = group.shapes.front();
  if (std::all_of(group.shapes.begin(), group.shapes.end(),
                  [&](const Shape& shape) { return shape == first; }))
    group.shapes = std::vector<Shape>{first};
  SharedVector<Place>& last = group.stake->places;
  if (last == group.places) {
    group.places = last;
    group.room = group.stake->room;
  } else {
    last = group.places;
    group.stake->room = RoomOf(group);
  }
}

void Cluster::Groups::Weigh(Session& session, Group& group) {
  const size_t bytes = RecordBytesOf(group);
  session.group_records.Add(bytes);
  session.group_records.Remove(std::exchange(group.record_bytes, bytes));
}

std::unique_ptr<Group> Cluster::Groups::New(SessionId session, IslandId island, DType dtype,
                                            const std::string& memory_kind) {
  auto group = std::make_unique<Group>();
  group->id = GroupId(next_++);
  group->session = session;
  group->island = island;
  group->dtype = dtype;
  group->memory_kind = memory_kind;
  s.Charge(1);
  return group;
}

void Cluster::Groups::Erase(Group& group) {
  Stake& stake = *group.stake;
  (group.previous != nullptr ? group.previous->next : stake.groups) = group.next;
  if (group.next != nullptr) group.next->previous = group.previous;
  if (stake.walk == &group) stake.walk = group.next;
  const SessionId session = group.session;
  if (const auto owner = s.sessions.find(session); owner != s.sessions.end())
    owner->second.group_records.Remove(group.record_bytes);
  s.all_groups.Take(group.id);
  if (stake.groups == nullptr) s.ForgetHoldings(session);
}

void Cluster::Groups::SetCharged(Group& group, bool charged) {
  if (std::exchange(group.charged, charged) == charged) return;
  Stake& stake = *group.stake;
  stake.Count(&Stake::arrays, charged);
  for (const MemoryNeed& room : RoomOf(group)) {
    const size_t at = room.device.value - stake.first_device;
    const int64_t more = charged ? room.bytes : -room.bytes;
    stake.held.Grow(at + room.count);
    stake.held.Change(at, room.count, [&](Stake::Held& held) {
      held.bytes += more;
      held.shards += charged ? 1 : -1;
    });
    stake.bytes += more * room.count;
  }
}

namespace {

// The groups of `list`, whose items are shards or runs of them.
template <typename List>
GroupIds GroupsIn(const List& list, GroupId except) {
  constexpr size_t kFew = 16;
  GroupIds out;
  std::unordered_set<GroupId> known;  // the ids in `out`, once these are more than a few
  for (const auto& item : list) {
    if (item.group == except || (!out.empty() && out.back() == item.group)) continue;
    if (out.size() < kFew) {
      if (std::find(out.begin(), out.end(), item.group) != out.end()) continue;
    } else {
      if (known.empty()) known.insert(out.begin(), out.end());
      if (!known.insert(item.group).second) continue;
    }
    out.push_back(item.group);
  }
  return out;
}

}  // namespace

GroupIds GroupsOf(const std::vector<ShardRef>& shards, GroupId except) {
  return GroupsIn(shards, except);
}

GroupIds GroupsOf(const ShardList& shards) { return GroupsIn(shards.runs(), GroupId()); }

void Cluster::Groups::AddReader(Group& group, const Node& node) {
  ++group.readers;
  if (!group.settled()) group.waiters.push_back(node.id);
  HasMemory(node, group, false);
}

void Cluster::Groups::HasMemory(const Node& reader, Group& group, bool has) {
  if (reader.kind != NodeKind::kFetch) CountQueued(group, !has);
}

void Cluster::Groups::CountQueued(Group& group, bool more) {
  group.queued_readers += more ? 1 : -1;
  if (group.queued_readers <= 1) s.memory.CountLeaving(group);
}

void Cluster::Groups::DropReader(GroupId id) {
  Group* group = s.FindGroup(id);
  if (group == nullptr || (Planted(Bug::kDropRelease) && id.value % 7 == 3)) return;
  --group->readers;
  if (Planted(Bug::kDoubleRelease) && group->readers > 1) --group->readers;
  Collect(*group);
}

void Cluster::Groups::SetReady(Group& group) {
  group.state = GroupState::kReady;
  group.producer = NodeId();
  s.WorkOf(group.session).settled.push_back(group.id);
}

void Cluster::Groups::SetFailed(Group& group, const absl::Status& error, NodeId cause) {
  const bool was_settled = group.settled();
  group.state = GroupState::kFailed;
  group.error = error;
  group.cause = cause;
  group.producer = NodeId();
  group.inlined.clear();
  if (const auto session = s.sessions.find(group.session); session != s.sessions.end())
    Weigh(session->second, group);
  // Launched work on surviving executors may still read the group's shards there.
  if (group.readers == 0 || Planted(Bug::kFreeAtLoss)) ReleaseBytes(group);
  if (!was_settled) s.WorkOf(group.session).settled.push_back(group.id);
}

void Cluster::Groups::ReleaseBytes(Group& group) {
  s.ChargeShards(group.places.size());
  if (group.charged) {
    Island& island = s.islands.at(group.island);
    for (const MemoryNeed& room : RoomOf(group))
      s.memory.Release(island, room.device, room.bytes, room.count);
    SetCharged(group, false);
    s.memory.CountLeaving(group);
    s.to_pump.insert(group.island);
  }
  if (group.declared) {
    group.declared = false;
    if (group.span && s.AllServe(group.island)) return s.commands.FreeAll(*group.span, group.id);
    ExecutorId last;
    for (const Place& place : group.places) {
      if (std::exchange(last, place.executor) == place.executor) continue;
      s.commands.Free(*s.ExecutorOf(place.device), group.id);
    }
  }
}

void Cluster::Groups::Collect(Group& group) {
  const bool freed =
      Planted(Bug::kFreeUnderReader) && group.id.value % 3 == 0 && group.stored == nullptr;
  const bool read = group.readers > 0 && !freed;
  if (read || group.producer) return;
  if (group.handle_refs == 0 || group.all_deleted() || group.state == GroupState::kFailed) {
    group.inlined.clear();
    s.stored_groups.Unstore(group);
    ReleaseBytes(group);
  }
  // A settled group that has waiters is forgotten once they have been told.
  if (group.handle_refs == 0 && group.readers <= 0 && group.waiters.empty() &&
      group.watchers.empty())
    Erase(group);
}

void Cluster::Groups::StoreInlined(ExecutorId from, ShardRef ref, BytesRef bytes) {
  s.Charge(1);
  s.ChargeBytes(bytes->size());
  Group* group = s.FindGroup(ref.group);
  if (group == nullptr || group->handle_refs == 0) return;
  // An executor is believed only about shards that it holds itself.
  if (ref.shard < 0 || static_cast<size_t>(ref.shard) >= group->places.size()) return;
  const Place& place = group->places[ref.shard];
  if (place.executor != from || static_cast<int64_t>(bytes->size()) != place.bytes) return;
  const auto it = s.sessions.find(group->session);
  if (it == s.sessions.end()) return;
  Session& session = it->second;
  session.inlined_bytes.Add(bytes->size());
  session.inlined.push_back({ref, bytes->size()});
  group->inlined[ref.shard] = std::move(bytes);
  // It is fetched again if it is asked for, so others' need goes before it.
  const size_t most = std::min(static_cast<size_t>(s.options.inline_session_bytes), s.Room());
  while (session.inlined_bytes.bytes() > most ||
         session.inlined.size() > 4 * session.arrays.size() + 64) {
    const Session::InlinedEntry oldest = session.inlined.front();
    session.inlined.pop_front();
    session.inlined_bytes.Remove(oldest.bytes);
    if (Group* old = s.FindGroup(oldest.shard.group)) old->inlined.erase(oldest.shard.shard);
  }
}

BytesRef Cluster::Groups::Inlined(const Group& group, int32_t shard) const {
  if (group.stored != nullptr && !group.stored->blobs.empty())
    return group.stored->blobs[group.stored->blob_of_shard[shard]];
  const auto it = group.inlined.find(shard);
  return it == group.inlined.end() ? nullptr : it->second;
}

bool Cluster::Groups::TellWaiters(GroupId id) {
  Group* group = s.FindGroup(id);
  if (group == nullptr) return true;
  const int kAtOnce = Planted(Bug::kForgetWaiters) ? 1 : 64;
  for (int i = 0; i < kAtOnce && group->num_told < group->waiters.size(); ++i) {
    s.Charge(1);
    const size_t waiter = group->num_told++;
    if (Node* node = s.FindNode(group->waiters[waiter])) {
      const bool launched =
          group->TakenForLaunched(waiter) && Launches::TakesForLaunched(*node, *group);
      s.nodes.InputSettled(*node, *group, launched);
    }
  }
  if (group->num_told < group->waiters.size() && !Planted(Bug::kForgetWaiters)) return false;
  group->waiters.clear();
  group->num_told = group->num_launched = 0;
  for (int i = 0; i < kAtOnce && !group->watchers.empty(); ++i) {
    s.Charge(1);
    const Group::Watcher watcher = group->watchers.front();
    group->watchers.pop_front();
    if (Planted(Bug::kLoseWatch) && !group->error.ok()) continue;
    s.watches.Ended(group->session, watcher.watch, watcher.position, group->error, group->cause);
  }
  if (!group->watchers.empty()) return false;
  Collect(*group);
  return true;
}

}  // namespace fairway
