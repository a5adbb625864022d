// SPDX-License-Identifier: Apache-2.0
// The life of a node until it ends: made, queued, prepared, taken back.
#include "controller/cluster/nodes.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <unordered_map>
#include <utility>

#include "base/planted.h"
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

Cluster::Nodes::Nodes(State& state)
    : launched_receives_(TransferWaits::SomeOf(state.options.max_singles_per_device)), s(state) {}

Node& Cluster::Nodes::Make(SessionId session, NodeKind kind, IslandId island, std::string name) {
  return InsertNode(New(session, kind, island, std::move(name)));
}

std::unique_ptr<Node> Cluster::Nodes::New(SessionId session, NodeKind kind, IslandId island,
                                          std::string name) {
  auto node = std::make_unique<Node>();
  node->session = session;
  node->kind = kind;
  node->island = island;
  node->name = std::move(name);
  s.Charge(1);
  return node;
}

Node& Cluster::Nodes::InsertNode(std::unique_ptr<Node> node) {
  node->id = NodeId(next_node++);
  const SessionId session = node->session;
  Node& made = s.all_nodes.Insert(std::move(node));
  Holdings& has = s.HoldingsOf(session);
  has.nodes.insert(has.nodes.end(), made.id);  // it is the youngest
  s.StakeOf(session, has, made.island).Count(&Stake::nodes, true);
  return made;
}

Node& Cluster::Nodes::Insert(Session& session, Making::Made made) {
  // Its stored sources are placed first, because the nodes that place them need lower ids.
  if (!s.stored_groups.BeginToStore(session, made) &&
      s.stored_groups.PlaceShards(made.node->sources))
    made.node->reads = GroupsOf(made.node->sources, made.group->id);
  Node& node = InsertNode(std::move(made.node));
  made.group->producer = node.id;
  Group& group = s.groups.Insert(std::move(made.group));
  Groups::ShareLists(group);
  Weigh(session, node, RecordBytesOf(group));
  if (node.pieces.size() > kLargePieces) CountLarge(node);
  return node;
}

void Cluster::Nodes::CountLarge(Node& node) {
  node.large = true;
  ++s.islands.at(node.island).large;
}

void Cluster::Nodes::Weigh(Session& session, Node& node, size_t more) {
  const size_t bytes = RecordBytesOf(node) + more;
  node.record_bytes += bytes;
  session.node_records.Add(bytes);
}

void Cluster::Nodes::Move(Node& node, NodeState to) {
  assert(CanMove(node.state, to));
  ++transitions[static_cast<size_t>(node.state)][static_cast<size_t>(to)];
  if (node.kind != NodeKind::kFetch) {
    Island& island = s.islands.at(node.island);
    if (to == NodeState::kPrepared) {
      island.prepared.insert(node.id);
      ++island.moves;
    }
    if (node.state == NodeState::kPrepared) island.prepared.erase(node.id);
  }
  node.state = to;
  s.memory.Moved(node.id);
}

void Cluster::Nodes::Read(Node& node, GroupId group) {
  node.reads.push_back(group);
  Register(node, group);
}

void Cluster::Nodes::Register(Node& node, GroupId id) {
  Group& input = *s.FindGroup(id);
  const bool launched = input.launched && Launches::TakesForLaunched(node, input);
  if (!input.settled()) ++node.unsettled_inputs;
  if (input.state == GroupState::kFailed || (!input.settled() && !launched))
    ++node.unlaunched_inputs;
  if (!input.settled() && launched) node.behind_transfer |= input.behind_transfer;
  s.groups.AddReader(input, node);
}

void Cluster::Nodes::Enqueue(Node& node) {
  if (!std::exchange(node.making, false) && node.state == NodeState::kWaiting) {
    for (const GroupId id : node.reads) Register(node, id);
  }
  const bool waits = (node.after_inputs || node.stores) && node.unsettled_inputs > 0;
  if (node.open_blobs > 0 || waits) return;
  if (node.stores) return s.WorkOf(node.session).ended_inputs.push_back(node.id);
  Move(node, NodeState::kQueued);
  if (node.kind != NodeKind::kFetch) Submit(node);
  if (node.unsettled_inputs == 0) s.WorkOf(node.session).ended_inputs.push_back(node.id);
}

bool Cluster::Nodes::SourcesUp(const Node& node) const {
  // Mostly, sources that follow each other are shards of one group.
  const Group* group = nullptr;
  return std::all_of(node.sources.begin(), node.sources.end(), [&](const ShardRef& ref) {
    if (ref.group == node.outputs[0]) return true;  // made by the node itself
    if (group == nullptr || group->id != ref.group) group = s.all_groups.at(ref.group);
    return s.ExecutorOf(group->places[ref.shard].device)->serves();
  });
}

