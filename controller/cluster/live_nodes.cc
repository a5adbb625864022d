// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/live_nodes.h"

#include <algorithm>
#include <cassert>

#include "controller/cluster/state.h"

namespace fairway {

void Cluster::LiveNodes::Charge(size_t steps) {
  steps_ += steps;
  s.Charge(steps_ / kStepsPerUnit);
  steps_ %= kStepsPerUnit;
}

bool Cluster::LiveNodes::GoOn(NodeId before, uint64_t until) {
  auto next = s.all_nodes.lower_bound(next_);
  do {
    if (!counts_.empty()) {
      CountReads();
    } else if (!looks_.empty()) {
      const Look look = looks_.front();
      looks_.pop_front();
      LookAt(look);
    } else if (!woken_.empty()) {
      LookAtWoken();
    } else if (next != s.all_nodes.end() && next->first < before) {
      const NodeId node = next++->first;
      next_ = NodeId(node.value + 1);
      LookAt({node, 0});
    } else {
      next_ = std::max(next_, before);
      return true;
    }
  } while (s.units < until);
  return false;
}

void Cluster::LiveNodes::LookAt(Look look) {
  Charge(1);
  const Node* const node = s.FindNode(look.node);  // nullptr: it has ended
  const bool known = live_.contains(look.node);
  if (node != nullptr && !known && !IsLive(*node, look.read)) return;
  if (node != nullptr) CountMemory(*node);
  if (known) return;
  live_.insert(look.node);
  if (node != nullptr && !node->reads.empty()) counts_.push_back({look.node, 0});
  Wake(look.node);
}

bool Cluster::LiveNodes::IsLive(const Node& node, size_t read) {
  if (node.state == NodeState::kLaunched || node.state == NodeState::kDone) return true;
  if ((node.state == NodeState::kWaiting && !node.held()) || node.paced) return false;
  for (const size_t most = read + kReadsAtOnce; read < node.reads.size(); ++read) {
    if (read == most) {
      looks_.push_front({node.id, read});
      return false;
    }
    Charge(1);
    const NodeId producer = s.all_groups.at(node.reads[read])->producer;
    assert(producer < node.id);
    if (!producer || live_.contains(producer)) continue;
    blocked_.insert_or_assign({producer, node.id}, read);
    return false;
  }
  const bool in_queue = node.state == NodeState::kQueued && node.kind != NodeKind::kFetch;
  if (!in_queue || s.parked.contains(node.id) || Moves(node.island)) return true;
  blocked_.insert_or_assign({node.island, node.id}, read);
  return false;
}

bool Cluster::LiveNodes::Moves(IslandId island) const {
  if (!s.IslandUp(s.islands.at(island))) return false;
  const auto holder = on_island_.lower_bound({island, SessionId()});
  return (holder != on_island_.end() && holder->first.first == island) ||
         !s.admission.Oldest(island);
}

void Cluster::LiveNodes::CountMemory(const Node& node) {
  if (!node.held() && node.kind != NodeKind::kFetch && node.has_memory())
    Count(node.id, node.session, node.island, node.reservations);
}

void Cluster::LiveNodes::CountReads() {
  Look& count = counts_.front();
  const Node* const node = s.FindNode(count.node);
  const size_t all = node == nullptr ? 0 : node->reads.size();
  const size_t most = std::min(all, count.read + kReadsAtOnce);
  for (; count.read < most; ++count.read) {
    Charge(1);
    const Group& group = *s.all_groups.at(node->reads[count.read]);
    // Of what lies on the node's island, its own memory tells all.
    const bool own =
        node->island == group.island && !node->held() && node->kind != NodeKind::kFetch;
    if (own || group.stored != nullptr) continue;
    if (WillBeGivenBack(group)) {
      Count(node->id, node->session, group.island, group.places);
    } else if (const auto [first, fresh] = held_.try_emplace(group.id, node->id); !fresh) {
      first->second = std::min(first->second, node->id);
    }
  }
  if (count.read >= all) counts_.pop_front();
}

void Cluster::LiveNodes::GivenUp(const Group& group) {
  const auto reader = held_.find(group.id);
  if (reader == held_.end()) return;
  Count(reader->second, group.session, group.island, group.places);
  held_.erase(reader);
}

template <typename Places>
void Cluster::LiveNodes::Count(NodeId node, SessionId session, IslandId island,
                               const Places& places) {
  Charge(places.size() / kDevicesPerStep);
  const auto keep_first = [&](auto& firsts, const auto& key) {
    const auto [first, fresh] = firsts.try_emplace(key, node);
    if (!fresh) first->second = std::min(first->second, node);
    return fresh;
  };
  for (const auto& place : places) keep_first(on_device_, place.device);
  if (keep_first(on_island_, std::pair(island, session))) Wake(island);
}

void Cluster::LiveNodes::Wake(Blocker blocker) {
  const auto first = blocked_.lower_bound({blocker, NodeId()});
  if (first != blocked_.end() && first->first.first == blocker) woken_.push_back(blocker);
}

void Cluster::LiveNodes::LookAtWoken() {
  const auto first = blocked_.lower_bound({woken_.front(), NodeId()});
  if (first == blocked_.end() || first->first.first != woken_.front()) return woken_.pop_front();
  const Look look = {first->first.second, first->second};
  blocked_.erase(first);
  LookAt(look);
}

bool Cluster::LiveNodes::WillFree(NodeId before, DeviceId device, IslandId island,
                                  SessionId session) const {
  const auto there = on_device_.find(device);
  const auto own = on_island_.find({island, session});
  return (there != on_device_.end() && there->second < before) ||
         (own != on_island_.end() && own->second < before);
}

}  // namespace fairway
