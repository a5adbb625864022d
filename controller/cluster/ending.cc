// SPDX-License-Identifier: Apache-2.0
// The ends of nodes: their parts end, they conclude, their outputs settle (rule G3). A failed input
// fails everything that needs it, with the error of the lowest failed node, and nothing else.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/planted.h"
#include "controller/cluster/nodes.h"
#include "controller/cluster/poison.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {
// How long the report of an executor's loss may take after a pull from it failed.
constexpr int64_t kDeferredFailureMs = 15000;
}  // namespace

void Cluster::Nodes::ParticipantEnded(Node& node, size_t index, absl::Status status) {
  Participant& participant = node.participants[index];
  const absl::Status failed = status;
  const bool had_ended = std::exchange(participant.done, true);
  if (!had_ended) participant.status = std::move(status);
  if (!failed.ok() && node.kind == NodeKind::kLaunch && !std::exchange(node.abandoned, true)) {
    // The other participants may wait for it. They need to hear of one failure only. Of a sequence,
    // this means that it failed as a whole or was lost there: if only a step of it fails, its
    // executor answers the others itself.
    const LaunchId last(node.launch_id.value + static_cast<uint64_t>(node.executable->max_steps) -
                        1);
    for (const Participant& other : node.participants) {
      if (!other.done && !Planted(Bug::kNoAbandon))
        s.commands.Send(s.executors.at(other.executor), AbandonLaunch{node.launch_id, last, failed},
                        node.session);
    }
  }
  if (had_ended) return;  // it has ended, and was lost since
  if (--node.open_participants > 0 || (Planted(Bug::kLoseCompletion) && node.id.value % 16 == 5))
    return;
  if (node.kind == NodeKind::kLaunch) return LaunchEnded(node);
  absl::Status result = ResultOf(node);
  // A source may have failed, which the controller has yet to hear. Its producer then reports the
  // failure, which is the first cause.
  if (!result.ok() && (PeerGone(result) || node.unsettled_inputs > 0)) {
    Defer(node, Annotate(result, node.name + " to " + s.Where(node.island)));
    return;
  }
  // Nor is success certain before the sources' success is: the shard that it took may belong to a
  // group of which another shard fails.
  if (node.unsettled_inputs > 0) return;
  EndWith(node, std::move(result));
}

void Cluster::Nodes::Defer(Node& node, absl::Status failure) {
  node.deferred = std::move(failure);
  deferred_.insert(node.id);
}

void Cluster::Nodes::EndOverdue(int64_t now_ms) {
  std::vector<NodeId> overdue;
  std::erase_if(deferred_, [&](NodeId id) {
    Node* const node = s.FindNode(id);
    if (node == nullptr || node->deferred.ok()) return true;
    if (node->deferred_since < 0) node->deferred_since = now_ms;
    const bool late = now_ms - node->deferred_since >= kDeferredFailureMs;
    if (late && !s.losses.HasLosses(node->session) && !Planted(Bug::kNeverOverdue))
      overdue.push_back(id);
    return false;
  });
  for (const NodeId id : overdue) {
    Node* node = s.FindNode(id);
    if (node == nullptr) continue;
    const absl::Status error = node->deferred;  // taking it back clears it
    if (error.ok()) continue;
    if (node->kind == NodeKind::kLaunch && node->state == NodeState::kLaunched) {
      EndWith(*node, ResultOf(*node));
    } else {
      Fail(*node, error, id);
    }
  }
}

absl::Status Cluster::Nodes::ResultOf(const Node& node) {
  absl::Status result = node.failure;
  for (const Participant& p : node.participants) {
    if (result.ok()) result = p.status;
  }
  return result;
}