void Cluster::Nodes::Submit(Node& node) {
  if (SourcesUp(node)) {
    node.submitted = ++num_submitted;
    s.admission.Enqueue(node.id, node.session, node.island, Needs(node));
    s.to_pump.insert(node.island);
  } else {
    s.parked.insert(node.id);
  }
}

void Cluster::Nodes::Prepare(Node& node) {
  s.ChargeShards(node.reservations.size() + node.sources.size());
  s.Charge(node.pieces.size());
  Move(node, NodeState::kPrepared);
  node.participants.clear();
  node.for_all = node.kind == NodeKind::kLaunch && s.launches.MayBeForAll(node);
  std::vector<std::vector<int32_t>> shards;  // of a receive, by participant
  if (node.kind == NodeKind::kLaunch) {
    if (!node.for_all) JoinAll(node);
  } else {
    std::unordered_map<ExecutorId, size_t> participant_of;
    const SharedVector<Place>& places = s.FindGroup(node.outputs[0])->places;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [at, fresh] =
          participant_of.try_emplace(places[i].executor, node.participants.size());
      if (fresh) {
        Join(node, places[i].executor);
        shards.emplace_back();
      }
      shards[at->second].push_back(static_cast<int32_t>(i));
    }
  }
  node.open_participants = static_cast<int>(node.participants.size());
  for (const GroupId id : node.reads) {
    Group& input = *s.FindGroup(id);
    s.groups.HasMemory(node, input, true);
    if (node.kind == NodeKind::kReceive && !input.settled()) receiving_.emplace(id, node.id);
  }
  s.memory.CountTemporary(node, true);
  ReserveOutputs(node);
  if (node.kind == NodeKind::kReceive) {
    const bool places = node.is_upload && !node.reads.empty();
    if (places) s.stored_groups.TakeStored(node);
    s.transfers.PrepareSends(node);
    for (size_t p = 0; p < node.participants.size(); ++p)
      s.transfers.PrepareReceiveOn(node, p, shards[p]);
    // Its bytes went with the command, so nodes that read its output may follow at once.
    if (places && s.transfers.IsInline(node)) {
      Move(node, NodeState::kLaunched);
      s.launches.Launched(node);
    } else {
      MaybeLaunchReceive(node);
    }
    return;
  }
  s.launches.Prepare(node);
}

void Cluster::Nodes::Join(Node& node, ExecutorId id) {
  Executor& executor = s.executors.at(id);
  executor.open.emplace_hint(executor.open.end(), executor.next_seq,
                             Executor::Open{node.id, node.participants.size()});
  node.participants.push_back({id, executor.next_seq++, false, absl::OkStatus()});
}

void Cluster::Nodes::JoinAll(Node& launch) {
  for (const CodeLayout::Part& part : launch.layout->parts) Join(launch, part.executor);
  launch.open_participants = static_cast<int>(launch.participants.size());
}

void Cluster::Nodes::MaybeLaunchReceive(Node& node) {
  // The bytes of an upload are here, so it begins anew if its executor is lost.
  if (node.kind != NodeKind::kReceive || node.is_upload || node.state != NodeState::kPrepared ||
      node.unlaunched_inputs > 0 || node.taken_back || !node.deferred.ok())
    return;
  // If it loses an executor that its session has not heard of, it is prepared again.
  if (s.islands.at(node.island).telling > 0) return;
  // Without a launch that waits for nothing but bytes, nothing would be gained.
  constexpr size_t kLooks = 8;
  const std::vector<NodeId>& waiters = s.FindGroup(node.outputs[0])->waiters;
  if (std::none_of(
          waiters.begin(), waiters.begin() + std::min(waiters.size(), kLooks), [&](NodeId id) {
            const Node* const reader = s.FindNode(id);
            return reader != nullptr && reader->kind == NodeKind::kLaunch &&
                   reader->state == NodeState::kPrepared && Launches::HoldsUpNobody(*reader);
          }))
    return;
  if (!launched_receives_.Begin(node.id, node.session,
                                s.FindGroup(node.outputs[0])->places[0].device))
    return;
  node.behind_transfer = true;
  Move(node, NodeState::kLaunched);
  s.WorkOf(node.session).launched.push_back({node.id});
}

void Cluster::Nodes::NoLongerAhead(const Node& node) {
  if (node.kind == NodeKind::kLaunch) return s.launches.LeaveBehind(node.id);
  constexpr int kAtOnce = 64;
  if (launched_receives_.known() == 0) return;
  if (!Planted(Bug::kBehindForEver)) launched_receives_.End(node.id);
  for (int i = 0; i < kAtOnce; ++i) {
    const NodeId next = launched_receives_.Next();
    if (!next) return;
    s.Charge(1);
    if (Node* const waits = s.FindNode(next); waits != nullptr) MaybeLaunchReceive(*waits);
  }
}

