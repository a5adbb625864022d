// SPDX-License-Identifier: Apache-2.0
// ExecutorCore: launches, from their commands to their ends.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/planted.h"
#include "worker/executor/executor_core.h"

namespace fairway {
namespace {

// Whether its bytes were in the command. Mostly, the controller has launched what reads them
// already; else it hears of the end a little later. A mixture of sources may be taken for either.
bool CameWithCommand(const PrepareReceive& receive) {
  return receive.sources.front().kind == ShardSource::Kind::kInline;
}

constexpr size_t kNarrow = 64;  // shards or outputs that may be looked at in one go

// Of what the launch reads.
bool IsNarrow(const PrepareLaunch& launch) {
  return launch.inputs.empty() || launch.inputs.size() * launch.inputs[0].size() <= kNarrow;
}

}  // namespace

void ExecutorCore::On(PrepareLaunch command) {
  if (ending_.contains(command.node))
    return ReportEnd(command.seq,
                     Contradiction(command.node, "it is prepared again before it has ended"),
                     /*may_wait=*/false);
  const auto [node, fresh] = nodes_.try_emplace(command.node);
  auto* const known = fresh ? nullptr : std::get_if<PrepareLaunch>(&node->second.command);
  if (!fresh && (known == nullptr || !known->more || known->seq != command.seq ||
                 known->devices != command.devices)) {
    ReportEnd(command.seq, Contradiction(command.node, "it was prepared twice"),
              /*may_wait=*/false);
    return;
  }
  for (const GroupPart& part : command.outputs) Declare(part, command.node);
  if (fresh) {
    node->second.command = std::move(command);
    return;
  }
  known->more = command.more;
  for (size_t p = 0; p < known->inputs.size(); ++p) {
    ShardRefs& row = known->inputs[p];
    row.insert(row.end(), command.inputs[p].begin(), command.inputs[p].end());
  }
  std::ranges::move(command.outputs, std::back_inserter(known->outputs));
}

void ExecutorCore::On(LaunchAll command) {
  PrepareLaunch prepared;
  prepared.node = command.node;
  prepared.entry = command.entry;
  prepared.executable = command.executable;
  const auto part = parts_.find(command.executable);
  if (part == parts_.end() || part->second.outputs.size() != command.outputs.size() ||
      nodes_.contains(command.node) || ending_.contains(command.node))
    return ReportLaunchEnd(
        prepared,
        Contradiction(command.node, "it is known already, or its code was installed otherwise"),
        /*may_wait=*/false);
  const LocalPart& here = part->second;
  prepared.devices = here.devices;
  for (const int32_t position : here.positions) {
    ShardRefs& row = prepared.inputs.emplace_back();
    row.reserve(command.inputs.size());
    for (const GroupId group : command.inputs) row.push_back({group, position});
  }
  prepared.outputs = here.outputs;
  for (size_t o = 0; o < command.outputs.size(); ++o)
    prepared.outputs[o].group = command.outputs[o];
  Launch launch;
  launch.node = command.node;
  launch.launch_id = command.launch_id;
  launch.gang = true;
  launch.ahead = command.ahead;
  launch.non_donatable = std::move(command.non_donatable);
  for (const int32_t output : command.inline_outputs) {
    for (size_t d = 0; d < here.positions.size(); ++d) {
      if (here.distinct[output * here.positions.size() + d])
        launch.inline_shards.push_back({command.outputs[output], here.positions[d]});
    }
  }
  On(std::move(prepared));
  On(std::move(launch));
}

void ExecutorCore::On(Launch command) {
  const auto it = nodes_.find(command.node);
  if (it == nodes_.end()) return;  // it failed here before, and that was reported
  const auto* prepared = std::get_if<PrepareLaunch>(&it->second.command);
  if (prepared == nullptr || it->second.launch.has_value()) {
    Conclude(command.node,
             {Contradiction(command.node, "it was launched twice, or it is not a launch"), {}});
    return;
  }
  if (prepared->more) {
    Conclude(command.node,
             {Contradiction(command.node, "it was launched before all was told"), {}});
    return;
  }
  if (!command.failed.empty() && SequenceOf(it->second) == nullptr) {
    Conclude(command.node,
             {Contradiction(command.node, "an argument failed, but it is not a sequence"), {}});
    return;
  }
  highest_launch_id_ = std::max(highest_launch_id_, command.launch_id.value);
  if (!std::ranges::is_sorted(command.failed, {}, &Launch::FailedArgument::argument)) {
    Conclude(command.node,
             {Contradiction(command.node, "its failed arguments are not in order"), {}});
    return;
  }
  std::vector<bool> failed;
  if (!command.failed.empty() && !prepared->inputs.empty())
    failed.resize(prepared->inputs[0].size());
  for (const Launch::FailedArgument& argument : command.failed) {
    const auto a = static_cast<size_t>(argument.argument);
    if (a < failed.size()) failed[a] = true;
  }
  launching_ = {std::move(command), std::move(failed)};
  GoOnLaunching();
}

void ExecutorCore::GoOnLaunching() {
  LaunchInHand& at = *launching_;
  const NodeId id = at.command.node;
  const auto it = nodes_.find(id);
  const auto* prepared = std::get_if<PrepareLaunch>(&it->second.command);
  size_t looked = 0;
  for (; at.device < prepared->inputs.size(); ++at.device, at.argument = 0) {
    const ShardRefs& inputs = prepared->inputs[at.device];
    for (; at.argument < inputs.size(); ++at.argument) {
      if (looked++ == shards_at_once_) return work_.ChargeShards(shards_at_once_);
      const ShardRef ref = inputs[at.argument];
      if (!at.failed.empty() && at.failed[at.argument]) continue;
      const auto shard = shards_.find(ref);
      if (shard != shards_.end() && shard->second.state == ShardState::kReady) continue;
      const size_t position = at.argument * prepared->inputs.size() + at.device;
      if (!at.command.ahead || !OnItsWay(ref, at.command.gang)) {
        launching_.reset();
        return Conclude(
            id,
            {Contradiction(id, fmt::format("input {}:{} is not here", ref.group, ref.shard)), {}});
      }
      if (shard->second.state == ShardState::kDeclared) {
        waiters_.Add(ref, {.node = id, .position = position});
        ++it->second.missing;
      } else {
        it->second.FailedAt(position, shard->second.error);
      }
    }
  }
  work_.ChargeShards(looked);
  it->second.launch = std::move(at.command);
  launching_.reset();
  launches_.emplace(it->second.launch->launch_id, it->first);
  if (it->second.launch->gang) {
    it->second.shared = shared_.contains(prepared->executable) || Planted(Bug::kOneLineForAll);
    lines_.Add(it->first, PlaceOf(it->second));
    MayStart(it->first);
  } else if (Follows(it->second)) {
    singles_.push_back(it->first);
  }
}

bool ExecutorCore::Follows(const Node& node) const {
  if (node.missing == 0) return true;
  return SequenceOf(node) == nullptr &&
         Follows(std::get<PrepareLaunch>(node.command), node.launch->gang);
}

bool ExecutorCore::Follows(const PrepareLaunch& prepared, bool gang) const {
  if (gang && !follows_.contains(prepared.executable)) return false;
  NodeId follows;  // mostly one launch computes all that it reads
  for (const ShardRefs& device : prepared.inputs) {
    for (const ShardRef& ref : device) {
      const auto shard = shards_.find(ref);
      if (shard == shards_.end() || shard->second.state == ShardState::kFailed) return false;
      if (shard->second.state == ShardState::kReady) continue;
      if (follows && shard->second.producer == follows) continue;
      const auto producer = nodes_.find(shard->second.producer);
      if (producer == nodes_.end() || !producer->second.started) return false;
      if (Planted(Bug::kFollowAnyone)) continue;
      const auto* launch = std::get_if<PrepareLaunch>(&producer->second.command);
      if (launch == nullptr || launch->devices != prepared.devices ||
          producer->second.launch->gang != gang || producer->second.follows != gang ||
          SequenceOf(producer->second) != nullptr)
        return false;
      follows = shard->second.producer;
    }
  }
  return true;
}

bool ExecutorCore::FollowsSequences(const Node& node) const {
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  if (!node.launch->gang || !IsNarrow(prepared)) return false;
  const size_t arguments = prepared.inputs.empty() ? 0 : prepared.inputs[0].size();
  for (size_t a = 0; a < arguments; ++a) {
    if (!EndOf(prepared, a).has_value() && MadeBefore(prepared, a) == nullptr) return false;
  }
  return true;
}

SequenceRun::ValueRef ExecutorCore::MadeBefore(const PrepareLaunch& launch, size_t argument) const {
  const auto shard = shards_.find(launch.inputs[0][argument]);
  const auto producer = shard == shards_.end() ? nodes_.end() : nodes_.find(shard->second.producer);
  if (producer == nodes_.end() || !producer->second.issued) return nullptr;
  const auto& before = std::get<PrepareLaunch>(producer->second.command);
  if (before.devices != launch.devices || before.outputs.size() > kNarrow) return nullptr;
  const auto output =
      std::ranges::find(before.outputs, launch.inputs[0][argument].group, &GroupPart::group);
  if (output == before.outputs.end()) return nullptr;
  const auto number = static_cast<size_t>(output - before.outputs.begin());
  const auto& exported = producer->second.run->exported;
  if (number >= exported.size())
    return nullptr;  // it is ending: on this device its output is there
  SequenceRun::ValueRef value = exported[Planted(Bug::kFirstOutput) ? 0 : number];
  if (value == nullptr || value->shards.size() != launch.devices.size() ||
      output->shards.size() != launch.devices.size())
    return nullptr;
  for (size_t d = 0; d < launch.devices.size(); ++d) {
    const ShardRef made{output->group, output->shards[d].shard};
    if (launch.inputs[d][argument] != made) return nullptr;
  }
  return value;
}

bool ExecutorCore::OnItsWay(ShardRef ref, bool gang) const {
  const auto shard = shards_.find(ref);
  if (shard == shards_.end()) return false;
  if (shard->second.state != ShardState::kDeclared) return true;
  const auto producer = nodes_.find(shard->second.producer);
  if (producer == nodes_.end()) return ending_.contains(shard->second.producer);
  const auto* receive = std::get_if<PrepareReceive>(&producer->second.command);
  if (receive == nullptr) return producer->second.launch.has_value();
  // A gang would hold up others while it waits for a transfer. For a gang, the bytes came with the
  // command, for one device or for each.
  return !gang ||
         std::all_of(receive->sources.begin(), receive->sources.end(), [&](const ShardSource& s) {
           return s.kind == ShardSource::Kind::kInline ||
                  (s.kind == ShardSource::Kind::kLocal && s.shard.group == ref.group);
         });
}

void ExecutorCore::ChargeInputs(const Node& node) {
  const std::vector<ShardRefs>& inputs = std::get<PrepareLaunch>(node.command).inputs;
  if (!inputs.empty()) work_.ChargeShards(inputs.size() * inputs[0].size());
}

void ExecutorCore::LaunchInputEnded(NodeId id, size_t position, const absl::Status& status) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  if (!status.ok()) it->second.FailedAt(position, status);
  const bool last = --it->second.missing == 0;
  if (it->second.run != nullptr) {
    ++it->second.run->steps_ended;
    QueueSequence(id);
  } else if (it->second.started) {
    if (last) ended_.push_back(id);
  } else if (it->second.launch->gang && !it->second.parent) {
    MayStart(id);  // it may follow what computes the others
  } else if (last) {
    singles_.push_back(id);
  } else if (it->second.missing == 1 && !it->second.parent &&
             IsNarrow(std::get<PrepareLaunch>(it->second.command))) {
    ChargeInputs(it->second);  // it may follow what computes the last one
    if (Follows(it->second)) singles_.push_back(id);
  }
}

