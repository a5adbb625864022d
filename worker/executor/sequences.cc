// SPDX-License-Identifier: Apache-2.0
// ExecutorCore: runs a sequence (graph/plan.h) step by step. Each step is a launch of its own,
// which the controller does not see.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/planted.h"
#include "worker/executor/executor_core.h"

namespace fairway {
namespace {

using Op = Instruction::Op;

// Reads the scalar that chooses a branch: little-endian, of 1, 2, 4 or 8 bytes.
std::optional<int64_t> Scalar(const Blob& bytes) {
  const auto as = [&]<typename T>(T value) {
    std::memcpy(&value, bytes.data(), sizeof value);
    return static_cast<int64_t>(value);
  };
  switch (bytes.size()) {
    case 1:
      return as(int8_t{});
    case 2:
      return as(int16_t{});
    case 4:
      return as(int32_t{});
    case 8:
      return as(int64_t{});
  }
  return std::nullopt;
}

}  // namespace

void ExecutorCore::StartSequence(NodeId id, Node& node,
                                 std::shared_ptr<const SequenceCode> sequence) {
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  node.started = true;
  const auto registers = static_cast<size_t>(sequence->sequence->registers);
  node.run = std::make_unique<SequenceRun>(std::move(sequence), prepared.inputs,
                                           node.launch->non_donatable);
  SequenceRun& run = *node.run;
  for (const Launch::FailedArgument& failed : node.launch->failed)
    run.failed.emplace(failed.argument, failed.status);
  const size_t arguments = prepared.inputs.empty() ? 0 : prepared.inputs[0].size();
  work_.ChargeShards(arguments * prepared.inputs.size());
  for (size_t a = 0; a < std::min(arguments, registers); ++a) {
    const auto argument = static_cast<int32_t>(a);
    if (absl::Status failed = FailedArgument(prepared, a); !failed.ok())
      run.failed.emplace(argument, std::move(failed));
    const auto failed = run.failed.find(argument);
    if (failed == run.failed.end()) continue;
    GroupPart part{GroupId(next_step_++), DType::kInvalid, "", {}};
    for (size_t d = 0; d < prepared.devices.size(); ++d)
      part.shards.push_back({static_cast<int32_t>(d), prepared.devices[d], Shape{}});
    Declare(part, id);
    run.Set(argument, run.Make(part));
    ShardsEnded(part, failed->second);
  }
  QueueSequence(id);
}

void ExecutorCore::Advance(NodeId id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end() || it->second.run == nullptr) return;
  Node& node = it->second;
  SequenceRun& run = *node.run;
  run.queued = false;
  // Millions of instructions may follow a step that has failed.
  const uint64_t until = work_.SliceEnds(kSliceUnits);
  while (const Instruction* next = run.Next()) {
    if (work_.units() >= until) {
      if (!Planted(Bug::kForgetSequence)) QueueSequence(id);
      commands_next_ = true;
      commands_until_ = work_.units() + kSliceUnits;
      return;
    }
    work_.Charge(1);
    work_.ChargeShards(next->inputs.size() + next->outputs.size() + next->clears.size() +
                       next->lengths.size());
    bool went = true;
    switch (next->op) {
      case Op::kRun:
        went = StartStep(id, node, *next);
        break;
      case Op::kBranch:
        went = TakeBranch(id, node, *next);
        break;
      case Op::kSet: {
        SequenceRun::ValueRef value = run.At(next->inputs[0]);
        run.Pass();
        run.Set(next->outputs[0], std::move(value));
        break;
      }
      case Op::kOutput:
        SetOutput(node, *next);
        run.Pass();
        break;
      case Op::kClear:
        run.Pass();
        break;
      case Op::kRepeat:
        break;  // Next enters the block
    }
    DropGarbage(run);
    if (!went) return;
  }
  if (!std::exchange(node.issued, true) && node.launch->gang) LeaveLines(id, node);
  if (run.at_work == 0 && !run.reading) EndSequence(id, node);
}

std::vector<GroupPart> ExecutorCore::MakeOutputs(Node& node, const Instruction& instruction,
                                                 NodeId producer) {
  const std::vector<int32_t>& devices = std::get<PrepareLaunch>(node.command).devices;
  std::vector<GroupPart> parts;
  for (size_t o = 0; o < instruction.outputs.size(); ++o) {
    const Sequence::Type& type = node.run->TypeOf(instruction, o);
    GroupPart part{GroupId(next_step_++), type.dtype, type.memory_kind, {}};
    for (size_t d = 0; d < devices.size(); ++d)
      part.shards.push_back({static_cast<int32_t>(d), devices[d], type.shard});
    Declare(part, producer);
    node.run->Set(instruction.outputs[o], node.run->Make(part));
    parts.push_back(std::move(part));
  }
  return parts;
}