void Cluster::Nodes::InputSettled(Node& node, const Group& input, bool was_launched) {
  if (input.state == GroupState::kReady) {
    if (!was_launched) --node.unlaunched_inputs;
  } else {
    if (was_launched) ++node.unlaunched_inputs;
    if (node.kind == NodeKind::kLaunch) s.islands.at(node.island).sequencer.InputsMissing(node.id);
  }
  const bool early = Planted(Bug::kLaunchBeforeInputs) && node.unsettled_inputs == 2;
  if (--node.unsettled_inputs == 0 || early) {
    s.WorkOf(node.session).ended_inputs.push_back(node.id);
  } else if (node.kind == NodeKind::kLaunch && node.unlaunched_inputs == 0) {
    s.launches.MaybeArrived(node);
  }
  MaybeLaunchReceive(node);
}

void Cluster::Nodes::InputsEnded(Node& node) {
  if (node.making) return;  // it will be told again
  node.inputs_ended = true;
  if (node.may_have_failed_inputs() && FailIfPoisoned(node)) return;
  if (node.stores) return s.stored_groups.Store(node);
  if (node.kind == NodeKind::kLaunch) s.launches.BehindNothing(node);
  if (node.state == NodeState::kLaunched) {
    // What was launched ahead may have ended before its inputs were known to have.
    if (node.open_participants > 0) return;
    if (node.kind == NodeKind::kReceive) return ReceiveEnded(node);
    if (node.deferred.ok()) LaunchEnded(node);
    return;
  }
  if (node.held()) {
    Move(node, NodeState::kQueued);
    Submit(node);
  } else if (!node.deferred.ok() && !PeerGone(node.deferred)) {
    const absl::Status error = node.deferred;
    Fail(node, error, node.id);
  } else if (node.kind == NodeKind::kFetch) {
    s.transfers.StartFetch(node);
  } else if (node.kind == NodeKind::kLaunch && node.state == NodeState::kPrepared) {
    s.launches.MaybeArrived(node);
  } else if (node.state == NodeState::kPrepared && node.open_participants == 0 &&
             node.deferred.ok()) {
    Conclude(node, absl::OkStatus(), node.id);  // a receive that ended before its inputs
  }
}

void Cluster::Nodes::ReserveOutputs(const Node& node) {
  s.Charge(node.outputs.size() / kReservedPerUnit);
  // A launch may have 65,536 of them, which are not in the cache: 16 are fetched side by side.
  std::array<Group*, 16> groups;
  for (size_t o = 0; o < node.outputs.size();) {
    size_t count = 0;
    for (; count < groups.size() && o < node.outputs.size(); ++o) {
      groups[count] = s.FindGroup(node.outputs[o]);
      __builtin_prefetch(groups[count++], 1);
    }
    for (size_t i = 0; i < count; ++i) {
      groups[i]->declared = groups[i]->reserved = true;
      s.memory.CountLeaving(*groups[i]);
    }
  }
}

void Cluster::Nodes::Cancel(const Node& node, const absl::Status& cause) {
  if (node.kind == NodeKind::kLaunch) s.islands.at(node.island).sequencer.Forget(node.id);
  for (const Participant& p : node.participants) {
    Executor& executor = s.executors.at(p.executor);
    s.commands.Send(executor, CancelNode{node.id, cause}, node.session);
    executor.open.erase(p.seq);
  }
}

void Cluster::Nodes::Unprepare(Node& node, const absl::Status& cause) {
  assert(node.state == NodeState::kPrepared);
  s.Charge(1 + node.reads.size() + node.outputs.size() + node.pieces.size() / 4);
  Cancel(node, cause);
  if (node.kind != NodeKind::kLaunch) s.transfers.EndTransfer(node);
  NoLongerAhead(node);
  Move(node, NodeState::kQueued);
  for (const GroupId id : node.reads) s.groups.HasMemory(node, *s.FindGroup(id), false);
  StopReceiving(node);
  s.memory.CountTemporary(node, false);
  for (const GroupId id : node.outputs) {
    Group& group = *s.FindGroup(id);
    // A receive may have ended on some executors: the bytes there are freed with the group.
    if (node.kind == NodeKind::kLaunch) group.declared = false;
    group.reserved = false;
    s.memory.CountLeaving(group);
  }
  Island& island = s.islands.at(node.island);
  for (const Reservation& r : node.reservations) s.memory.Release(island, r.device, r.total());
  node.participants.clear();
  node.open_participants = 0;
  node.open_installs = 0;
  node.for_all = false;
  node.telling = false;
  ++node.attempt;
  node.taken_back = false;
  node.deferred = absl::OkStatus();
  node.deferred_since = -1;
  s.to_pump.insert(node.island);
}

