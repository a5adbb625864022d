// SPDX-License-Identifier: Apache-2.0
// The arguments that a launch takes over (rule B1), and the memory that this saves.
#include <algorithm>
#include <unordered_map>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

void Cluster::Launches::CreditDonations(Node& node) {
  // A buffer that a sequence takes over need not be free when its outputs are made.
  if (node.state != NodeState::kQueued || node.executable->sequence != nullptr) return;
  bool changed = false;
  const std::vector<bool> donated = CertainlyDonated(node, node.donatable);
  for (const int32_t a : node.donatable) {
    if (!donated[a]) continue;
    const std::vector<ShardRef>& shards = node.inputs[a];
    for (size_t i = 0; i < shards.size(); ++i) {
      const Place& place = s.FindGroup(shards[i].group)->places[shards[i].shard];
      Reservation* r = ReservationOn(node, place.device, i);
      if (r == nullptr) continue;
      r->credit = std::min(r->credit + Rounded(place.bytes), r->output);
      changed = true;
    }
  }
  if (!changed) return;
  s.admission.Remove(node.id, node.island);
  s.admission.Enqueue(node.id, node.session, node.island, Needs(node));
}

std::vector<bool> Cluster::Launches::CertainlyDonated(const Node& node,
                                                      const std::vector<int32_t>& arguments) {
  std::vector<bool> donated(node.inputs.size());
  if (arguments.empty()) return donated;
  struct Use {
    size_t argument = 0;  // the first argument with shards of the group
    size_t shards = 0;
    bool alone = true;  // no other argument has shards of it
  };
  std::unordered_map<GroupId, Use> uses;
  for (size_t a = 0; a < node.inputs.size(); ++a) {
    std::pair<const GroupId, Use>* last = nullptr;
    for (const ShardRef& ref : node.inputs[a]) {
      if (last == nullptr || last->first != ref.group)
        last = &*uses.try_emplace(ref.group, Use{a}).first;
      last->second.alone = last->second.alone && last->second.argument == a;
      ++last->second.shards;
    }
  }
  for (const int32_t a : arguments) {
    const std::vector<GroupId> of = GroupsOf(node.inputs[a]);
    donated[a] = std::all_of(of.begin(), of.end(), [&](GroupId id) {
      const Group& group = *s.FindGroup(id);
      const Use& use = uses.at(id);
      // A group that is only partly donated stays in memory until it is freed.
      return (group.readers == 1 || Planted(Bug::kDonateWithReader)) && group.all_deleted() &&
             use.alone && use.shards == group.places.size();
    });
  }
  return donated;
}

void Cluster::Launches::TakeOver(Node& node, Group& input) {
  s.groups.SetCharged(input, false);
  s.memory.CountLeaving(input);
  for (size_t i = 0; i < input.places.size(); ++i) {
    const Place& place = input.places[i];
    int64_t credit = 0;
    if (Reservation* r = ReservationOn(node, place.device, i); r != nullptr) {
      credit = std::min(r->credit, Rounded(place.bytes));
      r->credit -= credit;
    }
    s.memory.Release(s.islands.at(input.island), place.device, Rounded(place.bytes) - credit);
  }
  s.to_pump.insert(input.island);
}

}  // namespace fairway
