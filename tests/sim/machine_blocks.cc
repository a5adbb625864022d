// SPDX-License-Identifier: Apache-2.0
// Machine: blocks of steps (ExecutorActions::LinkSteps). Each step is a run of its own, behind the
// one before it; the core hears of the block when the last one has ended.
#include <algorithm>
#include <functional>
#include <utility>

#include "tests/sim/machine.h"

namespace fairway::sim {
namespace {

int32_t NumArguments(const StepBlock& calls) {
  return static_cast<int32_t>(calls.step.inputs.size());
}

// Returns the result of the call that makes the value, or OK for an argument.
absl::Status ResultOf(const BlockRun& block, int32_t value) {
  int32_t made = NumArguments(block.linked->calls);
  if (value < made) return absl::OkStatus();
  for (size_t c = 0; c < block.results.size(); ++c) {
    made += block.linked->calls.calls[c].outputs;
    if (value < made) return block.results[c];
  }
  return absl::InternalError("it has not been made yet");
}

}  // namespace

const std::vector<InstallExecutable::Member>& Machine::PeersOf(const Run& run) {
  const ExecutableId code = run.gang->code->spec.id;
  return run.block == nullptr ? peers_[code] : run.block->linked->peers.at(code);
}

bool Machine::LinkSteps(ExecutableId id, const StepBlock& calls) {
  if (!world_.config.blocks) return false;
  auto block = std::make_shared<LinkedBlock>();
  block->calls = calls;
  block->follows = std::ranges::all_of(
      calls.calls, [&](const StepBlock::Call& call) { return follows_.contains(call.executable); });
  for (const StepBlock::Call& call : calls.calls) {
    if (!loaded_[call.executable])
      world_.Broken("G2", "{}: code {} is linked that is not loaded", worker_, call.executable);
    block->peers[call.executable] = peers_[call.executable];
  }
  world_.Count("steps linked");
  blocks_[id] = std::move(block);
  gang_watch_.OnLink(id);
  return true;
}

void Machine::StartBlock(const PrepareLaunch& node, const Launch& launch,
                         const std::shared_ptr<const LinkedBlock>& linked) {
  auto all = std::make_shared<BlockRun>();
  all->node = node;
  all->linked = linked;
  const StepBlock& calls = linked->calls;
  const int32_t arguments = NumArguments(calls);
  for (const StepBlock::Call& call : calls.calls) {
    for (const ValueType& type : world_.codes.at(call.executable).spec.outputs) {
      GroupPart part{GroupId(next_inner_++), type.dtype, "", {}};
      for (size_t d = 0; d < node.devices.size(); ++d)
        part.shards.push_back({static_cast<int32_t>(d), node.devices[d], type.shard});
      all->values.push_back(std::move(part));
    }
  }
  for (size_t r = 0; r < calls.results.size(); ++r)
    all->values[calls.results[r] - arguments] = node.outputs[r];
  world_.Count("steps together");
  for (size_t c = 0, made = 0; c < calls.calls.size(); ++c) {
    const StepBlock::Call& call = calls.calls[c];
    PrepareLaunch step;
    step.node = node.node;
    step.executable = call.executable;
    step.devices = node.devices;
    for (size_t d = 0; d < node.devices.size(); ++d) {
      ShardRefs& row = step.inputs.emplace_back();
      for (const int32_t value : call.inputs) {
        if (value < arguments) {
          row.push_back(node.inputs[d][value]);
        } else {
          const GroupPart& part = all->values[value - arguments];
          row.push_back({part.group, part.shards[d].shard});
        }
      }
    }
    for (int32_t o = 0; o < call.outputs; ++o) step.outputs.push_back(all->values[made++]);
    Launch part = launch;
    part.launch_id = LaunchId(launch.launch_id.value + c);
    for (size_t a = 0; a < call.inputs.size(); ++a)
      part.non_donatable.push_back(static_cast<int32_t>(a));
    StartRun(step, part, all);
  }
}

void Machine::StepEnded(BlockRun& block, const absl::Status& status) {
  const StepBlock& calls = block.linked->calls;
  for (const int32_t value : calls.calls[block.results.size()].ends) {
    const GroupPart& part = block.values[value - NumArguments(calls)];
    for (const LocalShard& shard : part.shards) Drop({{part.group, shard.shard}});
  }
  block.results.push_back(status);
  if (block.results.size() == calls.calls.size()) {
    pace_->LaunchEnded();
    const auto failed = std::ranges::find_if(block.results, std::not_fn(&absl::Status::ok));
    if (failed == block.results.end()) {
      const NodeId node = block.node.node;
      core_->LaunchDone(node, absl::OkStatus(), {}, node.value % 16 < 14);
    } else {
      world_.Count("step of a block fails");
      std::vector<absl::Status> outputs;
      for (const int32_t value : calls.results) outputs.push_back(ResultOf(block, value));
      core_->LaunchDone(block.node.node, *failed, {}, /*brief=*/0, std::move(outputs));
    }
  }
  AfterLaunch();
}

}  // namespace fairway::sim
