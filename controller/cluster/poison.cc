// SPDX-License-Identifier: Apache-2.0
// What fails with what: a failed input makes everything fail that needs it, with the error of the
// lowest failed node (docs/architecture.md, poison), and nothing else.
#include <algorithm>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

const Group* Cluster::State::WorstOf(const std::vector<ShardRef>& shards) const {
  const Group* worst = nullptr;
  for (const ShardRef& ref : shards) worst = Worse(worst, *groups.at(ref.group));
  return worst;
}

const Group* Cluster::State::WorstInput(const Node& node) const {
  const Group* worst = nullptr;
  for (const GroupId id : node.reads) worst = Worse(worst, *groups.at(id));
  return worst;
}

const Group* Cluster::State::Worse(const Group* worst, const Group& other) {
  if (other.state != GroupState::kFailed) return worst;
  const bool earlier = worst == nullptr || other.cause < worst->cause;
  return earlier != (Planted(Bug::kWrongCause) && worst != nullptr) ? &other : worst;
}

bool Cluster::State::FailIfPoisoned(Node& node) {
  if (node.unsettled_inputs > 0 || node.state == NodeState::kLaunched) return false;
  const Group* worst = WorstInput(node);
  if (worst == nullptr || (Planted(Bug::kLaunchWithPoison) && node.kind == NodeKind::kLaunch))
    return false;
  if (IsSequence(node)) {
    const std::vector<int32_t> by = PoisonedBy(node);
    if (std::find(by.begin(), by.end(), -1) != by.end()) return false;
  }
  const absl::Status error = worst->error;
  Fail(node, error, worst->cause);
  return true;
}

std::vector<int32_t> Cluster::State::PoisonedBy(const Node& node) const {
  std::vector<bool> failed;
  for (const std::vector<ShardRef>& argument : node.inputs)
    failed.push_back(WorstOf(argument) != nullptr);
  return FailedBy(*node.executable->sequence, failed);
}

absl::Status Cluster::State::FirstFailure(const Node& node, const absl::Status& status) {
  if (!status.ok()) return status;
  for (const auto& [output, failure] : node.failed_outputs) {
    if (failure.argument < 0) return failure.status;
  }
  return absl::OkStatus();
}

void Cluster::State::SettleOutputs(Node& node, const absl::Status& status, NodeId cause,
                                   bool charged) {
  if (!status.ok() && IsSequence(node) && node.unsettled_inputs == 0) {
    // Some would have failed anyway, and with that error.
    node.failed_outputs.clear();
    const std::vector<int32_t> by = PoisonedBy(node);
    for (size_t o = 0; o < by.size(); ++o) {
      if (by[o] >= 0) node.failed_outputs[static_cast<int32_t>(o)] = {status, by[o]};
    }
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    Group& group = *FindGroup(node.outputs[o]);
    const auto found = node.failed_outputs.find(static_cast<int32_t>(o));
    group.charged = charged;  // until it is collected, as executors may hold some of it
    if (found == node.failed_outputs.end()) {
      status.ok() ? SetReady(group) : SetFailed(group, status, cause);
      continue;
    }
    const auto& [why, argument] = found->second;
    const Group* poison = argument >= 0 && static_cast<size_t>(argument) < node.inputs.size()
                              ? WorstOf(node.inputs[argument])
                              : nullptr;
    if (poison != nullptr) {
      // What was lost after it had been there has no cause; of this it is.
      SetFailed(group, poison->error, poison->cause ? poison->cause : node.id);
    } else {
      SetFailed(group, Annotate(why, node.name + " on " + Where(node)), node.id);
    }
  }
}

}  // namespace fairway
