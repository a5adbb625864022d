// SPDX-License-Identifier: Apache-2.0
// The life of a node: queued, prepared, launched, ended.
#include <algorithm>
#include <cassert>
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

Node* Cluster::State::FindNode(NodeId id) {
  const auto it = nodes.find(id);
  return it == nodes.end() ? nullptr : it->second.get();
}

Node& Cluster::State::MakeNode(SessionId session, NodeKind kind, IslandId island,
                               std::string name) {
  auto node = std::make_unique<Node>();
  node->id = NodeId(next_node++);
  node->session = session;
  node->kind = kind;
  node->island = island;
  node->name = std::move(name);
  Node& made = *node;
  nodes.emplace(made.id, std::move(node));
  if (const auto it = sessions.find(session); it != sessions.end())
    it->second.nodes.insert(made.id);
  return made;
}

void Cluster::State::Move(Node& node, NodeState to) {
  assert(CanMove(node.state, to));
  ++transitions[{node.state, to}];
  node.state = to;
}

void Cluster::State::AddReservation(Node& node, DeviceId device, int64_t output, int64_t temp) {
  auto it = std::find_if(node.reservations.begin(), node.reservations.end(),
                         [&](const Reservation& r) { return r.device == device; });
  if (it == node.reservations.end())
    it = node.reservations.insert(it, Reservation{device, 0, 0, 0});
  it->output += Rounded(output);
  it->temp += Rounded(temp);
}

std::vector<MemoryNeed> Cluster::State::Needs(const Node& node) const {
  std::vector<MemoryNeed> needs;
  for (const Reservation& r : node.reservations) needs.push_back({r.device, r.total()});
  return needs;
}

void Cluster::State::Enqueue(Node& node) {
  if (node.state == NodeState::kWaiting) {
    for (const GroupId id : node.reads) {
      const Group& input = *FindGroup(id);
      if (!input.settled()) ++node.unsettled_inputs;
      if (input.state == GroupState::kFailed || (!input.settled() && !input.launched))
        ++node.unlaunched_inputs;
      AddReader(id, node.id);
    }
  }
  if (node.open_blobs > 0) return;
  Move(node, NodeState::kQueued);
  if (node.kind != NodeKind::kFetch) Submit(node);
  if (node.unsettled_inputs == 0) ended_inputs.push_back(node.id);
}

bool Cluster::State::SourcesUp(const Node& node) const {
  return std::all_of(node.sources.begin(), node.sources.end(), [&](const ShardRef& ref) {
    return executors.at(groups.at(ref.group)->places[ref.shard].executor).up;
  });
}

bool Cluster::State::ReceivesFrom(const Node& node, ExecutorId executor) const {
  return std::any_of(node.sources.begin(), node.sources.end(), [&](const ShardRef& ref) {
    return groups.at(ref.group)->places[ref.shard].executor == executor;
  });
}

void Cluster::State::Submit(Node& node) {
  if (SourcesUp(node)) {
    admission.Enqueue(node.id, node.island, Needs(node));
    to_pump.insert(node.island);
  } else {
    parked.insert(node.id);
  }
}

void Cluster::State::CreditDonations(Node& node) {
  // What a sequence takes over need not be free when its outputs come to be.
  if (node.state != NodeState::kQueued || node.executable->sequence != nullptr) return;
  bool changed = false;
  for (const int32_t a : node.donatable) {
    if (!CertainlyDonated(node, a)) continue;
    for (const ShardRef& ref : node.inputs[a]) {
      const Place& place = FindGroup(ref.group)->places[ref.shard];
      for (Reservation& r : node.reservations) {
        if (r.device != place.device) continue;
        r.credit = std::min(r.credit + Rounded(place.bytes), r.output);
        changed = true;
      }
    }
  }
  if (!changed) return;
  admission.Remove(node.id, node.island);
  admission.Enqueue(node.id, node.island, Needs(node));
}