bool ExecutorCore::StartStep(NodeId id, Node& node, const Instruction& instruction) {
  SequenceRun& run = *node.run;
  const auto& sequence = std::get<PrepareLaunch>(node.command);
  const bool gang = node.launch->gang;
  if (run.at_work >= kStepsAtWork) return false;
  PrepareLaunch command;
  command.node = NodeId(next_step_++);
  command.executable = instruction.executable;
  command.devices = sequence.devices;
  command.inputs.resize(command.devices.size());
  std::vector<ShardRef> missing;
  std::vector<SequenceRun::ValueRef> holds;
  absl::Status failed;
  for (const int32_t reg : instruction.inputs) {
    const SequenceRun::ValueRef& value = run.At(reg);
    const size_t shards = value == nullptr ? 0 : value->shards.size();
    if (shards != command.devices.size() && failed.ok())
      failed = Contradiction(id, fmt::format("register {} is empty", reg));
    for (size_t d = 0; d < std::min(shards, command.devices.size()); ++d) {
      const ShardRef ref = value->shards[d];
      command.inputs[d].push_back(ref);
      const auto shard = shards_.find(ref);
      if (shard == shards_.end()) {
        if (failed.ok()) failed = Contradiction(id, "a shard that a step takes is gone");
      } else if (shard->second.state == ShardState::kDeclared) {
        missing.push_back(ref);
      } else if (failed.ok()) {
        failed = shard->second.error;
      }
    }
    holds.push_back(value);
  }
  if (failed.ok()) failed = run.abandoned;
  // The reported failure must not depend on which input failed first: wait for all of them.
  if (!missing.empty() && (!failed.ok() || (gang && !Follows(command, gang)))) return false;
  const bool shared = shared_.contains(instruction.executable);
  if (gang && failed.ok() && !HasRoom({command.devices, shared}, instruction.executable))
    return false;
  Launch launch;
  launch.node = command.node;
  launch.launch_id = LaunchId(node.launch->launch_id.value + run.ids_taken++);
  launch.gang = gang;
  launch.ahead = !missing.empty();
  highest_launch_id_ = std::max(highest_launch_id_, launch.launch_id.value);
  holds.clear();  // otherwise NotDonatable would count them as readers
  launch.non_donatable = run.NotDonatable(instruction);
  for (const int32_t reg : instruction.inputs) holds.push_back(run.At(reg));
  run.Pass();
  command.outputs = MakeOutputs(node, instruction, command.node);
  if (!failed.ok()) {
    LeaveOut(node, run.ids_taken - 1, 1, failed);
    for (const GroupPart& part : command.outputs) ShardsEnded(part, failed);
    return true;
  }
  for (const int32_t reg : instruction.outputs) holds.push_back(run.At(reg));
  ++run.at_work;
  Node& step = nodes_[command.node];
  step.parent = id;
  step.shared = shared;
  step.holds = std::move(holds);
  step.missing = missing.size();
  for (const ShardRef& ref : missing) waiters_.Add(ref, {.node = command.node});
  step.launch = std::move(launch);
  const NodeId step_id = command.node;
  step.command = std::move(command);
  Start(step_id, step);
  return true;
}

bool ExecutorCore::TakeBranch(NodeId id, Node& node, const Instruction& branch) {
  SequenceRun& run = *node.run;
  const auto fail = [&](const absl::Status& why) {
    const SequenceRun::Skipped skipped = run.SkipBlocks();
    work_.ChargeShards(skipped.looked);
    LeaveOut(node, run.ids_taken - skipped.ids, skipped.ids, why);
    for (const GroupPart& part : MakeOutputs(node, branch, id)) ShardsEnded(part, why);
    return true;
  };
  const SequenceRun::ValueRef value = run.At(branch.inputs[0]);
  const auto shard =
      value == nullptr || value->shards.empty() ? shards_.end() : shards_.find(value->shards[0]);
  if (shard == shards_.end()) return fail(Contradiction(id, "a branch has no scalar"));
  if (shard->second.state == ShardState::kDeclared) return false;
  if (shard->second.state == ShardState::kFailed) return fail(shard->second.error);
  if (run.scalar.has_value()) {
    run.Choose(*run.scalar);
    return true;
  }
  if (run.reading) return false;
  if (run.unreadable) return fail(absl::InternalError("the scalar of a branch cannot be read"));
  run.reading = true;
  actions_->Read(id, {value->shards[0]});
  return false;
}

void ExecutorCore::SetOutput(const Node& node, const Instruction& output) {
  SequenceRun& run = *node.run;
  const SequenceRun::ValueRef& value = run.At(output.inputs[0]);
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  if (value == nullptr || static_cast<size_t>(output.outputs[0]) >= prepared.outputs.size()) return;
  const GroupPart& part = prepared.outputs[output.outputs[0]];
  value->exported = true;
  run.exported.push_back(value);
  for (size_t d = 0; d < std::min(part.shards.size(), value->shards.size()); ++d)
    ShareOutput(value->shards[d], {part.group, part.shards[d].shard});
}

