// SPDX-License-Identifier: Apache-2.0
// The ends of nodes: their parts end, they conclude, their outputs settle (rule G3). A failed input
// fails everything that needs it, with the error of the lowest failed node, and nothing else.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/planted.h"
#include "controller/cluster/ending.h"
#include "controller/cluster/nodes.h"
#include "controller/cluster/poison.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {
// How long the report of an executor's loss may take after a pull from it failed. The end of an
// input may take any time.
constexpr int64_t kDeferredFailureMs = 15000;
// What a tick looks at, and the units after which it leaves the rest to the next one.
constexpr size_t kLooks = 1000, kLooksPerUnit = 8;
constexpr uint64_t kOverdueUnits = 500;
}  // namespace

void Cluster::Nodes::ParticipantEnded(Node& node, size_t index, absl::Status status) {
  Participant& participant = node.participants[index];
  const absl::Status failed = status;
  const bool had_ended = std::exchange(participant.done, true);
  if (!had_ended) participant.status = std::move(status);
  if (!failed.ok() && node.kind == NodeKind::kLaunch) Abandon(node, participant.executor, failed);
  if (had_ended) return;  // it has ended, and was lost since
  if (--node.open_participants > 0 || (Planted(Bug::kLoseCompletion) && node.id.value % 16 == 5))
    return;
  if (node.kind == NodeKind::kLaunch) return LaunchEnded(node);
  if (node.state == NodeState::kLaunched) return ReceiveEnded(node);
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

void Cluster::Nodes::Abandon(Node& node, ExecutorId on, const absl::Status& failed) {
  if (std::exchange(node.abandoned, true) || Planted(Bug::kNoAbandon)) return;
  // Of a sequence, this means that it failed as a whole or was lost there: if only a step of it
  // fails, its executor answers the others itself.
  const LaunchId last(node.launch_id.value + static_cast<uint64_t>(node.executable->max_steps) - 1);
  const auto tell = [&](ExecutorId other) {
    s.commands.Send(s.executors.at(other), AbandonLaunch{node.launch_id, last, failed},
                    node.session);
  };
  for (const Participant& other : node.participants) {
    if (!other.done) tell(other.executor);
  }
  for (size_t p = 0; node.for_all && p < node.layout->parts.size(); ++p) {
    if (node.layout->parts[p].executor != on) tell(node.layout->parts[p].executor);
  }
}

void Cluster::Nodes::PartFailed(Node& node, ExecutorId executor, absl::Status status) {
  const int32_t part = PartOn(*node.layout, executor);
  Abandon(node, executor, status);
  if (!node.part_failure.ok() && node.failed_part < part) return;
  node.part_failure = std::move(status);
  node.failed_part = part;
}

void Cluster::Nodes::AllEnded(Node& node) {
  // If it lost an executor, that has set `failure`: a session is told of losses before ends.
  node.open_participants = 0;
  LaunchEnded(node);
}

void Cluster::Nodes::ReceiveEnded(Node& node) {
  absl::Status result = ResultOf(node);
  // As for what is only prepared: the ends of its sources come first, and so does the loss of one.
  // But it does not wait for them when it was lost with its executor.
  const bool open = node.unsettled_inputs > 0 && node.failure.ok();
  const Group* const worst = open || result.ok() ? nullptr : WorstInput(s.all_groups, node);
  if (worst != nullptr && node.failure.ok())
    return Conclude(node, absl::Status(worst->error), worst->cause ? worst->cause : node.id);
  // Of a session that has ended, nobody hears the first cause.
  const bool waits = node.failure.ok() && PeerGone(result) && s.sessions.contains(node.session);
  if (!result.ok() && (open || waits))
    return Defer(node, Annotate(result, node.name + " to " + s.Where(node.island)));
  if (!open) EndWith(node, std::move(result));
}

void Cluster::Nodes::CancelReceive(Node& node, const absl::Status& why) {
  for (Participant& p : node.participants) {
    if (std::exchange(p.done, true)) continue;
    p.status = why;
    Executor& executor = s.executors.at(p.executor);
    if (executor.open.erase(p.seq) > 0)
      s.commands.Send(executor, CancelNode{node.id, why}, node.session);
  }
  node.open_participants = 0;
}

void Cluster::Nodes::Defer(Node& node, absl::Status failure) {
  node.deferred = std::move(failure);
  deferred_.insert(node.id);
}

void Cluster::Nodes::EndOverdue(int64_t now_ms) {
  const uint64_t until = s.units + kOverdueUnits;
  for (size_t i = std::min(deferred_.size(), kLooks); i > 0 && s.units < until; --i) {
    if (i % kLooksPerUnit == 0) s.Charge(1);
    auto next = deferred_.upper_bound(looked_at_);
    if (next == deferred_.end()) next = deferred_.begin();
    looked_at_ = *next;
    Node* const node = s.FindNode(looked_at_);
    if (node == nullptr || node->deferred.ok()) {
      deferred_.erase(next);
      continue;
    }
    if (node->unsettled_inputs > 0 && !PeerGone(node->deferred)) continue;
    if (node->deferred_since < 0) node->deferred_since = now_ms;
    if (now_ms - node->deferred_since < kDeferredFailureMs || s.losses.HasLosses(node->session) ||
        Planted(Bug::kNeverOverdue))
      continue;
    deferred_.erase(next);
    const absl::Status error = node->deferred;  // taking it back clears it
    if (node->kind == NodeKind::kLaunch && node->state == NodeState::kLaunched) {
      EndWith(*node, ResultOf(*node));
    } else {
      Fail(*node, error, node->id);
    }
  }
}

absl::Status Cluster::Nodes::ResultOf(const Node& node) {
  absl::Status result = node.failure;
  if (result.ok()) result = node.part_failure;
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
  if (IsSpread(node) && node.failure.ok() && without_peer != nullptr && PeerGone(*without_peer) &&
      (IsSequence(node) || WorstInput(s.all_groups, node) == nullptr)) {
    Defer(node, Annotate(*without_peer, node.name + " on " + s.Where(node.island)));
    return;
  }
  EndWith(node, std::move(result));
}

void Cluster::Nodes::EndWith(Node& node, absl::Status result) {
  // A launch may go ahead of an input that failed, and still end well on its own executors; so may
  // a receive of a shard that is fine, of a group of which another shard failed.
  const bool poisoned = !IsSequence(node) && node.may_have_failed_inputs();
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
  const bool prepared = node.state == NodeState::kPrepared;
  if (prepared && node.kind == NodeKind::kReceive) {
    // Its bytes may be on their way to other executors, so what receives them goes before it.
    TakingBack taking{status, {{node.id, node.attempt}}, {}, cause};
    // If somebody is about to take it back, he must not queue it again meanwhile.
    const bool overtakes = std::exchange(node.taken_back, true);
    const uint64_t slice = std::min(kSliceUnits, s.options.turn_units);
    const SessionId session = node.session;
    if (GoOnTakingBack(taking, overtakes ? UINT64_MAX : s.units + slice)) return;
    ++taking_back;
    s.WorkOf(session).taking_back.push_back(std::move(taking));
    return;
  }
  if (prepared) Cancel(node, status);
  if (node.state == NodeState::kQueued && node.kind != NodeKind::kFetch) {
    s.admission.Remove(node.id, node.island);
    s.parked.erase(node.id);
    s.to_pump.insert(node.island);
  }
  Conclude(node, status, cause);
}

void Cluster::Nodes::Conclude(Node& node, const absl::Status& status, NodeId cause) {
  const size_t groups = node.reads.size() + node.outputs.size();
  Ending ending;
  ending.node = &node;
  ending.status = status;
  ending.cause = cause;
  ending.in_turns = node.kind == NodeKind::kLaunch && groups > s.options.ends_at_once;
  ending.cancelled = node.state == NodeState::kPrepared && node.kind == NodeKind::kLaunch;
  s.Charge(1 + (ending.in_turns ? 0 : groups) + node.pieces.size() / 4);
  node.had_memory = node.state == NodeState::kLaunched || node.state == NodeState::kPrepared;
  // If a launch failed on one executor, its outputs on others stay until all launches behind it
  // have ended. Bytes of a failed receive stay until all its readers have been told.
  const bool launched = node.state == NodeState::kLaunched;
  const bool spread =
      node.had_memory && (node.kind == NodeKind::kReceive || (launched && IsSpread(node)));
  ending.keeps = status.ok() || spread;
  if (launched) s.islands.at(node.island).sequencer.Finished(node.id);
  Move(node, NodeState::kDone);
  NoLongerAhead(node);
  node.telling = false;
  node.deferred = absl::OkStatus();
  if (!ending.in_turns) {
    GoOnEnding(ending, UINT64_MAX);
  } else {
    if (!node.had_memory) node.reservations.clear();
    s.WorkOf(node.session).endings.push_back(std::make_unique<Ending>(std::move(ending)));
  }
}

bool Cluster::Nodes::GoOnEnding(Ending& ending, uint64_t until) {
  using Phase = Ending::Phase;
  Node& node = *ending.node;
  const auto open = s.sessions.find(node.session);
  Session* const session = open == s.sessions.end() ? nullptr : &open->second;
  // Calls `item` with the items of the phase that are left, and then begins the next phase. Returns
  // whether it has.
  const auto all = [&](auto& groups, const auto& item) {
    for (size_t i = 0; !ending.in_turns && i < groups.size(); ++i) item(groups[i], i);
    while (ending.in_turns && !groups.empty()) {
      if (s.units >= until) return false;
      s.Charge(1);
      const GroupId id = groups.back();
      item(id, groups.size() - 1);
      groups.pop_back();
    }
    ending.phase = static_cast<Phase>(static_cast<int>(ending.phase) + 1);
    return true;
  };
  if (ending.phase == Phase::kTaken) {
    if (!all(node.taken, [&](GroupId id, size_t) {
          if (Group* input = s.FindGroup(id); input->charged) s.launches.TakeOver(node, *input);
        }))
      return false;
    BeginOutputs(ending);
  }
  if (ending.phase == Phase::kOutputs) {
    if (!all(node.outputs, [&](GroupId id, size_t output) {
          SettleOutput(ending, output);
          if (ending.in_turns) LetGo(session, id);
        }))
      return false;
    OutputsSettled(ending, session);
  }
  if (ending.phase == Phase::kReads && !all(node.reads, [&](GroupId id, size_t) {
        Group& group = *s.FindGroup(id);
        if (!node.had_memory) s.groups.HasMemory(node, group, true);
        if (ending.in_turns && !group.settled()) --node.unsettled_inputs;
        s.groups.DropReader(id);
      }))
    return false;
  if (!ending.in_turns) {
    for (const GroupId id : node.outputs) LetGo(session, id);
  }
  TakeOut(node, session);
  return true;
}

void Cluster::Nodes::LetGo(Session* session, GroupId output) {
  Group* const group = s.FindGroup(output);
  if (group == nullptr) return;
  if (session != nullptr) Groups::Weigh(*session, *group);
  s.groups.Collect(*group);
}

void Cluster::Nodes::TakeOut(Node& node, Session* session) {
  if (session != nullptr && !Planted(Bug::kForgetNodeBytes))
    session->node_records.Remove(node.record_bytes);
  Holdings& has = s.holdings.at(node.session);
  has.nodes.erase(node.id);
  has.stakes.at(node.island).Count(&Stake::nodes, false);
  std::unique_ptr<Node> ended = s.all_nodes.Take(node.id);
  if (ended->large) --s.islands.at(ended->island).large;
  if (ended->layout != nullptr && --ended->layout->runs == 0 &&
      s.programs.retired.contains(ended->executable->id))
    s.programs.Forget(ended->executable->id);
  if (session == nullptr) s.ForgetHoldings(ended->session);
  if (ended->inputs.size() > s.options.ends_at_once)
    s.actions->Discard(std::shared_ptr<const Node>(std::move(ended)));
}

void Cluster::Nodes::BeginOutputs(Ending& ending) {
  Node& node = *ending.node;
  // What a donated input's memory was reserved for less is not kept.
  ending.keeps &=
      ending.status.ok() || std::all_of(node.reservations.begin(), node.reservations.end(),
                                        [](const Reservation& r) { return r.credit == 0; });
  if (node.had_memory) {
    if (node.kind != NodeKind::kLaunch) s.transfers.EndTransfer(node);
    StopReceiving(node);
    Island& island = s.islands.at(node.island);
    s.memory.CountTemporary(node, false);
    if (!Planted(Bug::kLeakReservation))
      s.memory.ReleaseEnded(island, node, ending.keeps || Planted(Bug::kKeepFailed));
    if (ending.in_turns && !ending.keeps) node.reservations.clear();
    if (ending.in_turns && ending.keeps) {
      for (Reservation& r : node.reservations.Own()) r.temp = 0;
    }
    s.to_pump.insert(node.island);
  }
  if (!ending.status.ok()) node.failed_outputs.clear();
  if (!IsSequence(node) || node.unsettled_inputs > 0) return;
  if (ending.in_turns) s.Charge(node.reads.size() / 4);
  // Some outputs fail with the error of an input. A sequence that was launched ahead may have made
  // them on its own executor, or failed by itself: the input's error counts, as the first cause. An
  // input that was there and was lost since is no reason to fail.
  const std::vector<int32_t> by =
      WorstInput(s.all_groups, node) != nullptr
          ? PoisonedBy(s.all_groups, node, /*lost_too=*/!ending.status.ok())
          : std::vector<int32_t>();
  for (size_t o = 0; o < by.size(); ++o) {
    if (by[o] < 0) continue;
    node.failed_outputs.insert_or_assign(static_cast<int32_t>(o),
                                         FailedOutput{ending.status, by[o]});
  }
}

void Cluster::Nodes::SettleOutput(Ending& ending, size_t output) {
  Node& node = *ending.node;
  Group& group = *s.FindGroup(node.outputs[output]);
  if (ending.cancelled) group.declared = false;
  const auto found = node.failed_outputs.find(static_cast<int32_t>(output));
  // Charged until the group is collected, as executors may hold some of its shards.
  const bool charged = ending.keeps && group.stored == nullptr;
  s.groups.SetCharged(group, charged);
  group.reserved = false;
  s.memory.CountLeaving(group);
  if (ending.in_turns) {
    s.ChargeShards(group.places.size());
    for (size_t i = 0; charged && i < group.places.size(); ++i) {
      const size_t at = ReservationOn(node, group.places[i].device, i) - node.reservations.begin();
      node.reservations.Own()[at].output -= Rounded(group.places[i].bytes);
    }
  }
  if (found == node.failed_outputs.end()) {
    ending.status.ok() ? s.groups.SetReady(group)
                       : s.groups.SetFailed(group, ending.status, ending.cause);
  } else {
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
  if (node.watch == 0 || group.state != GroupState::kFailed) return;
  if (!ending.failure.ok() && ending.failed_by <= group.cause) return;
  ending.failure = group.error;
  ending.failed_by = group.cause;
}

void Cluster::Nodes::OutputsSettled(Ending& ending, Session* session) {
  Node& node = *ending.node;
  if (node.watch != 0) {
    const bool failed = !ending.failure.ok();
    s.watches.Ended(node.session, node.watch, 0, failed ? ending.failure : ending.status,
                    failed ? ending.failed_by : ending.cause);
  }
  if (node.kind != NodeKind::kFetch) return;
  if (session != nullptr) {
    if (!ending.status.ok()) s.work.Fetched(node.session, node.token, ending.status);
    session->fetching -= std::exchange(node.pulling, 0);
  }
  s.transfers.FetchEnded(node);
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

}  // namespace fairway