std::optional<absl::Status> ExecutorCore::EndOf(const PrepareLaunch& launch,
                                                size_t argument) const {
  bool ended = true;
  for (const ShardRefs& device : launch.inputs) {
    const auto shard = shards_.find(device[argument]);
    if (shard == shards_.end()) continue;
    if (shard->second.state == ShardState::kFailed) return shard->second.error;
    ended = ended && shard->second.state == ShardState::kReady;
  }
  return ended ? std::optional(absl::OkStatus()) : std::nullopt;
}

void ExecutorCore::Start(NodeId id, Node& node) {
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  if (node.started) return;
  if (const auto sequence = sequences_.find(prepared.executable); sequence != sequences_.end()) {
    if (node.missing > 0 && IsNarrow(prepared)) ChargeInputs(node);
    if (node.missing == 0 || FollowsSequences(node)) StartSequence(id, node, sequence->second);
    return;
  }
  if (!node.failure.ok()) {
    if (node.missing > 0) return;
    // The other executors of the gang may wait for it, and the controller may be gone.
    LeaveOut(node, 0, node.steps, node.failure);
    Conclude(id, {node.failure, {}});
    return;
  }
  node.started = true;
  work_.Charge(kStartUnits);
  node.follows = node.launch->gang && follows_.contains(prepared.executable);
  if (node.launch->gang && !node.follows) lines_.Begin(PlaceOf(node));
  starting_ = {id};
  GoOnStarting();
}