void ExecutorCore::ShareOutput(ShardRef from, ShardRef output) {
  const auto shard = shards_.find(from);
  if (shard == shards_.end() || !shards_.contains(output)) return;
  if (shard->second.state == ShardState::kDeclared) {
    waiters_.Add(from, {.output = output});
    return;
  }
  const absl::Status status = shard->second.error;
  if (status.ok()) actions_->Share(from, output);
  ShardEnded(output, status);
}

void ExecutorCore::StepEnded(Node step) {
  const auto parent = nodes_.find(step.parent);
  if (parent == nodes_.end()) return;
  step.holds.clear();
  --parent->second.run->at_work;
  DropGarbage(*parent->second.run);
  QueueSequence(parent->first);
}

void ExecutorCore::LeaveOut(const Node& node, uint64_t taken, uint64_t count,
                            const absl::Status& why) {
  if (count == 0 || !shared_.contains(std::get<PrepareLaunch>(node.command).executable)) return;
  if (Planted(Bug::kLeaveOutSilently)) return;
  const uint64_t first = node.launch->launch_id.value + taken;
  actions_->LeftOut(LaunchId(first), LaunchId(first + count - 1), why);
}

void ExecutorCore::DropGarbage(SequenceRun& run) {
  for (const GroupId group : run.TakeGarbage()) DropGroup(group);
}

void ExecutorCore::ReadDone(NodeId id, std::vector<Report::Inlined> bytes) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end() || it->second.run == nullptr) return;
  SequenceRun& run = *it->second.run;
  run.reading = false;
  if (it->second.issued) {
    for (Report::Inlined& shard : bytes) {
      if (shards_.contains(shard.shard)) AddInlined(std::move(shard));
    }
    it->second.launch->inline_shards.clear();
  } else {
    if (bytes.size() == 1) run.scalar = Scalar(*bytes[0].bytes);
    run.unreadable = !run.scalar.has_value();
  }
  QueueSequence(id);
  DoWork();
}

void ExecutorCore::On(AbandonLaunch command) {
  // Launches that wait for their turn do not begin any more.
  std::vector<NodeId> held;
  for (auto it = launches_.lower_bound({command.first, NodeId()});
       it != launches_.end() && it->first <= command.last; ++it) {
    const Node& node = nodes_.at(it->second);
    if (!node.started && !Planted(Bug::kAbandonBegun)) held.push_back(it->second);
    if (node.run != nullptr) node.run->abandoned = command.cause;
  }
  for (const NodeId id : held) {
    LeaveOut(nodes_.at(id), 0, command.last.value - command.first.value + 1, command.cause);
    Conclude(id, command.cause);
  }
  actions_->Abandon(command);
}

void ExecutorCore::EndSequence(NodeId id, Node& node) {
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  std::vector<ShardRef>& inlined = node.launch->inline_shards;
  std::erase_if(inlined, [&](const ShardRef& ref) {
    const auto shard = shards_.find(ref);
    return shard == shards_.end() || shard->second.state != ShardState::kReady;
  });
  if (!inlined.empty()) {
    node.run->reading = true;
    actions_->Read(id, inlined);
    return;
  }
  std::map<std::string, int32_t, std::less<>> argument_of;  // by the error
  for (const auto& [argument, status] : node.run->failed)
    argument_of.emplace(Describe(status), argument);
  const size_t share = TextShare(prepared.outputs.size());
  for (size_t o = 0; o < prepared.outputs.size(); ++o) {
    work_.ChargeShards(prepared.outputs[o].shards.size());
    absl::Status failed;
    for (const LocalShard& local : prepared.outputs[o].shards) {
      const ShardRef ref{prepared.outputs[o].group, local.shard};
      const auto shard = shards_.find(ref);
      if (shard == shards_.end()) continue;  // freed in the meantime
      if (shard->second.state == ShardState::kDeclared)
        ShardEnded(ref, Contradiction(id, fmt::format("it never made output {}", o)));
      if (failed.ok()) failed = shard->second.error;
    }
    if (failed.ok()) continue;
    const auto by = argument_of.find(Describe(failed));
    AddFailure({prepared.seq, Bounded(std::move(failed), share), static_cast<int32_t>(o),
                by == argument_of.end() ? -1 : by->second});
  }
  node.run->End();
  On(FreeGroups{node.run->TakeGarbage()});
  const uint64_t seq = prepared.seq;
  launches_.erase({node.launch->launch_id, id});
  nodes_.erase(id);
  ReportEnd(seq, absl::OkStatus());
}

}  // namespace fairway
