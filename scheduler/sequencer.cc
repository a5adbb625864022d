// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sequencer.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"

namespace fairway {

void Sequencer::Prepared(NodeId node, SessionId session, const std::vector<DeviceId>& devices,
                         uint64_t ids) {
  waiting_.emplace(node, Waiting{session, BudgetOf(devices), ids});
}

void Sequencer::InputsArrived(NodeId node) {
  const auto waiting = waiting_.find(node);
  if (waiting == waiting_.end()) return;
  launchable_[waiting->second.budget].nodes.emplace(waiting->second.session, node);
  Update(waiting->second.budget);
}

void Sequencer::InputsMissing(NodeId node) {
  const auto waiting = waiting_.find(node);
  if (waiting == waiting_.end()) return;
  const auto line = launchable_.find(waiting->second.budget);
  if (line == launchable_.end()) return;
  line->second.nodes.erase({waiting->second.session, node});
  Update(line->first);
}

void Sequencer::Finished(NodeId node) {
  const auto it = running_.find(node);
  if (it == running_.end()) return;
  GiveBack(it->second);
  Update(it->second);
  running_.erase(it);
}

void Sequencer::Forget(NodeId node) {
  InputsMissing(node);
  waiting_.erase(node);
}

void Sequencer::RaiseLaunchIds(uint64_t first) { next_id_ = std::max(next_id_, first); }

Sequencer::Budget Sequencer::BudgetOf(const std::vector<DeviceId>& devices) {
  if (devices.empty()) return {};
  if (devices.size() == 1) return {Budget::Kind::kSingle, devices[0]};
  return {Budget::Kind::kGang, DeviceId()};
}

bool Sequencer::Allows(const Budget& budget) const {
  switch (budget.kind) {
    case Budget::Kind::kNone:
      return true;
    case Budget::Kind::kSingle: {
      const auto it = singles_.find(budget.device);
      return it == singles_.end() || it->second < options_.max_singles_per_device;
    }
    case Budget::Kind::kGang:
      return gangs_in_flight_ < options_.max_gangs_in_flight || Planted(Bug::kTooManyGangs);
  }
  return true;
}

void Sequencer::Take(const Budget& budget) {
  if (budget.kind == Budget::Kind::kGang) {
    ++gangs_in_flight_;
    ++gangs_granted_;
  } else if (budget.kind == Budget::Kind::kSingle) {
    ++singles_[budget.device];
  }
}

void Sequencer::GiveBack(const Budget& budget) {
  if (budget.kind == Budget::Kind::kGang) {
    --gangs_in_flight_;
  } else if (budget.kind == Budget::Kind::kSingle) {
    const auto it = singles_.find(budget.device);
    if (--it->second == 0) singles_.erase(it);
  }
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

std::vector<Grant> Sequencer::Step(size_t most) {
  std::vector<Grant> grants;
  while (grants.size() < most && !firsts_.empty()) {
    const auto [node, budget] = *firsts_.begin();
    const auto waiting = waiting_.find(node);
    Line& line = launchable_.at(budget);
    line.served = waiting->second.session;
    line.nodes.erase({line.served, node});
    const bool gang = budget.kind == Budget::Kind::kGang;
    Take(budget);
    Update(budget);
    grants.push_back({node, LaunchId(next_id_)});
    if (!Planted(Bug::kLaunchIdReused) || !gang || next_id_ % 3 != 0)
      next_id_ += waiting->second.ids;
    if (Planted(Bug::kLaunchTwice) && gang) grants.push_back({node, LaunchId(next_id_++)});
    running_.emplace(node, budget);
    waiting_.erase(waiting);
  }
  if (Planted(Bug::kLaunchOutOfOrder) && grants.size() > 1)
    std::swap(grants.front(), grants.back());
  return grants;
}

std::vector<NodeId> Sequencer::Running() const {
  std::vector<NodeId> out;
  out.reserve(running_.size());
  for (const auto& [node, budget] : running_) out.push_back(node);
  return out;
}

}  // namespace fairway
