// SPDX-License-Identifier: Apache-2.0
// The arguments that a launch takes over (rule B1), and the memory that this saves.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

bool Cluster::Launches::CertainlyTaken(const Group& group, const GroupUse& use) {
  // A group that is only partly donated stays in memory until it is freed.
  return (group.readers == 1 || Planted(Bug::kDonateWithReader)) && group.all_deleted() &&
         use.alone && use.shards == group.places.size();
}

std::vector<bool> Cluster::Launches::CertainlyDonated(const Node& node) {
  if (node.donatable.empty()) return {};
  std::vector<bool> donated(node.inputs.size());
  std::unordered_map<GroupId, GroupUse> uses;
  for (size_t a = 0; a < node.inputs.size(); ++a) {
    std::pair<const GroupId, GroupUse>* last = nullptr;
    uint32_t begin = 0;
    for (const ShardList::Run& run : node.inputs[a].runs()) {
      if (last == nullptr || last->first != run.group)
        last = &*uses.try_emplace(run.group, GroupUse{a}).first;
      last->second.Add(a, run.end - std::exchange(begin, run.end));
    }
  }
  for (const int32_t a : node.donatable) {
    const GroupIds of = GroupsOf(node.inputs[a]);
    donated[a] = std::all_of(of.begin(), of.end(), [&](GroupId id) {
      return CertainlyTaken(*s.FindGroup(id), uses.at(id));
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
    if (const Reservation* r = ReservationOn(node, place.device, i); r != nullptr) {
      credit = std::min(r->credit, Rounded(place.bytes));
      AddCredit(node, *r, -credit);
    }
    s.memory.Release(s.islands.at(input.island), place.device, Rounded(place.bytes) - credit);
  }
  s.to_pump.insert(input.island);
}

}  // namespace fairway
