// SPDX-License-Identifier: Apache-2.0
// The life of a node: queued, prepared, launched, ended.
#include <algorithm>
#include <cassert>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/poison.h"
#include "controller/cluster/state.h"

namespace fairway {

bool CanMove(NodeState from, NodeState to) {
  switch (from) {
    case NodeState::kWaiting:
      return to == NodeState::kQueued || to == NodeState::kDone;
    case NodeState::kQueued:
      return to == NodeState::kPrepared || to == NodeState::kDone;
    case NodeState::kPrepared:
      return to == NodeState::kLaunched || to == NodeState::kQueued || to == NodeState::kDone;
    case NodeState::kLaunched:
      return to == NodeState::kDone;
    case NodeState::kDone:
      return false;
  }
  return false;
}

Node* Cluster::State::FindNode(NodeId id) {
  const auto it = nodes.find(id);
  return it == nodes.end() ? nullptr : it->second.get();
}

Node& Cluster::State::MakeNode(SessionId session, NodeKind kind, IslandId island,
                               std::string name) {
  return InsertNode(NewNode(session, kind, island, std::move(name)));
}

std::unique_ptr<Node> Cluster::State::NewNode(SessionId session, NodeKind kind, IslandId island,
                                              std::string name) {
  auto node = std::make_unique<Node>();
  node->session = session;
  node->kind = kind;
  node->island = island;
  node->name = std::move(name);
  Charge(1);
  return node;
}

Node& Cluster::State::InsertNode(std::unique_ptr<Node> node) {
  node->id = NodeId(next_node++);
  const SessionId session = node->session;
  Node& made = *node;
  nodes.emplace(made.id, std::move(node));
  Holdings& has = holdings[session];
  has.nodes.insert(has.nodes.end(), made.id);  // it is the youngest
  ++StakeOf(has, made.island).nodes;
  return made;
}

Node& Cluster::State::Insert(Session& session, Making::Made made) {
  // Its stored sources are placed first, because the nodes that place them need lower ids.
  if (!stored_groups.BeginToStore(session, made) && stored_groups.PlaceShards(made.node->sources)) {
    made.node->reads = GroupsOf(made.node->sources);
    std::erase(made.node->reads, made.group->id);
  }
  Node& node = InsertNode(std::move(made.node));
  made.group->producer = node.id;
  groups.Insert(std::move(made.group));
  session.node_records.Add(node.record_bytes);
  if (node.pieces.size() > kLargePieces) ++islands.at(node.island).large;
  return node;
}

std::vector<Node*> Cluster::State::InsertAll(Session& session, Making& made) {
  std::vector<Node*> inserted;
  for (Making::Made& one : made.nodes) inserted.push_back(&Insert(session, std::move(one)));
  made.nodes.clear();
  return inserted;
}

void Cluster::State::Move(Node& node, NodeState to) {
  assert(CanMove(node.state, to));
  ++transitions[{node.state, to}];
  if (node.kind != NodeKind::kFetch) {
    Island& island = islands.at(node.island);
    if (to == NodeState::kPrepared) {
      island.prepared.insert(node.id);
      ++island.moves;
    }
    if (node.state == NodeState::kPrepared) island.prepared.erase(node.id);
  }
  node.state = to;
}

void Cluster::State::Enqueue(Node& node) {
  if (node.state == NodeState::kWaiting) {
    for (const GroupId id : node.reads) {
      const Group& input = *FindGroup(id);
      if (!input.settled()) ++node.unsettled_inputs;
      if (input.state == GroupState::kFailed || (!input.settled() && !input.launched))
        ++node.unlaunched_inputs;
      groups.AddReader(id, node);
    }
  }
  const bool waits = (node.after_inputs || node.stores) && node.unsettled_inputs > 0;
  if (node.open_blobs > 0 || waits) return;
  if (node.stores) return WorkOf(node.session).ended_inputs.push_back(node.id);
  Move(node, NodeState::kQueued);
  if (node.kind != NodeKind::kFetch) Submit(node);
  if (node.unsettled_inputs == 0) WorkOf(node.session).ended_inputs.push_back(node.id);
}

bool Cluster::State::SourcesUp(const Node& node) const {
  // Mostly, sources that follow each other are shards of one group.
  const Group* group = nullptr;
  return std::all_of(node.sources.begin(), node.sources.end(), [&](const ShardRef& ref) {
    if (ref.group == node.outputs[0]) return true;  // made by the node itself
    if (group == nullptr || group->id != ref.group) group = all_groups.at(ref.group).get();
    return ExecutorOf(group->places[ref.shard].device)->serves();
  });
}

void Cluster::State::Submit(Node& node) {
  if (SourcesUp(node)) {
    node.submitted = ++num_submitted;
    admission.Enqueue(node.id, node.session, node.island, Needs(node));
    to_pump.insert(node.island);
  } else {
    parked.insert(node.id);
  }
}

void Cluster::State::Prepare(Node& node) {
  ChargeShards(node.reservations.size() + node.sources.size());
  Charge(node.pieces.size());
  Move(node, NodeState::kPrepared);
  node.participants.clear();
  const auto join = [&](ExecutorId id) {
    Executor& executor = executors.at(id);
    executor.open.emplace(executor.next_seq, Executor::Open{node.id, node.participants.size()});
    node.participants.push_back({id, executor.next_seq++, false, absl::OkStatus()});
  };
  if (node.kind == NodeKind::kLaunch) {
    for (const CodeLayout::Part& part : node.layout->parts) join(part.executor);
  } else {
    std::set<ExecutorId> joined;
    for (const Place& place : FindGroup(node.outputs[0])->places) {
      if (joined.insert(place.executor).second) join(place.executor);
    }
  }
  node.open_participants = static_cast<int>(node.participants.size());
  for (const GroupId id : node.reads) groups.HasMemory(node, *FindGroup(id), true);
  memory.CountTemporary(node, true);
  for (const GroupId id : node.outputs) {
    Group& group = *FindGroup(id);
    group.declared = group.reserved = true;
    memory.CountLeaving(group);
  }
  if (node.kind == NodeKind::kReceive) {
    const bool places = node.is_upload && !node.reads.empty();
    if (places) stored_groups.TakeStored(node);
    transfers.PrepareSends(node);
    for (size_t p = 0; p < node.participants.size(); ++p) transfers.PrepareReceiveOn(node, p);
    // Its bytes went with the command, so nodes that read its output may follow at once.
    if (places && transfers.IsInline(node)) {
      Move(node, NodeState::kLaunched);
      launches.Launched(node);
    }
    return;
  }
  launches.Prepare(node);
}

void Cluster::State::InputSettled(Node& node, const Group& input) {
  if (input.state == GroupState::kReady) {
    if (!input.launched) --node.unlaunched_inputs;
  } else {
    if (input.launched) ++node.unlaunched_inputs;
    if (node.kind == NodeKind::kLaunch) islands.at(node.island).sequencer.InputsMissing(node.id);
  }
  const bool early = Planted(Bug::kLaunchBeforeInputs) && node.unsettled_inputs == 2;
  if (--node.unsettled_inputs == 0 || early) {
    WorkOf(node.session).ended_inputs.push_back(node.id);
  } else if (node.kind == NodeKind::kLaunch && node.unlaunched_inputs == 0) {
    launches.MaybeArrived(node);
  }
}

void Cluster::State::InputsEnded(Node& node) {
  node.inputs_ended = true;
  if (FailIfPoisoned(node)) return;
  if (node.stores) return stored_groups.Store(node);
  if (node.state == NodeState::kLaunched) {
    // A launch that was sent ahead may have ended before its inputs were known to have.
    if (node.open_participants == 0 && node.deferred.ok()) LaunchEnded(node);
    return;
  }
  if (node.held()) {
    Move(node, NodeState::kQueued);
    Submit(node);
  } else if (!node.deferred.ok() && !PeerGone(node.deferred)) {
    const absl::Status error = node.deferred;
    Fail(node, error, node.id);
  } else if (node.kind == NodeKind::kFetch) {
    transfers.StartFetch(node);
  } else if (node.kind == NodeKind::kLaunch && node.state == NodeState::kPrepared) {
    launches.MaybeArrived(node);
  } else if (node.state == NodeState::kPrepared && node.open_participants == 0 &&
             node.deferred.ok()) {
    Conclude(node, absl::OkStatus(), node.id);  // a receive that ended before its inputs
  }
}

void Cluster::State::ParticipantEnded(Node& node, size_t index, absl::Status status) {
  Participant& participant = node.participants[index];
  const absl::Status failed = status;
  const bool had_ended = std::exchange(participant.done, true);
  if (!had_ended) participant.status = std::move(status);
  if (!failed.ok() && node.kind == NodeKind::kLaunch) {
    // The other participants may wait for it. Of a sequence, this means that it failed as a whole
    // or was lost there: if only a step of it fails, its executor answers the others itself.
    const LaunchId last(node.launch_id.value + static_cast<uint64_t>(node.executable->max_steps) -
                        1);
    for (const Participant& other : node.participants) {
      if (!other.done && !Planted(Bug::kNoAbandon))
        commands.Send(executors.at(other.executor), AbandonLaunch{node.launch_id, last, failed});
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
    Defer(node, Annotate(result, node.name + " to " + Where(node.island)));
    return;
  }
  // Nor is success certain before the sources' success is: the shard that it took may belong to a
  // group of which another shard fails.
  if (node.unsettled_inputs > 0) return;
  EndWith(node, std::move(result));
}

void Cluster::State::Defer(Node& node, absl::Status failure) {
  node.deferred = std::move(failure);
  deferred.insert(node.id);
}

absl::Status Cluster::State::ResultOf(const Node& node) {
  absl::Status result = node.failure;
  for (const Participant& p : node.participants) {
    if (result.ok()) result = p.status;
  }
  return result;
}

void Cluster::State::LaunchEnded(Node& node) {
  // Its input shards may belong to groups of which other shards fail, on other executors.
  if (node.unsettled_inputs > 0) return;
  absl::Status result = ResultOf(node);
  // It ran on several executors, and one lost another: the controller will soon hear which and why.
  const absl::Status* const without_peer = result.ok() ? OutputWithoutPeer(node) : &result;
  if (node.participants.size() > 1 && node.failure.ok() && without_peer != nullptr &&
      PeerGone(*without_peer) && (IsSequence(node) || WorstInput(all_groups, node) == nullptr)) {
    Defer(node, Annotate(*without_peer, node.name + " on " + Where(node.island)));
    return;
  }
  EndWith(node, std::move(result));
}

void Cluster::State::EndWith(Node& node, absl::Status result) {
  // A launch may go ahead of an input that failed, and still end well on its own executors.
  const bool poisoned = (!result.ok() || node.kind == NodeKind::kLaunch) && !IsSequence(node);
  const Group* poison = nullptr;
  for (size_t i = 0; poisoned && i < node.reads.size(); ++i) {
    // An input that was there and was lost since (it has no cause) is no reason to fail.
    const Group& input = *all_groups.at(node.reads[i]);
    if (input.cause) poison = Worse(poison, input);
  }
  if (poison != nullptr) return Conclude(node, absl::Status(poison->error), poison->cause);
  if (!result.ok() && node.failure.ok())
    result = Annotate(result, node.name + " on " + Where(node.island));
  Conclude(node, result, node.id);
}

void Cluster::State::Unprepare(Node& node, const absl::Status& cause) {
  assert(node.state == NodeState::kPrepared);
  Charge(1 + node.reads.size() + node.outputs.size() + node.pieces.size() / 4);
  if (node.kind == NodeKind::kLaunch) islands.at(node.island).sequencer.Forget(node.id);
  for (const Participant& p : node.participants) {
    Executor& executor = executors.at(p.executor);
    commands.Send(executor, CancelNode{node.id, cause});
    executor.open.erase(p.seq);
  }
  if (node.kind != NodeKind::kLaunch) transfers.EndTransfer(node);
  Move(node, NodeState::kQueued);
  for (const GroupId id : node.reads) groups.HasMemory(node, *FindGroup(id), false);
  memory.CountTemporary(node, false);
  for (const GroupId id : node.outputs) {
    Group& group = *FindGroup(id);
    // A receive may have ended on some executors: the bytes there are freed with the group.
    if (node.kind == NodeKind::kLaunch) group.declared = false;
    group.reserved = false;
    memory.CountLeaving(group);
  }
  Island& island = islands.at(node.island);
  for (const Reservation& r : node.reservations) memory.Release(island, r.device, r.total());
  node.participants.clear();
  node.open_participants = 0;
  node.open_installs = 0;
  ++node.attempt;
  node.deferred = absl::OkStatus();
  node.deferred_since = -1;
  to_pump.insert(node.island);
}

void Cluster::State::TakeBack(std::set<NodeId> taken, const absl::Status& cause) {
  std::erase_if(taken, [&](NodeId id) {
    const Node* node = FindNode(id);
    return node == nullptr || node->state != NodeState::kPrepared;
  });
  if (taken.empty()) return;
  // Receives of outputs that will not be made for now wait for them, and are taken back too.
  std::vector<NodeId> left(taken.begin(), taken.end());
  while (!left.empty()) {
    const Node& node = *FindNode(left.back());
    left.pop_back();
    for (const GroupId id : node.outputs) {
      for (const NodeId waiter : FindGroup(id)->waiters) {
        Charge(1);
        const Node* reader = FindNode(waiter);
        if (reader != nullptr && reader->kind == NodeKind::kReceive &&
            reader->state == NodeState::kPrepared && taken.insert(waiter).second)
          left.push_back(waiter);
      }
    }
  }
  // Readers go before the nodes that they read. A receive may have ended on some of its executors:
  // the bytes there are freed.
  for (auto id = taken.rbegin(); id != taken.rend(); ++id) {
    Node& node = *FindNode(*id);
    Unprepare(node, cause);
    for (const GroupId group : node.outputs) {
      if (!Planted(Bug::kLeaveTakenBack)) groups.ReleaseBytes(*FindGroup(group));
    }
    Submit(node);
  }
}

void Cluster::State::Fail(Node& node, const absl::Status& status, NodeId cause) {
  if (node.state == NodeState::kPrepared && node.kind == NodeKind::kReceive) {
    TakeBack({node.id}, status);  // its bytes may be on their way to other executors
  } else if (node.state == NodeState::kPrepared) {
    Unprepare(node, status);
  }
  if (node.state == NodeState::kQueued && node.kind != NodeKind::kFetch) {
    admission.Remove(node.id, node.island);
    parked.erase(node.id);
    to_pump.insert(node.island);
  }
  Conclude(node, status, cause);
}

void Cluster::State::Conclude(Node& node, const absl::Status& status, NodeId cause) {
  Charge(1 + node.reads.size() + node.outputs.size() + node.pieces.size() / 4);
  const bool launched = node.state == NodeState::kLaunched;
  const bool held = launched || node.state == NodeState::kPrepared;
  if (launched) islands.at(node.island).sequencer.Finished(node.id);
  Move(node, NodeState::kDone);
  for (const GroupId id : node.taken) {
    if (Group* input = FindGroup(id); input->charged) launches.TakeOver(node, *input);
  }
  // If a launch failed on one executor, its outputs on others stay until all launches behind it
  // have ended. Bytes of a failed receive stay until all its readers have been told.
  const bool spread =
      held && (node.kind == NodeKind::kReceive || (launched && node.participants.size() > 1));
  const bool keeps =
      status.ok() || (spread && std::all_of(node.reservations.begin(), node.reservations.end(),
                                            [](const Reservation& r) { return r.credit == 0; }));
  if (held) {
    if (node.kind != NodeKind::kLaunch) transfers.EndTransfer(node);
    Island& island = islands.at(node.island);
    memory.CountTemporary(node, false);
    for (const Reservation& r : node.reservations) {
      if (!Planted(Bug::kLeakReservation)) memory.Release(island, r.device, r.temp);
      if (!keeps && !Planted(Bug::kKeepFailed))
        memory.Release(island, r.device, r.output - r.credit);
    }
    to_pump.insert(node.island);
  }
  SettleOutputs(node, status, cause, keeps);
  if (node.watch != 0) {
    const Group* worst = nullptr;  // of a sequence, some outputs may have failed
    for (const GroupId id : node.outputs) worst = Worse(worst, *FindGroup(id));
    watches.Ended(node.session, node.watch, 0, worst != nullptr ? worst->error : status,
                  worst != nullptr ? worst->cause : cause);
  }
  const auto session = sessions.find(node.session);
  const bool closed = session == sessions.end();
  if (!closed) {
    if (node.kind == NodeKind::kFetch && !status.ok()) Fetched(node.session, node.token, status);
    if (!Planted(Bug::kForgetNodeBytes)) session->second.node_records.Remove(node.record_bytes);
    session->second.fetching -= node.pulling;
  }
  if (node.kind == NodeKind::kFetch) transfers.FetchEnded(node);
  Holdings& has = holdings.at(node.session);
  has.nodes.erase(node.id);
  --has.stakes.at(node.island).nodes;
  const std::unique_ptr<Node> ended = std::move(nodes.extract(node.id).mapped());
  if (ended->pieces.size() > kLargePieces) --islands.at(ended->island).large;
  if (ended->layout != nullptr && --ended->layout->runs == 0 &&
      programs.retired.contains(ended->executable->id))
    programs.Forget(ended->executable->id);
  for (const GroupId id : ended->reads) {
    if (!held) groups.HasMemory(*ended, *FindGroup(id), true);
    groups.DropReader(id);
  }
  for (const GroupId id : ended->outputs) {
    if (Group* group = FindGroup(id)) groups.Collect(*group);
  }
  if (closed) ForgetHoldings(ended->session);
}

}  // namespace fairway