bool Cluster::State::CertainlyDonated(const Node& node, int32_t argument) {
  for (const GroupId id : GroupsOf(node.inputs[argument])) {
    const Group& group = *FindGroup(id);
    if (group.readers != 1 && !Planted(Bug::kDonateWithReader)) return false;
    if (!group.all_deleted()) return false;
    // Its other shards, if any, stay in memory until the group is freed.
    const auto taken = std::count_if(node.inputs[argument].begin(), node.inputs[argument].end(),
                                     [&](const ShardRef& ref) { return ref.group == id; });
    if (static_cast<size_t>(taken) != group.places.size()) return false;
    size_t uses = 0;
    for (const std::vector<ShardRef>& other : node.inputs) {
      uses += std::any_of(other.begin(), other.end(),
                          [&](const ShardRef& ref) { return ref.group == id; })
                  ? 1
                  : 0;
    }
    if (uses != 1) return false;
  }
  return true;
}

void Cluster::State::Prepare(Node& node) {
  Move(node, NodeState::kPrepared);
  node.participants.clear();
  const auto join = [&](ExecutorId id) {
    for (const Participant& p : node.participants) {
      if (p.executor == id) return;
    }
    Executor& executor = executors.at(id);
    node.participants.push_back({id, executor.next_seq++, false, absl::OkStatus()});
    executor.open.emplace(node.participants.back().seq, node.id);
  };
  if (node.kind == NodeKind::kLaunch) {
    for (const DeviceId device : node.executable->devices) join(ExecutorOf(device)->id);
  } else {
    for (const Place& place : FindGroup(node.outputs[0])->places) join(place.executor);
  }
  node.open_participants = static_cast<int>(node.participants.size());
  for (const GroupId id : node.outputs) FindGroup(id)->declared = true;
  if (node.kind == NodeKind::kReceive) {
    PrepareSends(node);
    for (size_t p = 0; p < node.participants.size(); ++p) PrepareReceiveOn(node, p);
    return;
  }
  node.open_installs = 0;
  for (size_t p = 0; p < node.participants.size(); ++p) PrepareLaunchOn(node, p);
  islands.at(node.island)
      .sequencer.Prepared(node.id, node.executable->devices,
                          static_cast<uint64_t>(node.executable->max_steps));
  MaybeArrived(node);
}

void Cluster::State::PrepareLaunchOn(Node& node, size_t participant) {
  const Participant& part = node.participants[participant];
  Executor& executor = executors.at(part.executor);
  const ExecutableSpec& spec = *node.executable;
  PrepareLaunch command;
  command.node = node.id;
  command.seq = part.seq;
  command.executable = spec.id;
  std::vector<size_t> positions;
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    if (ExecutorOf(spec.devices[i])->id != executor.id) continue;
    positions.push_back(i);
    command.devices.push_back(
        static_cast<int32_t>(spec.devices[i].value - executor.first_device.value));
    std::vector<ShardRef> inputs;
    for (const std::vector<ShardRef>& argument : node.inputs) inputs.push_back(argument[i]);
    command.inputs.push_back(std::move(inputs));
  }
  for (const GroupId id : node.outputs) {
    const Group& group = *FindGroup(id);
    GroupPart out{id, group.dtype, group.memory_kind, {}};
    for (const size_t i : positions)
      out.shards.push_back(
          {static_cast<int32_t>(i), group.places[i].ordinal, group.shape(static_cast<int32_t>(i))});
    command.outputs.push_back(std::move(out));
  }
  for (const ExecutableId part : spec.parts)
    InstallOn(executor, executables.at(part), command.devices, node);
  InstallOn(executor, spec, command.devices, node);
  SendTo(executor, std::move(command));
}

