// SPDX-License-Identifier: Apache-2.0
// Waiting for memory (rule B2). Nodes are admitted in program order, so that the oldest that waits
// depends only on nodes that hold their memory. A node that comes late (its bytes came late, an
// executor was away) finds that younger ones, perhaps its own dependants, were admitted before it:
// those that have not begun make room again.
#include <algorithm>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

void Cluster::State::AddReservation(std::vector<Reservation>& reservations, DeviceId device,
                                    int64_t output, int64_t temp) {
  auto it = std::find_if(reservations.begin(), reservations.end(),
                         [&](const Reservation& r) { return r.device == device; });
  if (it == reservations.end()) it = reservations.insert(it, Reservation{device, 0, 0, 0});
  // More than any device has, and sums of a few of these fit into 64 bits.
  constexpr int64_t kMost = 2 * Admission::kNoLimit;
  it->output = std::min(it->output + Rounded(std::min(output, kMost)), kMost);
  it->temp = std::min(it->temp + Rounded(std::min(temp, kMost)), kMost);
}

Reservation* Cluster::State::ReservationOn(Node& node, DeviceId device, size_t position) {
  std::vector<Reservation>& list = node.reservations;
  if (position < list.size() && list[position].device == device) return &list[position];
  const auto it = std::find_if(list.begin(), list.end(),
                               [&](const Reservation& r) { return r.device == device; });
  return it == list.end() ? nullptr : &*it;
}

std::vector<MemoryNeed> Cluster::State::Needs(const Node& node) const {
  std::vector<MemoryNeed> needs;
  needs.reserve(node.reservations.size());
  for (const Reservation& r : node.reservations) needs.push_back({r.device, r.total()});
  return needs;
}

bool Cluster::State::MakeRoom(const Node& node) {
  std::map<DeviceId, int64_t> missing;
  for (const MemoryNeed& need : Needs(node)) {
    const int64_t lacks = need.bytes - admission.room(need.device);
    if (lacks > 0) missing[need.device] = lacks;
  }
  std::set<NodeId> victims;
  const std::set<NodeId>& prepared = islands.at(node.island).prepared;
  for (auto it = prepared.rbegin(); it != prepared.rend() && *it > node.id && !missing.empty();
       ++it) {
    const Node& younger = *nodes.at(*it);
    for (const Reservation& r : younger.reservations) {
      const auto lacks = missing.find(r.device);
      if (lacks == missing.end() || r.total() == 0) continue;
      victims.insert(younger.id);
      if ((lacks->second -= r.total()) <= 0) missing.erase(lacks);
    }
  }
  if (!missing.empty()) return false;
  TakeBack(std::move(victims), absl::AbortedError("an older node needs the memory"));
  return true;
}

bool Cluster::State::HoldsMemoryOf(const Node& node, IslandId island) const {
  if (node.island == island && !node.held() && node.kind != NodeKind::kFetch)
    return node.state == NodeState::kPrepared || node.state == NodeState::kLaunched;
  // What the client has not given up stays when its reader has ended.
  return std::any_of(node.reads.begin(), node.reads.end(), [&](GroupId id) {
    const Group& group = *groups.at(id);
    return group.island == island && (group.handle_refs == 0 || group.all_deleted());
  });
}

bool Cluster::State::AnotherWillFree(IslandId island, const std::set<NodeId>& live) const {
  if (Planted(Bug::kWaitForEver) || Planted(Bug::kGiveUpEarly)) return Planted(Bug::kWaitForEver);
  return std::any_of(live.begin(), live.end(),
                     [&](NodeId id) { return HoldsMemoryOf(*nodes.at(id), island); });
}

void Cluster::State::Release(Island& island, DeviceId device, int64_t bytes) {
  admission.Release(device, bytes);
  if (bytes <= 0) return;
  island.stuck_since = -1;
  island.gives_up = false;
}

void Cluster::State::GiveUpStuck(int64_t now_ms) {
  std::optional<std::set<NodeId>> live;
  for (auto& [id, island] : islands) {
    if (!IslandUp(island) || !admission.Head(id)) {
      island.stuck_since = -1;
      island.gives_up = false;
      continue;
    }
    const bool elapsed =
        island.stuck_since >= 0 && now_ms - island.stuck_since >= options.admission_grace_ms;
    if (elapsed && !island.gives_up) {
      if (!live) live = LiveNodes();
      island.gives_up = !AnotherWillFree(id, *live);
    }
    if (elapsed && island.gives_up) {
      FailStuck(island);
      live.reset();
    } else if (elapsed || island.stuck_since < 0) {
      island.stuck_since = now_ms;
      island.stuck_through = num_submitted;
    }
  }
}

void Cluster::State::FailStuck(Island& island) {
  constexpr int kInATurn = 256;  // the others follow in the next turns
  std::map<DeviceId, Held> held;
  // As long as nothing is freed and nothing begins, all that has waited as long is as stuck.
  for (int i = 0; i < kInATurn && island.gives_up; ++i) {
    const auto head = admission.Head(island.id);
    if (!head) return;
    Node& node = *FindNode(head->node);
    if (node.submitted > island.stuck_through) {
      island.stuck_since = -1;
      island.gives_up = false;
      return;
    }
    const auto [at, fresh] = held.try_emplace(head->device);
    if (fresh) at->second = HeldOn(head->device);
    ++island.given_up;
    Fail(node,
         Exhausted(*head, WhoHolds(at->second, node.session) +
                              ". No work that is under way would free enough"),
         node.id);
    Settle();
  }
}

std::set<NodeId> Cluster::State::LiveNodes() const {
  std::set<NodeId> live;
  std::set<IslandId> moving;  // islands whose queue moves
  for (size_t before = SIZE_MAX; before != live.size() + moving.size();) {
    before = live.size() + moving.size();
    for (const auto& [id, island] : islands) {
      if (moving.contains(id) || !IslandUp(island)) continue;
      if (!admission.Head(id) || AnotherWillFree(id, live)) moving.insert(id);
    }
    for (const auto& [id, node] : nodes) {
      const bool fed = std::all_of(node->reads.begin(), node->reads.end(), [&](GroupId g) {
        const NodeId producer = groups.at(g)->producer;
        return !producer || live.contains(producer);
      });
      const bool in_queue = node->state == NodeState::kQueued && node->kind != NodeKind::kFetch;
      const bool admitted = !in_queue || parked.contains(id) || moving.contains(node->island);
      const bool known = node->state != NodeState::kWaiting || node->held();
      const bool begins = known && fed && admitted;
      if (begins || node->state == NodeState::kLaunched) live.insert(id);
    }
  }
  return live;
}

}  // namespace fairway