void ExecutorCore::GoOnStarting() {
  const NodeId id = starting_->node;
  const Node& node = nodes_.find(id)->second;
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  const size_t arguments = prepared.inputs.empty() ? 0 : prepared.inputs[0].size();
  const size_t ready = actions_->ReadyLaunch(prepared, starting_->value);
  const size_t all = arguments + prepared.outputs.size();
  work_.ChargeShards((std::min(ready, all) - starting_->value) * prepared.devices.size());
  starting_->value = ready;
  if (ready != ExecutorActions::kAll) return;
  starting_.reset();
  actions_->StartLaunch(prepared, *node.launch);
  if (Planted(Bug::kReportEarly) && id.value % 3 == 0)
    ReportLaunchEnd(prepared, absl::OkStatus(), /*may_wait=*/true);
  if (!node.launch->gang) followed_.push_back({id});
}

GangPlace ExecutorCore::PlaceOf(const Node& gang) {
  return {std::get<PrepareLaunch>(gang.command).devices, gang.shared};
}

const PrepareLaunch* ExecutorCore::Waiting(NodeId id) const {
  const auto it = nodes_.find(id);
  if (it == nodes_.end() || !it->second.launch.has_value() || !it->second.launch->gang)
    return nullptr;
  const Node& node = it->second;
  const bool waits = node.run != nullptr ? !node.issued : !node.started;
  return waits ? &std::get<PrepareLaunch>(node.command) : nullptr;
}