void Cluster::State::InstallOn(Executor& executor, const ExecutableSpec& spec,
                               const std::vector<int32_t>& devices, Node& node) {
  auto [install, absent] = executor.installs.try_emplace(spec.id);
  if (absent && spec.sequence != nullptr) {
    SendTo(executor, InstallSequence{spec.id, spec.sequence});
  } else if (absent) {
    InstallExecutable command{spec.id, spec.code, spec.checksum, devices, {}, 0};
    std::vector<ExecutorId> members;
    for (const DeviceId device : spec.devices) {
      const ExecutorId owner = ExecutorOf(device)->id;
      if (std::find(members.begin(), members.end(), owner) != members.end()) continue;
      if (owner == executor.id) command.member = static_cast<int32_t>(members.size());
      members.push_back(owner);
      const ExecutorSpec& member = executors.at(owner).spec;
      command.members.push_back({member.data_endpoint, member.incarnation});
    }
    if (members.size() == 1) command.members.clear();
    SendTo(executor, std::move(command));
  }
  if (install->second.installed) return;
  install->second.waiters.push_back(node.id);
  ++node.open_installs;
}

void Cluster::State::DropShared(Executor& executor, ExecutorId lost) {
  std::erase_if(executor.installs, [&](const auto& install) {
    const auto& devices = executables.at(install.first).devices;
    const bool shared = std::any_of(devices.begin(), devices.end(),
                                    [&](DeviceId d) { return ExecutorOf(d)->id == lost; });
    if (shared && !install.second.installed) ++executor.dropped[install.first];
    if (shared) SendTo(executor, DropExecutable{install.first});
    return shared;
  });
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
    ended_inputs.push_back(node.id);
  } else if (node.kind == NodeKind::kLaunch && node.unlaunched_inputs == 0) {
    MaybeArrived(node);
  }
}

void Cluster::State::InputsEnded(Node& node) {
  if (FailIfPoisoned(node)) return;
  if (!node.deferred.ok() && !PeerGone(node.deferred)) {
    const absl::Status error = node.deferred;
    Fail(node, error, node.id);
  } else if (node.kind == NodeKind::kFetch) {
    StartFetch(node);
  } else if (node.kind == NodeKind::kLaunch && node.state == NodeState::kPrepared) {
    MaybeArrived(node);
  } else if (node.state == NodeState::kPrepared && node.open_participants == 0 &&
             node.deferred.ok()) {
    Conclude(node, absl::OkStatus(), node.id);  // a receive that had ended before
  }
}

void Cluster::State::MaybeArrived(Node& node) {
  const bool inputs =
      node.unsettled_inputs == 0 ||
      (node.unlaunched_inputs == 0 && node.participants.size() == 1) ||
      (Planted(Bug::kLaunchBeforeInputs) && node.unsettled_inputs == 1 && node.reads.size() > 1);
  if (!inputs || node.open_installs > 0 || node.state != NodeState::kPrepared) return;
  islands.at(node.island).sequencer.InputsArrived(node.id);
  to_pump.insert(node.island);
}

void Cluster::State::DoLaunch(Node& node, LaunchId launch_id) {
  if (node.state != NodeState::kPrepared && !Planted(Bug::kLaunchTwice)) return;
  if (node.state == NodeState::kPrepared) Move(node, NodeState::kLaunched);
  node.launch_id = launch_id;
  Launch command;
  command.node = node.id;
  command.launch_id = launch_id;
  command.gang = node.executable->devices.size() > 1;
  command.ahead = node.unsettled_inputs > 0;
  for (size_t a = 0; a < node.inputs.size(); ++a) {
    const auto index = static_cast<int32_t>(a);
    if (!node.executable->parameters[a].donated) {
      // The steps of a sequence may be able to take over what the sequence was not given.
      if (node.executable->sequence != nullptr) command.non_donatable.push_back(index);
      continue;
    }
    const bool given =
        std::find(node.donatable.begin(), node.donatable.end(), index) != node.donatable.end();
    if (!given || !CertainlyDonated(node, index)) {
      command.non_donatable.push_back(index);
      continue;
    }
    // Its memory is its own until the launch has begun, of which nothing is heard before its end.
    for (const GroupId id : GroupsOf(node.inputs[a])) node.taken.push_back(id);
  }
  const std::vector<ShardRef> inline_shards = InlineOutputs(node);
  for (size_t p = 0; p < node.participants.size(); ++p) {
    if (Planted(Bug::kLaunchOnSomeExecutors) && p > 0 && node.id.value % 4 == 0) continue;
    const ExecutorId id = node.participants[p].executor;
    command.inline_shards.clear();
    for (const ShardRef& ref : inline_shards) {
      if (FindGroup(ref.group)->places[ref.shard].executor == id)
        command.inline_shards.push_back(ref);
    }
    SendTo(executors.at(id), command);
  }
  if (node.participants.size() == 1) LaunchedOn(node);
}