void Cluster::Nodes::LaunchEnded(Node& node) {
  // Its input shards may belong to groups of which other shards fail, on other executors.
  if (node.unsettled_inputs > 0) return;
  absl::Status result = ResultOf(node);
  // It ran on several executors, and one lost another: the controller will soon hear which and why.
  const absl::Status* const without_peer = result.ok() ? OutputWithoutPeer(node) : &result;
  if (node.participants.size() > 1 && node.failure.ok() && without_peer != nullptr &&
      PeerGone(*without_peer) && (IsSequence(node) || WorstInput(s.all_groups, node) == nullptr)) {
    Defer(node, Annotate(*without_peer, node.name + " on " + s.Where(node.island)));
    return;
  }
  EndWith(node, std::move(result));
}

void Cluster::Nodes::EndWith(Node& node, absl::Status result) {
  // A launch may go ahead of an input that failed, and still end well on its own executors.
  const bool poisoned = (!result.ok() || node.kind == NodeKind::kLaunch) && !IsSequence(node);
  const Group* poison = nullptr;
  for (size_t i = 0; poisoned && i < node.reads.size(); ++i) {
    // An input that was there and was lost since (it has no cause) is no reason to fail.
    const Group& input = *s.all_groups.at(node.reads[i]);
    if (input.cause) poison = Worse(poison, input);
  }
  if (poison != nullptr) return Conclude(node, absl::Status(poison->error), poison->cause);
  if (!result.ok() && node.failure.ok())
    result = Annotate(result, node.name + " on " + s.Where(node.island));
  Conclude(node, result, node.id);
}

void Cluster::Nodes::Fail(Node& node, const absl::Status& status, NodeId cause) {
  if (node.state == NodeState::kPrepared && node.kind == NodeKind::kReceive) {
    TakeBack({node.id}, status);  // its bytes may be on their way to other executors
  } else if (node.state == NodeState::kPrepared) {
    Unprepare(node, status);
  }
  if (node.state == NodeState::kQueued && node.kind != NodeKind::kFetch) {
    s.admission.Remove(node.id, node.island);
    s.parked.erase(node.id);
    s.to_pump.insert(node.island);
  }
  Conclude(node, status, cause);
}

void Cluster::Nodes::Conclude(Node& node, const absl::Status& status, NodeId cause) {
  s.Charge(1 + node.reads.size() + node.outputs.size() + node.pieces.size() / 4);
  const bool launched = node.state == NodeState::kLaunched;
  const bool held = launched || node.state == NodeState::kPrepared;
  if (launched) s.islands.at(node.island).sequencer.Finished(node.id);
  Move(node, NodeState::kDone);
  for (const GroupId id : node.taken) {
    if (Group* input = s.FindGroup(id); input->charged) s.launches.TakeOver(node, *input);
  }
  // If a launch failed on one executor, its outputs on others stay until all launches behind it
  // have ended. Bytes of a failed receive stay until all its readers have been told.
  const bool spread =
      held && (node.kind == NodeKind::kReceive || (launched && node.participants.size() > 1));
  const bool keeps =
      status.ok() || (spread && std::all_of(node.reservations.begin(), node.reservations.end(),
                                            [](const Reservation& r) { return r.credit == 0; }));
  if (held) {
    if (node.kind != NodeKind::kLaunch) s.transfers.EndTransfer(node);
    Island& island = s.islands.at(node.island);
    s.memory.CountTemporary(node, false);
    for (const Reservation& r : node.reservations) {
      if (!Planted(Bug::kLeakReservation)) s.memory.Release(island, r.device, r.temp);
      if (!keeps && !Planted(Bug::kKeepFailed))
        s.memory.Release(island, r.device, r.output - r.credit);
    }
    s.to_pump.insert(node.island);
  }
  SettleOutputs(node, status, cause, keeps);
  if (node.watch != 0) {
    const Group* worst = nullptr;  // of a sequence, some outputs may have failed
    for (const GroupId id : node.outputs) worst = Worse(worst, *s.FindGroup(id));
    s.watches.Ended(node.session, node.watch, 0, worst != nullptr ? worst->error : status,
                    worst != nullptr ? worst->cause : cause);
  }
  const auto session = s.sessions.find(node.session);
  const bool closed = session == s.sessions.end();
  if (!closed) {
    if (node.kind == NodeKind::kFetch && !status.ok())
      s.work.Fetched(node.session, node.token, status);
    if (!Planted(Bug::kForgetNodeBytes)) session->second.node_records.Remove(node.record_bytes);
    session->second.fetching -= node.pulling;
  }
  if (node.kind == NodeKind::kFetch) s.transfers.FetchEnded(node);
  Holdings& has = s.holdings.at(node.session);
  has.nodes.erase(node.id);
  --has.stakes.at(node.island).nodes;
  const std::unique_ptr<Node> ended = std::move(s.all_nodes.extract(node.id).mapped());
  if (ended->pieces.size() > kLargePieces) --s.islands.at(ended->island).large;
  if (ended->layout != nullptr && --ended->layout->runs == 0 &&
      s.programs.retired.contains(ended->executable->id))
    s.programs.Forget(ended->executable->id);
  for (const GroupId id : ended->reads) {
    if (!held) s.groups.HasMemory(*ended, *s.FindGroup(id), true);
    s.groups.DropReader(id);
  }
  for (const GroupId id : ended->outputs) {
    Group* const group = s.FindGroup(id);
    if (group == nullptr) continue;
    if (!closed) Groups::Weigh(session->second, *group);
    s.groups.Collect(*group);
  }
  if (closed) s.ForgetHoldings(ended->session);
}