bool ExecutorCore::HasRoom(const GangPlace& place, ExecutableId executable) {
  return lines_.HaveRoom(place, max_gangs_) || Planted(Bug::kTooManyGangs) ||
         follows_.contains(executable);
}

void ExecutorCore::StartGang(NodeId id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end() || !it->second.launch.has_value() || it->second.started) return;
  Node& node = it->second;
  if (!lines_.HasTurn(id, PlaceOf(node))) return;
  if (SequenceOf(node) == nullptr) {
    if (node.missing > 0) ChargeInputs(node);
    if (!Follows(node)) return;
    if (!HasRoom(PlaceOf(node), std::get<PrepareLaunch>(node.command).executable)) return;
    LeaveLines(id, node);
  }
  Start(id, node);
}

void ExecutorCore::MayStart(NodeId gang) {
  const auto it = nodes_.find(gang);
  if (it != nodes_.end() && !std::exchange(it->second.in_gangs, true)) gangs_.push_back(gang);
}

void ExecutorCore::LeaveLines(NodeId id, const Node& node) {
  Wake(lines_.Remove(id, PlaceOf(node)));
}

void ExecutorCore::Wake(const std::vector<NodeId>& firsts) {
  for (const NodeId id : firsts) {
    const auto it = nodes_.find(id);
    if (it != nodes_.end() && it->second.run != nullptr) {
      QueueSequence(id);
    } else {
      MayStart(id);
    }
  }
}