void Cluster::State::LaunchedOn(const Node& node) {
  for (const GroupId id : node.outputs) {
    Group& group = *FindGroup(id);
    if (std::exchange(group.launched, true)) continue;
    for (const NodeId waiter : group.waiters) {
      Node& reader = *FindNode(waiter);
      if (--reader.unlaunched_inputs == 0 && reader.kind == NodeKind::kLaunch) MaybeArrived(reader);
    }
  }
}

void Cluster::State::TakeOver(Node& node, Group& input) {
  input.charged = false;
  for (const Place& place : input.places) {
    int64_t credit = 0;
    for (Reservation& r : node.reservations) {
      if (r.device != place.device) continue;
      credit = std::min(r.credit, Rounded(place.bytes));
      r.credit -= credit;
    }
    admission.Release(place.device, Rounded(place.bytes) - credit);
  }
  to_pump.insert(input.island);
}

std::vector<ShardRef> Cluster::State::InlineOutputs(const Node& node) const {
  std::vector<std::pair<int64_t, GroupId>> small;
  for (const GroupId id : node.outputs) {
    const Group& group = *groups.at(id);
    if (group.handle_refs == 0 || group.num_deleted > 0 || !group.memory_kind.empty()) continue;
    int64_t bytes = 0;
    for (size_t i = 0; i < group.places.size(); ++i) {
      if (group.replica_of.empty() || group.replica_of[i] == static_cast<int32_t>(i))
        bytes += group.places[i].bytes;
    }
    if (bytes <= options.inline_output_bytes) small.emplace_back(bytes, id);
  }
  std::sort(small.begin(), small.end());
  int64_t inlined = 0;
  std::vector<ShardRef> inline_shards;
  for (const auto& [bytes, id] : small) {
    inlined += bytes;
    if (inlined > options.inline_gang_bytes) break;
    const Group& group = *groups.at(id);
    for (size_t i = 0; i < group.places.size(); ++i) {
      if (group.replica_of.empty() || group.replica_of[i] == static_cast<int32_t>(i))
        inline_shards.push_back({id, static_cast<int32_t>(i)});
    }
  }
  return inline_shards;
}