void Cluster::Nodes::StopReceiving(const Node& node) {
  if (node.kind != NodeKind::kReceive) return;
  for (const GroupId id : node.reads) receiving_.erase({id, node.id});
}

absl::Status Cluster::Nodes::Check() const {
  size_t known = 0;
  for (const auto& [id, node] : s.all_nodes) {
    const bool has_memory = node->has_memory();
    for (const GroupId group : node->reads) {
      const bool receives = receiving_.contains({group, id});
      known += receives ? 1 : 0;
      const bool may = node->kind == NodeKind::kReceive && has_memory;
      const bool must = may && !s.all_groups.at(group)->settled();
      if ((receives && !may) || (!receives && must))
        return Error(absl::StatusCode::kInternal, "n{} is {}known as a receive of group {}", id,
                     receives ? "" : "not ", group);
    }
  }
  const auto may_wait = [this](NodeId id) {
    const Node* const node = s.all_nodes.Find(id);
    return node != nullptr && node->has_memory() && node->state != NodeState::kDone;
  };
  for (const TransferWaits* waits : {&launched_receives_, &s.launches.behind()}) {
    if (const NodeId id = waits->FirstNot(may_wait))
      return Error(absl::StatusCode::kInternal, "n{} counts as ahead of a transfer", id);
  }
  if (known == receiving_.size()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "{} receives are known by what they read, of {}", known,
               receiving_.size());
}

bool Cluster::Nodes::TakeBack(Node& node, const absl::Status& cause) {
  if (node.state != NodeState::kPrepared) return true;
  if (node.taken_back) return false;
  node.taken_back = true;
  TakingBack taking{cause, {{node.id, node.attempt}}, {}};
  if (GoOnTakingBack(taking, s.units + std::min(kSliceUnits, s.options.turn_units))) return true;
  ++taking_back;
  s.WorkOf(node.session).taking_back.push_back(std::move(taking));
  return false;
}

bool Cluster::Nodes::ReadsTakenBack(const Node& node) const {
  if (taking_back == 0) return false;
  return std::any_of(node.reads.begin(), node.reads.end(), [&](GroupId id) {
    const Node* const producer = s.FindNode(s.FindGroup(id)->producer);
    return producer != nullptr && producer->taken_back;
  });
}

Node* Cluster::Nodes::NextReceive(TakingBack::Step& step, const Node& node) {
  for (; step.output < node.outputs.size(); ++step.output) {
    const GroupId id = node.outputs[step.output];
    for (auto it = receiving_.lower_bound({id, NodeId()});
         it != receiving_.end() && it->first == id; ++it) {
      s.Charge(1);
      if (Node* const reader = s.FindNode(it->second); reader->state == NodeState::kPrepared)
        return reader;
    }
  }
  return nullptr;
}

void Cluster::Nodes::TakeBackAlone(Node& node, const absl::Status& cause) {
  Unprepare(node, cause);
  // A receive may have ended on some of its executors: the bytes there are freed.
  for (const GroupId group : node.outputs) {
    if (!Planted(Bug::kLeaveTakenBack)) s.groups.ReleaseBytes(*s.FindGroup(group));
  }
}

bool Cluster::Nodes::GoOnTakingBack(TakingBack& taking, uint64_t until) {
  do {
    if (!taking.steps.empty()) {
      TakingBack::Step& step = taking.steps.back();
      Node* const node = s.FindNode(step.node);
      const bool prepared =
          node != nullptr && node->attempt == step.attempt && node->state == NodeState::kPrepared;
      if (Node* const reader = prepared ? NextReceive(step, *node) : nullptr; reader != nullptr) {
        reader->taken_back = true;
        taking.steps.push_back({reader->id, reader->attempt});
        continue;
      }
      taking.steps.pop_back();
      if (!prepared) continue;
      TakeBackAlone(*node, taking.cause);
      if (taking.steps.empty()) {
        taking.fails_by ? Conclude(*node, taking.cause, *taking.fails_by) : Submit(*node);
      } else {
        s.parked.insert(node->id);
        taking.parked.push_back(node->id);
      }
    } else if (!taking.parked.empty()) {
      s.Charge(1);
      const NodeId id = taking.parked.back();
      taking.parked.pop_back();
      if (s.parked.erase(id) > 0) Submit(*s.FindNode(id));
    } else {
      return true;
    }
  } while (s.units < until);
  return taking.steps.empty() && taking.parked.empty();
}

}  // namespace fairway
