// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/poison.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/planted.h"

namespace fairway {

const Group* WorstOf(const GroupTable& groups, const ShardList& shards) {
  const Group* worst = nullptr;
  for (const ShardList::Run& run : shards.runs()) worst = Worse(worst, *groups.at(run.group));
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

std::vector<int32_t> PoisonedBy(const GroupTable& groups, const Node& node, bool lost_too) {
  std::set<GroupId> poison;
  for (const GroupId id : node.reads) {
    const Group& group = *groups.at(id);
    if (group.state == GroupState::kFailed && (lost_too || group.cause)) poison.insert(id);
  }
  std::vector<bool> failed;
  for (const ShardList& argument : node.inputs) {
    const auto runs = argument.runs();
    failed.push_back(std::any_of(runs.begin(), runs.end(), [&](const ShardList::Run& run) {
      return poison.contains(run.group);
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

}  // namespace fairway