void Cluster::State::ParticipantEnded(Node& node, size_t index, absl::Status status) {
  Participant& participant = node.participants[index];
  if (participant.done) return;
  participant.done = true;
  participant.status = std::move(status);
  const absl::Status failed = !participant.status.ok() || node.failed_outputs.empty()
                                  ? participant.status
                                  : node.failed_outputs.begin()->second;
  if (!failed.ok() && node.kind == NodeKind::kLaunch && node.open_participants > 1) {
    // The others may wait for it; of a sequence, for one of its steps.
    const LaunchId last(node.launch_id.value + static_cast<uint64_t>(node.executable->max_steps) -
                        1);
    for (const Participant& other : node.participants) {
      if (!other.done)
        SendTo(executors.at(other.executor), AbandonLaunch{node.launch_id, last, failed});
    }
  }
  if (--node.open_participants > 0 || (Planted(Bug::kLoseCompletion) && node.id.value % 16 == 5))
    return;
  absl::Status result = node.failure;
  for (const Participant& p : node.participants) {
    if (result.ok()) result = p.status;
  }
  // The failure of a source that the controller has yet to hear of is told by its producer, as the
  // first cause.
  if (node.kind == NodeKind::kReceive && !result.ok() &&
      (PeerGone(result) || node.unsettled_inputs > 0)) {
    node.deferred = Annotate(result, node.name + " to " + Where(node));
    return;
  }
  // One that ran on several executors lost another: of which and why the controller hears soon.
  if (node.kind == NodeKind::kLaunch && node.participants.size() > 1 && node.failure.ok() &&
      PeerGone(result)) {
    node.deferred = Annotate(result, node.name + " on " + Where(node));
    return;
  }
  // Nor is it known to have gone well before its source is: what it took may be a shard of a group
  // of which another fails.
  if (node.kind == NodeKind::kReceive && node.unsettled_inputs > 0) return;
  if (const Group* poison = result.ok() ? nullptr : WorstInput(node);
      poison != nullptr && poison->cause) {
    return Conclude(node, absl::Status(poison->error), poison->cause);  // launched ahead of it
  }
  if (!result.ok() && node.failure.ok())
    result = Annotate(result, node.name + " on " + Where(node));
  Conclude(node, result, node.id);
}

void Cluster::State::Unprepare(Node& node, const absl::Status& cause) {
  assert(node.state == NodeState::kPrepared);
  if (node.kind == NodeKind::kLaunch) islands.at(node.island).sequencer.Forget(node.id);
  for (const Participant& p : node.participants) {
    Executor& executor = executors.at(p.executor);
    SendTo(executor, CancelNode{node.id, cause});
    executor.open.erase(p.seq);
  }
  if (node.kind != NodeKind::kLaunch) EndTransfer(node);
  Move(node, NodeState::kQueued);
  // A receive may have ended on some of them: what it left there is freed with the group.
  if (node.kind == NodeKind::kLaunch) {
    for (const GroupId id : node.outputs) FindGroup(id)->declared = false;
  }
  for (const Reservation& r : node.reservations) admission.Release(r.device, r.total());
  for (auto& [id, executor] : executors) {
    if (node.executable == nullptr) break;
    for (auto& [executable, install] : executor.installs) std::erase(install.waiters, node.id);
  }
  node.participants.clear();
  node.open_participants = 0;
  node.open_installs = 0;
  ++node.attempt;
  node.deferred = absl::OkStatus();
  node.deferred_since = -1;
  islands.at(node.island).stuck_since = -1;
  to_pump.insert(node.island);
}

void Cluster::State::TakeBack(std::set<NodeId> taken, const absl::Status& cause) {
  std::erase_if(taken, [&](NodeId id) {
    const Node* node = FindNode(id);
    return node == nullptr || node->state != NodeState::kPrepared;
  });
  if (taken.empty()) return;
  std::set<GroupId> unmade;  // those with readers
  const auto unmake = [&](const Node& node) {
    for (const GroupId id : node.outputs) {
      if (FindGroup(id)->readers > 0) unmade.insert(id);
    }
  };
  for (const NodeId id : taken) unmake(*FindNode(id));
  const auto first = unmade.empty() ? nodes.end() : nodes.upper_bound(*taken.begin());
  for (auto it = first; it != nodes.end(); ++it) {
    const Node& node = *it->second;
    const bool chained = node.kind == NodeKind::kReceive && node.state == NodeState::kPrepared &&
                         std::any_of(node.reads.begin(), node.reads.end(),
                                     [&](GroupId g) { return unmade.contains(g); });
    if (chained && taken.insert(node.id).second) unmake(node);
  }
  // Readers before what they read. A receive may have ended on some of its executors: what it left
  // there is freed.
  for (auto id = taken.rbegin(); id != taken.rend(); ++id) {
    Node& node = *FindNode(*id);
    Unprepare(node, cause);
    for (const GroupId group : node.outputs) {
      if (!Planted(Bug::kLeaveTakenBack)) ReleaseBytes(*FindGroup(group));
    }
    Submit(node);
  }
}