bool Cluster::Nodes::FailIfPoisoned(Node& node) {
  if (node.making || node.unsettled_inputs > 0 || node.state == NodeState::kLaunched) return false;
  const Group* worst = WorstInput(s.all_groups, node);
  if (worst == nullptr || (Planted(Bug::kLaunchWithPoison) && node.kind == NodeKind::kLaunch))
    return false;
  if (IsSequence(node)) {
    const std::vector<int32_t> by = PoisonedBy(s.all_groups, node, /*lost_too=*/true);
    if (std::find(by.begin(), by.end(), -1) != by.end()) return false;
  }
  const absl::Status error = worst->error;
  Fail(node, error, worst->cause);
  return true;
}

void Cluster::Nodes::SettleOutputs(Node& node, const absl::Status& status, NodeId cause,
                                   bool charged) {
  if (!status.ok()) node.failed_outputs.clear();
  if (IsSequence(node) && node.unsettled_inputs == 0) {
    // Some outputs fail with the error of an input. A sequence that was launched ahead may have
    // made them on its own executor, or failed by itself: the input's error counts, as the first
    // cause. An input that was there and was lost since is no reason to fail.
    const std::vector<int32_t> by = WorstInput(s.all_groups, node) != nullptr
                                        ? PoisonedBy(s.all_groups, node, /*lost_too=*/!status.ok())
                                        : std::vector<int32_t>();
    for (size_t o = 0; o < by.size(); ++o) {
      if (by[o] < 0) continue;
      node.failed_outputs.insert_or_assign(static_cast<int32_t>(o), FailedOutput{status, by[o]});
    }
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    Group& group = *s.FindGroup(node.outputs[o]);
    const auto found = node.failed_outputs.find(static_cast<int32_t>(o));
    // Charged until the group is collected, as executors may hold some of its shards.
    s.groups.SetCharged(group, charged && group.stored == nullptr);
    group.reserved = false;
    s.memory.CountLeaving(group);
    if (found == node.failed_outputs.end()) {
      status.ok() ? s.groups.SetReady(group) : s.groups.SetFailed(group, status, cause);
      continue;
    }
    const auto& [why, argument, participant] = found->second;
    const Group* poison = argument >= 0 && static_cast<size_t>(argument) < node.inputs.size()
                              ? WorstOf(s.all_groups, node.inputs[argument])
                              : nullptr;
    if (poison != nullptr) {
      // An input that was there and was lost since has no cause: then this node is the cause.
      s.groups.SetFailed(group, poison->error, poison->cause ? poison->cause : node.id);
    } else {
      s.groups.SetFailed(group, Annotate(why, node.name + " on " + s.Where(node.island)), node.id);
    }
  }
}

}  // namespace fairway