void ExecutorCore::LaunchDone(NodeId node, absl::Status status,
                              std::vector<Report::Inlined> inlined, size_t brief,
                              std::vector<absl::Status> outputs) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  if (Planted(Bug::kGoodBlock)) std::ranges::fill(outputs, absl::OkStatus());
  Node::End end{std::move(status), std::move(inlined), brief, std::move(outputs)};
  if (it->second.missing > 0) {
    it->second.end = std::move(end);
  } else {
    LaunchEnded(node, it->second, std::move(end));
  }
  DoWork();
}

void ExecutorCore::LaunchEnded(NodeId id, Node& node, Node::End end) {
  if (std::holds_alternative<PrepareLaunch>(node.command) && !node.failure.ok() &&
      end.outputs.empty())
    end.status = node.failure;
  Conclude(id, std::move(end));
}

void ExecutorCore::Conclude(NodeId id, Node::End end) {
  const auto it = nodes_.find(id);
  Node node = std::move(it->second);
  nodes_.erase(it);
  if (const auto* receive = std::get_if<PrepareReceive>(&node.command))
    return ReportEnd(receive->seq, end.status, /*may_wait=*/CameWithCommand(*receive));
  if (node.launch.has_value() && node.launch->gang) {
    if (!node.started || node.run != nullptr) {
      LeaveLines(id, node);
    } else if (!node.follows) {
      Wake(lines_.End(PlaceOf(node)));
    }
  }
  if (node.launch.has_value() && !node.parent) launches_.erase({node.launch->launch_id, id});
  EndLaunch({std::move(node), std::move(end)});
}

void ExecutorCore::EndLaunch(EndInHand end) {
  if (GoOnEnding(end)) return;
  if (end.cancelled) {
    forgetting_ = std::move(end);
  } else {
    const NodeId id = std::get<PrepareLaunch>(end.node.command).node;
    ending_.emplace(id, std::move(end));
    CommandsNext();
  }
}

bool ExecutorCore::GoOnEnding(EndInHand& end) {
  const auto& launch = std::get<PrepareLaunch>(end.node.command);
  for (size_t ended = 0; end.output < launch.outputs.size(); ++end.output) {
    const GroupPart& part = launch.outputs[end.output];
    if (ended >= std::max<size_t>(shards_at_once_ / 4, 1)) return false;
    ended += part.shards.size();
    const std::vector<absl::Status>& each = end.end.outputs;
    const absl::Status& status = end.output < each.size() ? each[end.output] : end.end.status;
    end.cancelled ? Forget(part, status) : ShardsEnded(part, status);
  }
  if (end.node.parent) {
    StepEnded(std::move(end.node), end.end.brief);
    return true;
  }
  for (Report::Inlined& shard : end.end.inlined) {
    // Bytes that the client gave up in the meantime need not travel, nor bytes made of a failed
    // input.
    if (end.end.status.ok() && shards_.contains(shard.shard)) AddInlined(std::move(shard));
  }
  ReportLaunchEnd(launch, end.cancelled ? absl::OkStatus() : end.end.status,
                  /*may_wait=*/!end.cancelled);
  return true;
}

}  // namespace fairway
