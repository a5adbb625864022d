// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sequencer.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"

namespace fairway {

void Sequencer::Prepared(NodeId node, std::vector<DeviceId> devices, uint64_t ids) {
  waiting_.emplace(node, Waiting{std::move(devices), ids});
}

void Sequencer::InputsArrived(NodeId node) {
  if (waiting_.contains(node)) launchable_.insert(node);
}

void Sequencer::Finished(NodeId node) {
  const auto it = running_.find(node);
  if (it == running_.end()) return;
  GiveBack(it->second);
  running_.erase(it);
}

void Sequencer::Forget(NodeId node) {
  waiting_.erase(node);
  launchable_.erase(node);
}

void Sequencer::RaiseLaunchIds(uint64_t first) { next_id_ = std::max(next_id_, first); }

bool Sequencer::HasBudget(const std::vector<DeviceId>& devices) const {
  if (devices.size() > 1)
    return gangs_in_flight_ < options_.max_gangs_in_flight || Planted(Bug::kTooManyGangs);
  const auto it = devices.empty() ? singles_.end() : singles_.find(devices[0]);
  return it == singles_.end() || it->second < options_.max_singles_per_device;
}

void Sequencer::Take(const std::vector<DeviceId>& devices) {
  if (devices.size() > 1) {
    ++gangs_in_flight_;
    ++gangs_granted_;
  } else if (!devices.empty()) {
    ++singles_[devices[0]];
  }
}

void Sequencer::GiveBack(const std::vector<DeviceId>& devices) {
  if (devices.size() > 1) {
    --gangs_in_flight_;
  } else if (!devices.empty()) {
    const auto it = singles_.find(devices[0]);
    if (--it->second == 0) singles_.erase(it);
  }
}

std::vector<Grant> Sequencer::Step() {
  std::vector<Grant> grants;
  for (auto it = launchable_.begin(); it != launchable_.end();) {
    const NodeId node = *it;
    const auto waiting = waiting_.find(node);
    const auto& [devices, ids] = waiting->second;
    if (!HasBudget(devices)) {
      ++it;
      continue;
    }
    Take(devices);
    grants.push_back({node, LaunchId(next_id_)});
    if (!Planted(Bug::kLaunchIdReused) || devices.size() < 2 || next_id_ % 3 != 0) next_id_ += ids;
    if (Planted(Bug::kLaunchTwice) && devices.size() > 1)
      grants.push_back({node, LaunchId(next_id_++)});
    running_.emplace(node, devices);
    waiting_.erase(waiting);
    it = launchable_.erase(it);
  }
  if (Planted(Bug::kLaunchOutOfOrder) && grants.size() > 1)
    std::swap(grants.front(), grants.back());
  return grants;
}

}  // namespace fairway
