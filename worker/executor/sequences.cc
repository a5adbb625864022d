// SPDX-License-Identifier: Apache-2.0
// ExecutorCore: runs a sequence (graph/plan.h) step by step. A step, or a block of them, is a
// launch that the controller does not see.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/planted.h"
#include "worker/executor/executor_core.h"

namespace fairway {
namespace {

using Op = Instruction::Op;
using Phase = SequenceRun::Making::Phase;

constexpr size_t kBlockShards = 512;  // that the steps of a block take, make and clear

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
  node.started = true;
  node.run =
      std::make_unique<SequenceRun>(std::move(sequence), node.launch->non_donatable, garbage_);
  const auto known = blocks_.find(std::get<PrepareLaunch>(node.command).executable);
  if (known != blocks_.end()) node.run->Widen(known->second.window);
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
  Went went = TakeArguments(id, node, until);
  while (went == Went::kOn) {
    if (work_.units() >= until || starting_.has_value() || !freed_.empty()) {
      went = Went::kPaused;
    } else if (run.HasLeftovers()) {
      work_.ChargeShards(run.LetGo());
      DropGarbage();
    } else if (run.making.phase != Phase::kNone) {
      went = GoOnMaking(id, node, until);
      DropGarbage();
    } else if (const Instruction* next = run.Next(); next != nullptr) {
      went = Do(id, node, *next);
      DropGarbage();
    } else {
      break;
    }
  }
  if (went == Went::kOn) {
    if (!std::exchange(node.issued, true) && node.launch->gang) LeaveLines(id, node);
    if (run.at_work == 0 && !run.reading && node.missing == 0) went = EndSequence(id, node, until);
  }
  if (went != Went::kPaused) return;
  if (!Planted(Bug::kForgetSequence)) QueueSequence(id);
  CommandsNext();
}

ExecutorCore::Went ExecutorCore::TakeArguments(NodeId id, Node& node, uint64_t until) {
  SequenceRun& run = *node.run;
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  std::vector<Launch::FailedArgument>& told = node.launch->failed;
  const size_t arguments =
      std::min(prepared.inputs.empty() ? 0 : prepared.inputs[0].size(), run.num_registers());
  for (; run.taken < arguments; ++run.taken) {
    if (work_.units() >= until) return Went::kPaused;
    work_.ChargeShards(prepared.devices.size());
    const auto argument = static_cast<int32_t>(run.taken);
    const std::optional<absl::Status> end = EndOf(prepared, run.taken);
    absl::Status failed = end.value_or(absl::OkStatus());
    if (run.told < told.size() && told[run.told].argument == argument)
      failed = std::move(told[run.told++].status);
    if (failed.ok() && !end.has_value()) {
      SequenceRun::ValueRef made = MadeBefore(prepared, run.taken);
      if (made == nullptr) return Went::kWaits;
      run.Set(argument, std::move(made));
      run.early.push_back(argument);
      continue;
    }
    if (failed.ok()) {
      std::vector<ShardRef> shards;
      shards.reserve(prepared.inputs.size());
      for (const ShardRefs& device : prepared.inputs) shards.push_back(device[run.taken]);
      run.SetArgument(argument, std::move(shards));
      continue;
    }
    GroupPart part{GroupId(next_step_++), DType::kInvalid, "", {}};
    for (size_t d = 0; d < prepared.devices.size(); ++d)
      part.shards.push_back({static_cast<int32_t>(d), prepared.devices[d], Shape{}});
    Declare(part, id);
    run.Set(argument, run.Make(part));
    ShardsEnded(part, failed);
    run.failed.emplace_back(argument, std::move(failed));
  }
  return Went::kOn;
}

ExecutorCore::Went ExecutorCore::Do(NodeId id, Node& node, const Instruction& next) {
  SequenceRun& run = *node.run;
  work_.Charge(1);
  work_.ChargeShards(next.lengths.size());
  switch (next.op) {
    case Op::kRun:
      return BeginStep(node, next, BlockFor(node));
    case Op::kBranch:
      return TakeBranch(id, node, next);
    case Op::kSet: {
      SequenceRun::ValueRef value = run.At(next.inputs[0]);
      run.Pass();
      run.Set(next.outputs[0], std::move(value));
      break;
    }
    case Op::kOutput:
      SetOutput(node, next);
      run.Pass();
      break;
    case Op::kClear:
      run.Pass();
      break;
    case Op::kRepeat:
      break;  // Next entered the block
  }
  return Went::kOn;
}

ExecutorCore::Went ExecutorCore::BeginStep(Node& node, const Instruction& first,
                                           const LinkedBlocks::Linked* block) {
  SequenceRun& run = *node.run;
  const size_t steps = block != nullptr ? block->block->calls.size() : 1;
  if (!run.HasRoomFor(steps)) return Went::kWaits;
  SequenceRun::Making& step = run.making;
  step = {};
  step.phase = Phase::kReads;
  step.steps_ended = run.steps_ended;
  step.instruction = &first;
  step.command.node = NodeId(next_step_++);
  step.command.executable = first.executable;
  step.command.devices = std::get<PrepareLaunch>(node.command).devices;
  step.command.inputs.resize(step.command.devices.size());
  if (block == nullptr) return Went::kOn;
  step.block = block->block;
  step.instruction = &step.block->step;
  step.steps = steps;
  step.command.executable = block->code;
  return Went::kOn;
}

const LinkedBlocks::Linked* ExecutorCore::BlockFor(const Node& node) {
  const SequenceRun& run = *node.run;
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  if (run.Together() < 2 || !node.launch->gang || !run.abandoned.ok() ||
      !shared_.contains(prepared.executable))
    return nullptr;
  const SequencePlace place = run.Place();
  const auto [entry, fresh] = blocks_.try_emplace(prepared.executable);
  LinkedBlocks& known = entry->second;
  known.used = next_step_;
  if (fresh && blocks_.size() > LinkedBlocks::kMostSequences) {
    const auto later = [&](const auto& a, const auto& b) {
      return &a.second != &known && (&b.second == &known || a.second.used < b.second.used);
    };
    Unlink(std::ranges::min_element(blocks_, later)->first);
  }
  const LinkedBlocks::Linked* smaller = nullptr;
  size_t steps = std::bit_floor(StepsFrom(run.sequence(), place, run.Together())), largest = 0;
  for (; steps > 1 && smaller == nullptr; steps /= 2) {
    const auto linked = known.by_place.find({place.at, steps});
    if (linked == known.by_place.end()) {
      largest = std::max(largest, steps);
    } else if (linked->second.block != nullptr) {
      smaller = &linked->second;
    }
  }
  if (largest == 0 || known.full()) return smaller;
  LinkedBlocks::Linked& linked = known.by_place[{place.at, largest}];
  LinkBlock(run, largest, kBlockShards / prepared.devices.size(), linked);
  return linked.block != nullptr ? &linked : smaller;
}

void ExecutorCore::LinkBlock(const SequenceRun& run, size_t steps, size_t most,
                             LinkedBlocks::Linked& to) {
  to.block = MakeBlock(run.sequence(), run.Place(), steps, most);
  work_.ChargeShards(to.block != nullptr ? 4 * steps : most);
  if (to.block == nullptr) return;
  to.code = ExecutableId(next_step_++);
  const auto all_in = [&](const std::set<ExecutableId>& codes) {
    return std::ranges::all_of(to.block->calls, [&](const StepBlock::Call& call) {
      return codes.contains(call.executable);
    });
  };
  if (!all_in(shared_) || !actions_->LinkSteps(to.code, *to.block)) {
    to.block = nullptr;
    return;
  }
  shared_.insert(to.code);
  if (all_in(follows_)) follows_.insert(to.code);
}

void ExecutorCore::Unlink(ExecutableId sequence) {
  const auto blocks = blocks_.find(sequence);
  if (blocks == blocks_.end()) return;
  for (const auto& [_, linked] : blocks->second.by_place) {
    if (linked.block == nullptr) continue;
    shared_.erase(linked.code);
    follows_.erase(linked.code);
    actions_->Unload(linked.code);
  }
  blocks_.erase(blocks);
}

ExecutorCore::Went ExecutorCore::GoOnMaking(NodeId id, Node& node, uint64_t until) {
  switch (node.run->making.phase) {
    case Phase::kNone:
      break;
    case Phase::kReads:
      return ReadInputs(id, node, until);
    case Phase::kMakes:
      return MakeOutputs(id, node, until);
    case Phase::kWaits:
      return WaitForInputs(node, until);
  }
  return Went::kOn;
}

ExecutorCore::Went ExecutorCore::ReadInputs(NodeId id, Node& node, uint64_t until) {
  SequenceRun& run = *node.run;
  SequenceRun::Making& step = run.making;
  const size_t devices = step.command.devices.size();
  const std::vector<int32_t>& inputs = step.instruction->inputs;
  // Nothing may fail between the look at a block's inputs and its start: it would fail as a whole.
  if (step.block != nullptr) until = UINT64_MAX;
  for (; step.at < inputs.size(); ++step.at) {
    if (work_.units() >= until) return Went::kPaused;
    work_.ChargeShards(devices);
    const SequenceRun::ValueRef& value = run.At(inputs[step.at]);
    const size_t shards = value == nullptr ? 0 : value->shards.size();
    if (shards != devices && step.failed.ok())
      step.failed = Contradiction(id, fmt::format("register {} is empty", inputs[step.at]));
    for (size_t d = 0; d < std::min(shards, devices); ++d) {
      const ShardRef ref = value->shards[d];
      step.command.inputs[d].push_back(ref);
      const auto shard = shards_.find(ref);
      if (shard == shards_.end()) {
        if (step.failed.ok()) step.failed = Contradiction(id, "a shard that a step takes is gone");
      } else if (shard->second.state == ShardState::kDeclared) {
        step.missing.push_back({ref, step.at * devices + d});
      } else if (step.failed.ok()) {
        step.failed = shard->second.error;
      }
    }
  }
  if (step.failed.ok()) step.failed = run.abandoned;
  const bool gang = node.launch->gang;
  const bool shared = shared_.contains(step.command.executable);
  // The reported failure must not depend on which input failed first: wait for all of them.
  const bool waits =
      !step.missing.empty() && (!step.failed.ok() || (gang && !Follows(step.command, gang)));
  // Some of its steps may need nothing that has failed, or that is not there yet. And the blocks of
  // another sequence may have taken its place.
  const bool unlinked = !shared_.contains(step.command.executable);
  if (step.block != nullptr && (waits || unlinked || !step.failed.ok())) {
    step.phase = Phase::kNone;
    return BeginStep(node, *run.Next(), nullptr);
  }
  if (waits || (gang && step.failed.ok() &&
                !HasRoom({step.command.devices, shared}, step.command.executable))) {
    step.phase = Phase::kNone;
    // It looks again at what has changed in the meantime.
    const bool same = step.steps_ended == run.steps_ended || Planted(Bug::kMissStepEnd);
    return same ? Went::kWaits : Went::kOn;
  }
  GoPast(node);
  if (step.block == nullptr) return Went::kOn;
  MakeOutputs(id, node, until);
  return WaitForInputs(node, until);
}

void ExecutorCore::GoPast(Node& node) {
  SequenceRun& run = *node.run;
  SequenceRun::Making& step = run.making;
  step.launch.node = step.command.node;
  step.launch.launch_id = LaunchId(node.launch->launch_id.value + run.ids_taken);
  run.ids_taken += Planted(Bug::kOneIdForBlock) ? 1 : step.steps;
  step.launch.gang = node.launch->gang;
  step.launch.ahead = !step.missing.empty();
  highest_launch_id_ =
      std::max(highest_launch_id_, node.launch->launch_id.value + run.ids_taken - 1);
  if (step.failed.ok()) {
    step.launch.non_donatable = run.NotDonatable(*step.instruction);
    step.holds.reserve(step.instruction->inputs.size() + step.instruction->outputs.size());
    for (const int32_t reg : step.instruction->inputs) step.holds.push_back(run.At(reg));
  } else {
    LeaveOut(node, run.ids_taken - 1, 1, step.failed);
  }
  step.block != nullptr ? run.Pass(*step.block) : run.Pass();
  step.phase = Phase::kMakes;
  step.at = 0;
}

ExecutorCore::Went ExecutorCore::MakeOutputs(NodeId id, Node& node, uint64_t until) {
  const std::vector<int32_t>& devices = std::get<PrepareLaunch>(node.command).devices;
  SequenceRun& run = *node.run;
  SequenceRun::Making& step = run.making;
  const Instruction& instruction = *step.instruction;
  for (; step.at < instruction.outputs.size(); ++step.at) {
    if (work_.units() >= until) return Went::kPaused;
    work_.ChargeShards(2);  // it takes some allocations
    const Sequence::Type& type = run.TypeOf(instruction, step.at);
    GroupPart part{GroupId(next_step_++), type.dtype, type.memory_kind, {}};
    part.shards.reserve(devices.size());
    for (size_t d = 0; d < devices.size(); ++d)
      part.shards.push_back({static_cast<int32_t>(d), devices[d], type.shard});
    Declare(part, instruction.op == Op::kRun ? step.command.node : id);
    run.Set(instruction.outputs[step.at], run.Make(part));
    if (!step.failed.ok()) {
      ShardsEnded(part, step.failed);
      continue;
    }
    step.holds.push_back(run.At(instruction.outputs[step.at]));
    step.command.outputs.push_back(std::move(part));
  }
  if (!step.failed.ok()) {
    step.phase = Phase::kNone;
    return Went::kOn;
  }
  if (step.block != nullptr) {
    for (const auto& [to, from] : step.block->copies) run.Set(to, run.At(from));
  }
  run.at_work += step.steps;
  Node& made = nodes_[step.command.node];
  made.parent = id;
  made.steps = step.steps;
  made.shared = shared_.contains(step.command.executable);
  made.holds = std::move(step.holds);
  made.missing = 1;  // until all are written down
  made.launch = std::move(step.launch);
  made.command = std::move(step.command);
  step.made = made.launch->node;
  step.phase = Phase::kWaits;
  step.at = 0;
  return Went::kOn;
}

ExecutorCore::Went ExecutorCore::WaitForInputs(Node& node, uint64_t until) {
  SequenceRun::Making& step = node.run->making;
  const NodeId id = step.made;
  Node& made = nodes_.at(id);
  for (; step.at < step.missing.size(); ++step.at) {
    if (work_.units() >= until) return Went::kPaused;
    work_.ChargeShards(1);
    const auto& [ref, position] = step.missing[step.at];
    const auto shard = shards_.find(ref);
    if (shard->second.state == ShardState::kDeclared || Planted(Bug::kMissInputEnd)) {
      waiters_.Add(ref, {.node = id, .position = position});
      ++made.missing;
    } else if (shard->second.state == ShardState::kFailed) {
      made.FailedAt(position, shard->second.error);
    }
  }
  // It may have been abandoned since it was looked at, and its code dropped.
  if (!node.run->abandoned.ok()) made.FailedAt(SIZE_MAX, node.run->abandoned);
  // It does not start, so nothing may start ahead of it. It ends when its last input has ended.
  if (!made.failure.ok() && made.missing > 1) return Went::kWaits;
  --made.missing;
  step.phase = Phase::kNone;
  Start(id, made);
  return Went::kOn;
}

ExecutorCore::Went ExecutorCore::TakeBranch(NodeId id, Node& node, const Instruction& branch) {
  SequenceRun& run = *node.run;
  const auto fail = [&](const absl::Status& why) {
    const SequenceRun::Skipped skipped = run.SkipBlocks();
    work_.ChargeShards(skipped.looked);
    LeaveOut(node, run.ids_taken - skipped.ids, skipped.ids, why);
    run.making = {.phase = Phase::kMakes, .instruction = &branch, .failed = why};
    return Went::kOn;
  };
  const SequenceRun::ValueRef value = run.At(branch.inputs[0]);
  const auto shard =
      value == nullptr || value->shards.empty() ? shards_.end() : shards_.find(value->shards[0]);
  if (shard == shards_.end()) return fail(Contradiction(id, "a branch has no scalar"));
  if (shard->second.state == ShardState::kDeclared) return Went::kWaits;
  if (shard->second.state == ShardState::kFailed) return fail(shard->second.error);
  if (run.scalar.has_value()) {
    run.Choose(*run.scalar);
    return Went::kOn;
  }
  if (run.reading) return Went::kWaits;
  if (run.unreadable) return fail(absl::InternalError("the scalar of a branch cannot be read"));
  run.reading = true;
  actions_->Read(id, {value->shards[0]});
  return Went::kWaits;
}

void ExecutorCore::SetOutput(const Node& node, const Instruction& output) {
  SequenceRun& run = *node.run;
  const SequenceRun::ValueRef& value = run.At(output.inputs[0]);
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  if (value == nullptr || static_cast<size_t>(output.outputs[0]) >= prepared.outputs.size()) return;
  const GroupPart& part = prepared.outputs[output.outputs[0]];
  value->exported = true;
  run.exported[output.outputs[0]] = value;
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
  work_.Charge(1);
  if (status.ok()) actions_->Share(from, output);
  ShardEnded(output, status);
}

void ExecutorCore::StepEnded(Node step, size_t brief) {
  const auto parent = nodes_.find(step.parent);
  if (parent == nodes_.end()) {  // it was cancelled
    work_.ChargeShards(step.holds.size());
    step.holds.clear();
    return DropGarbage();
  }
  SequenceRun& run = *parent->second.run;
  run.Release(std::move(step.holds));
  run.StepsEnded(step.steps, brief);
  DropGarbage();
  QueueSequence(parent->first);
}

void ExecutorCore::LeaveOut(const Node& node, uint64_t taken, uint64_t count,
                            const absl::Status& why) {
  if (count == 0 || !shared_.contains(std::get<PrepareLaunch>(node.command).executable)) return;
  if (Planted(Bug::kLeaveOutSilently)) return;
  const uint64_t first = node.launch->launch_id.value + taken;
  actions_->LeftOut(LaunchId(first), LaunchId(first + count - 1), why);
}

void ExecutorCore::DropGarbage() {
  for (const GroupId group : std::exchange(*garbage_, {})) DropGroup(group);
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
    Conclude(id, {command.cause, {}});
  }
  actions_->Abandon(command);
}

