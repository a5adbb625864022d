// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gang_watch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "wire/sequence_codec.h"

namespace fairway::sim {

void GangWatch::OnCommand(const Command& command) {
  if (const auto* code = std::get_if<InstallExecutable>(&command)) {
    if (!code->members.empty()) shared_.insert(code->executable);
  } else if (const auto* code = std::get_if<InstallSequence>(&command)) {
    sequences_.insert(code->executable);
    const std::shared_ptr<const Sequence> sequence = *DecodeSequence(*code->bytes);
    const auto& steps = sequence->instructions;
    if (std::any_of(steps.begin(), steps.end(), [&](const Instruction& step) {
          return step.op == Instruction::Op::kRun && shared_.contains(step.executable);
        }))
      shared_.insert(code->executable);
  } else if (const auto* launch = std::get_if<Launch>(&command)) {
    if (launch->gang) launched_.push_back(launch->node);
  } else if (const auto* all = std::get_if<LaunchAll>(&command)) {
    launched_.push_back(all->node);
  }
}

std::vector<int32_t> GangWatch::LinesOf(const PrepareLaunch& node) const {
  std::vector<int32_t> lines = node.devices;
  if (shared_.contains(node.executable)) lines.push_back(-1);
  return lines;
}

std::optional<uint64_t> GangWatch::OnStart(const PrepareLaunch& node, LaunchId id) {
  std::optional<uint64_t> before;
  for (const int32_t line : LinesOf(node)) {
    const uint64_t last = std::exchange(last_[line], id.value);
    if (last >= id.value) before = last;
  }
  return before;
}

std::optional<NodeId> GangWatch::Overdue(
    const ExecutorCore& core, absl::FunctionRef<bool(ShardRef)> ready,
    absl::FunctionRef<bool(const PrepareLaunch&, bool)> has_room) {
  std::erase_if(launched_, [&](NodeId node) { return core.Waiting(node) == nullptr; });
  std::set<int32_t> taken;
  for (const NodeId id : launched_) {
    const PrepareLaunch& node = *core.Waiting(id);
    bool first = true;
    for (const int32_t line : LinesOf(node)) first = taken.insert(line).second && first;
    if (!first || sequences_.contains(node.executable)) continue;
    const bool inputs =
        std::all_of(node.inputs.begin(), node.inputs.end(),
                    [&](const ShardRefs& on) { return std::all_of(on.begin(), on.end(), ready); });
    if (inputs && has_room(node, shared_.contains(node.executable))) return id;
  }
  return std::nullopt;
}

void GangWatch::Clear() {
  shared_.clear();
  sequences_.clear();
  launched_.clear();
}

}  // namespace fairway::sim
