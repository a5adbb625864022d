// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sequencer.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"

namespace fairway {

void Sequencer::Prepared(NodeId node, SessionId session, const SharedVector<DeviceId>& devices,
                         uint64_t ids) {
  if (waiting_.contains(node)) return;
  waiting_.emplace(node, Known{session, Use(devices), ids});
}

void Sequencer::InputsArrived(NodeId node) {
  const auto it = waiting_.find(node);
  if (it == waiting_.end()) return;
  const Known& waiting = it->second;
  if (waiting.budget.kind == Budget::Kind::kGang)
    return gang_turns_.Add(node, waiting.session, waiting.budget.gangs);
  launchable_[waiting.budget].nodes.emplace(waiting.session, node);
  Update(waiting.budget);
}

void Sequencer::InputsMissing(NodeId node) {
  const auto it = waiting_.find(node);
  if (it == waiting_.end()) return;
  const Known& waiting = it->second;
  if (waiting.budget.kind == Budget::Kind::kGang)
    return gang_turns_.Remove(node, waiting.session, waiting.budget.gangs);
  const auto line = launchable_.find(waiting.budget);
  if (line == launchable_.end()) return;
  line->second.nodes.erase({waiting.session, node});
  Update(line->first);
}

void Sequencer::Finished(NodeId node) {
  const auto it = running_.find(node);
  if (it == running_.end()) return;
  const Budget budget = it->second.budget;
  running_.erase(it);
  if (budget.kind == Budget::Kind::kGang) {
    --gangs_in_flight_;
    gang_turns_.Ended(budget.gangs);
  } else if (budget.kind == Budget::Kind::kSingle) {
    const auto singles = singles_.find(budget.device);
    if (--singles->second == 0) singles_.erase(singles);
    Update(budget);
  }
  Release(budget);
}

void Sequencer::Forget(NodeId node) {
  InputsMissing(node);
  const auto it = waiting_.find(node);
  if (it == waiting_.end()) return;
  Release(it->second.budget);
  waiting_.erase(it);
}

void Sequencer::RaiseLaunchIds(uint64_t first) { next_id_ = std::max(next_id_, first); }

Sequencer::Budget Sequencer::Use(const SharedVector<DeviceId>& devices) {
  if (devices.empty()) return {};
  if (devices.size() == 1) return {Budget::Kind::kSingle, devices[0]};
  return {Budget::Kind::kGang, DeviceId(), gang_turns_.Use(devices)};
}

void Sequencer::Release(const Budget& budget) {
  if (budget.kind == Budget::Kind::kGang) gang_turns_.Release(budget.gangs);
}

bool Sequencer::Allows(const Budget& budget) const {
  if (budget.kind == Budget::Kind::kNone) return true;
  const auto it = singles_.find(budget.device);
  return it == singles_.end() || it->second < options_.max_singles_per_device;
}

NodeId Sequencer::Line::Next() const {
  const auto next = nodes.upper_bound({served, NodeId(UINT64_MAX)});
  return (next == nodes.end() ? nodes.begin() : next)->second;
}

void Sequencer::Update(const Budget& budget) {
  const auto it = launchable_.find(budget);
  if (it == launchable_.end()) return;
  Line& line = it->second;
  const NodeId first = line.nodes.empty() || !Allows(budget) ? NodeId() : line.Next();
  if (line.first != first) {
    if (line.first) firsts_.erase(line.first);
    if (first) firsts_.emplace(first, budget);
    line.first = first;
  }
  if (line.nodes.empty()) launchable_.erase(it);
}

NodeId Sequencer::NextOfFirsts() {
  if (firsts_.empty()) return NodeId();
  const auto [node, budget] = *firsts_.begin();
  Line& line = launchable_.at(budget);
  line.served = waiting_.at(node).session;
  line.nodes.erase({line.served, node});
  if (budget.kind == Budget::Kind::kSingle) ++singles_[budget.device];
  Update(budget);
  return node;
}

NodeId Sequencer::NextGang() {
  const std::optional<NodeId> node = gang_turns_.Next();
  if (!node.has_value()) return NodeId();
  ++gangs_in_flight_;
  ++gangs_granted_;
  return *node;
}

void Sequencer::Give(NodeId node, std::vector<Grant>& grants) {
  const auto it = waiting_.find(node);
  const bool gang = it->second.budget.kind == Budget::Kind::kGang;
  grants.push_back({node, LaunchId(next_id_)});
  if (!Planted(Bug::kLaunchIdReused) || !gang || next_id_ % 3 != 0) next_id_ += it->second.ids;
  if (Planted(Bug::kLaunchTwice) && gang) grants.push_back({node, LaunchId(next_id_++)});
  running_.insert(waiting_.extract(it));
}

std::vector<Grant> Sequencer::Step(size_t most) {
  std::vector<Grant> grants;
  bool any = true;
  while (std::exchange(any, false)) {
    // The two kinds take turns, since `most` may leave the rest to a later step.
    for (NodeId (Sequencer::*next)() : {&Sequencer::NextGang, &Sequencer::NextOfFirsts}) {
      if (grants.size() >= most) break;
      const NodeId node = (this->*next)();
      if (!node) continue;
      Give(node, grants);
      any = true;
    }
  }
  if (Planted(Bug::kLaunchOutOfOrder) && grants.size() > 1)
    std::swap(grants.front(), grants.back());
  return grants;
}

std::vector<NodeId> Sequencer::Running(NodeId from, size_t most) const {
  std::vector<NodeId> out;
  out.reserve(std::min(running_.size(), most));
  for (auto it = running_.lower_bound(from); it != running_.end() && out.size() < most; ++it)
    out.push_back(it->first);
  return out;
}

}  // namespace fairway