const Group* Cluster::State::WorstInput(const Node& node) {
  const Group* worst = nullptr;
  for (const GroupId id : node.reads) {
    const Group* group = FindGroup(id);
    if (group->state != GroupState::kFailed) continue;
    const bool earlier = worst == nullptr || group->cause < worst->cause;
    if (earlier != (Planted(Bug::kWrongCause) && worst != nullptr)) worst = group;
  }
  return worst;
}

bool Cluster::State::FailIfPoisoned(Node& node) {
  if (node.unsettled_inputs > 0 || node.state == NodeState::kLaunched) return false;
  const Group* worst = WorstInput(node);
  if (worst == nullptr || (Planted(Bug::kLaunchWithPoison) && node.kind == NodeKind::kLaunch))
    return false;
  const absl::Status error = worst->error;
  Fail(node, error, worst->cause);
  return true;
}

void Cluster::State::Fail(Node& node, const absl::Status& status, NodeId cause) {
  if (node.state == NodeState::kPrepared && node.kind == NodeKind::kReceive) {
    TakeBack({node.id}, status);  // what has arrived of it may be on its way to others
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
  const bool held = node.state == NodeState::kPrepared || node.state == NodeState::kLaunched;
  if (node.state == NodeState::kLaunched) islands.at(node.island).sequencer.Finished(node.id);
  Move(node, NodeState::kDone);
  for (const GroupId id : node.taken) {
    if (Group* input = FindGroup(id); status.ok() && input->charged) TakeOver(node, *input);
  }
  if (held) {
    if (node.kind != NodeKind::kLaunch) EndTransfer(node);
    for (const Reservation& r : node.reservations) {
      if (!Planted(Bug::kLeakReservation)) admission.Release(r.device, r.temp);
      if (!status.ok()) admission.Release(r.device, r.output - r.credit);
    }
    islands.at(node.island).stuck_since = -1;
    to_pump.insert(node.island);
  }
  for (const GroupId id : node.outputs) {
    Group* group = FindGroup(id);
    const auto failed = node.failed_outputs.find(static_cast<int32_t>(
        std::find(node.outputs.begin(), node.outputs.end(), id) - node.outputs.begin()));
    if (status.ok() && failed != node.failed_outputs.end()) {
      group->charged = true;  // until it is collected, as its executors may hold some of it
      SetFailed(*group, Annotate(failed->second, node.name + " on " + Where(node)), node.id);
    } else if (status.ok()) {
      group->charged = true;
      SetReady(*group);
    } else {
      SetFailed(*group, status, cause);
    }
  }
  if (const auto session = sessions.find(node.session); session != sessions.end()) {
    for (const uint64_t token : node.watches) actions->OnWatched(node.session, token, status);
    if (node.kind == NodeKind::kFetch && !status.ok())
      actions->OnFetched(node.session, node.token, status);
    session->second.nodes.erase(node.id);
    session->second.record_bytes -= node.record_bytes;
  }
  const std::unique_ptr<Node> ended = std::move(nodes.extract(node.id).mapped());
  if (ended->executable != nullptr && retired.contains(ended->executable->id))
    Forget(ended->executable->id);
  if (ended->unsettled_inputs > 0) {
    for (const GroupId id : ended->reads) std::erase(FindGroup(id)->waiters, ended->id);
  }
  for (const GroupId id : ended->reads) DropReader(id);
  for (const GroupId id : ended->outputs) {
    if (Group* group = FindGroup(id)) Collect(*group);
  }
}

}  // namespace fairway