ExecutorCore::Went ExecutorCore::EndSequence(NodeId id, Node& node, uint64_t until) {
  SequenceRun& run = *node.run;
  SequenceRun::Ending& end = run.ending;
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  for (const int32_t argument : std::exchange(run.early, {})) {
    absl::Status failed = EndOf(prepared, argument).value_or(absl::OkStatus());
    if (failed.ok()) continue;
    const auto place = std::ranges::lower_bound(run.failed, argument, {},
                                                &std::pair<int32_t, absl::Status>::first);
    run.failed.emplace(place, argument, std::move(failed));
  }
  std::vector<ShardRef>& inlined = node.launch->inline_shards;
  std::erase_if(inlined, [&](const ShardRef& ref) {
    const auto shard = shards_.find(ref);
    return shard == shards_.end() || shard->second.state != ShardState::kReady;
  });
  if (!inlined.empty()) {
    run.reading = true;
    actions_->Read(id, inlined);
    return Went::kWaits;
  }
  for (; end.failed < run.failed.size(); ++end.failed) {
    if (work_.units() >= until) return Went::kPaused;
    work_.Charge(1);
    const auto& [argument, status] = run.failed[end.failed];
    end.argument_of.emplace(Describe(status), argument);
  }
  const size_t share = TextShare(prepared.outputs.size());
  for (; end.output < prepared.outputs.size(); ++end.output) {
    if (work_.units() >= until) return Went::kPaused;
    const GroupPart& part = prepared.outputs[end.output];
    work_.ChargeShards(part.shards.size());
    absl::Status failed;
    for (const LocalShard& local : part.shards) {
      const ShardRef ref{part.group, local.shard};
      const auto shard = shards_.find(ref);
      if (shard == shards_.end()) continue;  // freed in the meantime
      if (shard->second.state == ShardState::kDeclared)
        ShardEnded(ref, Contradiction(id, fmt::format("it never made output {}", end.output)));
      if (failed.ok()) failed = shard->second.error;
    }
    if (failed.ok()) continue;
    work_.Charge(1);
    const auto by = end.argument_of.find(Describe(failed));
    end.failures.push_back({prepared.seq, Bounded(std::move(failed), share),
                            static_cast<int32_t>(end.output),
                            by == end.argument_of.end() ? -1 : by->second});
  }
  if (!std::exchange(end.released, true)) run.End();
  while (run.HasLeftovers()) {
    if (work_.units() >= until) return Went::kPaused;
    work_.ChargeShards(run.LetGo());
    On(FreeGroups{std::exchange(*garbage_, {})});
  }
  On(FreeGroups{std::exchange(*garbage_, {})});
  const uint64_t seq = prepared.seq;
  for (Report::Failure& failure : end.failures) AddFailure(std::move(failure));
  if (const auto known = blocks_.find(prepared.executable); known != blocks_.end())
    known->second.window = run.window();
  launches_.erase({node.launch->launch_id, id});
  nodes_.erase(id);
  ReportEnd(seq, absl::OkStatus(), /*may_wait=*/true);
  return Went::kOn;
}

}  // namespace fairway
