// SPDX-License-Identifier: Apache-2.0
// The spread of failures: a failed input fails everything that needs it, with the error of the
// lowest failed node (docs/architecture.md, poison), and nothing else.
#include <algorithm>

#include "base/planted.h"
#include "controller/cluster/poison.h"
#include "controller/cluster/state.h"

namespace fairway {

const Group* WorstOf(const GroupTable& groups, const std::vector<ShardRef>& shards) {
  const Group* worst = nullptr;
  for (const ShardRef& ref : shards) worst = Worse(worst, *groups.at(ref.group));
  return worst;
}

const Group* WorstInput(const GroupTable& groups, const Node& node) {
  const Group* worst = nullptr;
  for (const GroupId id : node.reads) worst = Worse(worst, *groups.at(id));
  return worst;
}

const Group* Worse(const Group* worst, const Group& other) {
  if (other.state != GroupState::kFailed) return worst;
  const bool earlier = worst == nullptr || other.cause < worst->cause;
  return earlier != (Planted(Bug::kWrongCause) && worst != nullptr) ? &other : worst;
}

bool Cluster::State::FailIfPoisoned(Node& node) {
  if (node.unsettled_inputs > 0 || node.state == NodeState::kLaunched) return false;
  const Group* worst = WorstInput(all_groups, node);
  if (worst == nullptr || (Planted(Bug::kLaunchWithPoison) && node.kind == NodeKind::kLaunch))
    return false;
  if (IsSequence(node)) {
    const std::vector<int32_t> by = PoisonedBy(all_groups, node, /*lost_too=*/true);
    if (std::find(by.begin(), by.end(), -1) != by.end()) return false;
  }
  const absl::Status error = worst->error;
  Fail(node, error, worst->cause);
  return true;
}

std::vector<int32_t> PoisonedBy(const GroupTable& groups, const Node& node, bool lost_too) {
  std::vector<bool> failed;
  for (const std::vector<ShardRef>& argument : node.inputs) {
    failed.push_back(std::any_of(argument.begin(), argument.end(), [&](const ShardRef& ref) {
      const Group& group = *groups.at(ref.group);
      return group.state == GroupState::kFailed && (lost_too || group.cause);
    }));
  }
  return FailedBy(*node.executable->sequence, failed);
}

void OutputsFailed(Node& node, size_t participant, std::map<int32_t, FailedOutput> failures) {
  for (auto& [output, failure] : failures) {
    failure.participant = participant;
    const auto [known, absent] = node.failed_outputs.try_emplace(output, failure);
    const auto order = [](const FailedOutput& f) {
      return std::pair(f.argument < 0, f.participant);
    };
    if (!absent && order(failure) < order(known->second)) known->second = std::move(failure);
  }
}

const absl::Status* OutputWithoutPeer(const Node& node) {
  for (const auto& [output, failure] : node.failed_outputs) {
    if (failure.argument < 0 && PeerGone(failure.status)) return &failure.status;
  }
  return nullptr;
}

void Cluster::State::SettleOutputs(Node& node, const absl::Status& status, NodeId cause,
                                   bool charged) {
  if (!status.ok()) node.failed_outputs.clear();
  if (IsSequence(node) && node.unsettled_inputs == 0) {
    // Some outputs fail with the error of an input. A sequence that was launched ahead may have
    // made them on its own executor, or failed by itself: the input's error counts, as the first
    // cause. An input that was there and was lost since is no reason to fail.
    const std::vector<int32_t> by = WorstInput(all_groups, node) != nullptr
                                        ? PoisonedBy(all_groups, node, /*lost_too=*/!status.ok())
                                        : std::vector<int32_t>();
    for (size_t o = 0; o < by.size(); ++o) {
      if (by[o] < 0) continue;
      node.failed_outputs.insert_or_assign(static_cast<int32_t>(o), FailedOutput{status, by[o]});
    }
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    Group& group = *FindGroup(node.outputs[o]);
    const auto found = node.failed_outputs.find(static_cast<int32_t>(o));
    // Charged until the group is collected, as executors may hold some of its shards.
    groups.SetCharged(group, charged && group.stored == nullptr);
    group.reserved = false;
    memory.CountLeaving(group);
    if (found == node.failed_outputs.end()) {
      status.ok() ? groups.SetReady(group) : groups.SetFailed(group, status, cause);
      continue;
    }
    const auto& [why, argument, participant] = found->second;
    const Group* poison = argument >= 0 && static_cast<size_t>(argument) < node.inputs.size()
                              ? WorstOf(all_groups, node.inputs[argument])
                              : nullptr;
    if (poison != nullptr) {
      // An input that was there and was lost since has no cause: then this node is the cause.
      groups.SetFailed(group, poison->error, poison->cause ? poison->cause : node.id);
    } else {
      groups.SetFailed(group, Annotate(why, node.name + " on " + Where(node.island)), node.id);
    }
  }
}

}  // namespace fairway
