// SPDX-License-Identifier: Apache-2.0
// Views: the shards that a client's handle refers to.
#include "controller/cluster/views.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

void Cluster::Views::Hold(const Array& array) {
  s.ChargeShards(array.shards.size());
  for (const GroupId id : GroupsOf(array.shards)) {
    Group& group = *s.FindGroup(id);
    if (++group.handle_refs == 1) s.memory.CountLeaving(group);
  }
}

void Cluster::Views::Drop(const Array& array) {
  s.ChargeShards(array.shards.size());
  for (const GroupId id : GroupsOf(array.shards)) {
    Group* group = s.FindGroup(id);
    if (--group->handle_refs == 0) {
      s.memory.CountLeaving(*group);
      s.stored_groups.LetGoOfPlaced(*group);
    }
    s.groups.Collect(*group);
  }
}

void Cluster::Views::MarkDeleted(const ShardList& shards) {
  s.ChargeShards(shards.size());
  ShardList placed;
  Group* group = nullptr;
  for (const ShardRef ref : shards) {
    if (group == nullptr || group->id != ref.group) group = s.FindGroup(ref.group);
    if (group->deleted.empty()) group->deleted.resize(group->places.size());
    if (!group->deleted[ref.shard]) {
      group->deleted[ref.shard] = true;
      ++group->num_deleted;
      if (group->stored != nullptr && group->stored->placed)
        placed.push_back({group->stored->placed, ref.shard});
    }
  }
  if (!placed.empty() && !Planted(Bug::kDeleteStoredOnly)) MarkDeleted(placed);
  for (const GroupId id : GroupsOf(shards)) {
    Group& deleted = *s.FindGroup(id);
    s.memory.CountLeaving(deleted);
    s.groups.Collect(deleted);
  }
}

bool Cluster::Views::IsDeleted(const Array& array) const {
  if (array.deleted) return true;
  uint32_t begin = 0;
  for (const ShardList::Run& run : array.shards.runs()) {
    const Group& group = *s.all_groups.at(run.group);
    const auto count = static_cast<int32_t>(run.end - std::exchange(begin, run.end));
    for (int32_t i = 0; !group.deleted.empty() && i < count; ++i) {
      if (group.deleted[run.shard + i]) return true;
    }
  }
  return false;
}

void Cluster::Views::GiveAway(Array& array) {
  const Array given = std::exchange(array, Array{array.spec, {}, array.error, true});
  Drop(given);
}

absl::Status Cluster::Views::CheckUsable(const Array& array, uint64_t handle) const {
  if (!IsDeleted(array)) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "array {} has been deleted or donated",
               handle);
}

}  // namespace fairway
