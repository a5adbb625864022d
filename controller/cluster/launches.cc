// SPDX-License-Identifier: Apache-2.0
// The way of a launch: made, prepared, launched.
#include "controller/cluster/launches.h"

#include <algorithm>
#include <utility>

#include <absl/container/inlined_vector.h>

#include "base/planted.h"
#include "controller/cluster/command_bytes.h"
#include "controller/cluster/poison.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {
// Of those that wait for a launch, so many are told at once, and the others in slices. Few, because
// an island launches many at once.
constexpr uint64_t kToldAtOnce = 16, kToldInSlice = 64;
// Arguments and results of a launch that one command describes to all its executors.
constexpr size_t kMostForAll = 256;
// Code of so many values and instructions is destroyed by another thread.
constexpr size_t kDiscarded = 1000;
}  // namespace

Cluster::Launches::Launches(State& state)
    : behind_(TransferWaits::SomeOf(state.options.max_singles_per_device)), s(state) {}

void Cluster::Launches::Define(ExecutableSpec spec, CodeLayout layout) {
  const ExecutableId id = spec.id;
  if (s.executables.contains(id)) return;
  s.layouts.emplace(id, std::move(layout));
  s.executables.emplace(id, std::move(spec));
}

std::vector<DeviceSeat> Cluster::Launches::SeatsOf(const std::vector<DeviceId>& devices) const {
  std::vector<DeviceSeat> seats;
  for (const DeviceId device : devices) {
    const Executor& executor = *s.ExecutorOf(device);
    seats.push_back(
        {executor.id, static_cast<int32_t>(device.value - executor.first_device.value)});
  }
  return seats;
}

void Cluster::Launches::Undefine(ExecutableId id) {
  const auto code = s.executables.extract(id);
  const auto layout = s.layouts.extract(id);
  if (code.empty()) return;
  const ExecutableSpec& spec = code.mapped();
  const size_t instructions = spec.sequence == nullptr ? 0 : spec.sequence->instructions.size();
  if (spec.parameters.size() + spec.outputs.size() + instructions < kDiscarded) return;
  s.actions->Discard(std::make_shared<const std::pair<ExecutableSpec, CodeLayout>>(
      std::move(code.mapped()), std::move(layout.mapped())));
}

absl::Status Cluster::Launches::CheckSendable(const ExecutableSpec& spec) const {
  return CheckCommands(spec, s.layouts.at(spec.id).command_bytes, s.options.command_bytes);
}

void Cluster::Launches::Prepare(Node& node) {
  Island& island = s.islands.at(node.island);
  node.open_installs = 0;
  node.telling = false;
  if (!node.for_all) PrepareParts(node);
  island.sequencer.Prepared(node.id, node.session, node.executable->devices,
                            static_cast<uint64_t>(node.executable->max_steps));
  MaybeArrived(node);
  constexpr size_t kLooks = 16;
  for (size_t i = 0; node.unlaunched_inputs > 0 && i < std::min(node.reads.size(), kLooks); ++i) {
    if (Node* const from = s.FindNode(s.FindGroup(node.reads[i])->producer); from != nullptr)
      s.nodes.MaybeLaunchReceive(*from);
  }
}

void Cluster::Launches::PrepareParts(Node& node) {
  for (size_t p = 0; p < node.participants.size(); ++p)
    node.telling |= PrepareOn(node, p, 0) < node.inputs.size() + node.outputs.size();
  if (node.telling) s.islands.at(node.island).preparing.push_back({node.id, node.attempt});
}

bool Cluster::Launches::IsSpan(const Node& node) const {
  CodeLayout& layout = *node.layout;
  if (layout.parts.size() < 2) return false;
  if (std::exchange(layout.span_as_of, s.arrivals) == s.arrivals) return layout.is_span;
  const std::vector<ExecutorId>& all = s.islands.at(node.island).executors;
  const ExecutorId first = layout.part_on.front().first, last = layout.part_on.back().first;
  s.ChargeShards(all.size() + layout.parts.size());
  const auto between =
      std::ranges::count_if(all, [&](ExecutorId id) { return first <= id && id <= last; });
  layout.is_span =
      (static_cast<size_t>(between) == layout.parts.size() || Planted(Bug::kSpanOfOthers)) &&
      std::ranges::all_of(layout.parts, [this](const CodeLayout::Part& part) {
        return s.executors.at(part.executor).spec.takes_spans;
      });
  return layout.is_span;
}

bool Cluster::Launches::Installed(const Node& node) const {
  CodeLayout& layout = *node.layout;
  if (layout.installed_as_of == s.arrivals) return true;
  s.ChargeShards(layout.parts.size());
  for (const CodeLayout::Part& part : layout.parts) {
    const auto& installs = s.executors.at(part.executor).installs;
    const auto install = installs.find(node.executable->id);
    if (install == installs.end() || !install->second.installed) return false;
  }
  layout.installed_as_of = s.arrivals;
  return true;
}

bool Cluster::Launches::MayBeForAll(const Node& node) {
  if (IsSequence(node) || !IsSpan(node) || !Installed(node)) return false;
  const size_t positions = node.executable->devices.size();
  if (node.inputs.size() + node.outputs.size() > ValuesForAll(*node.layout)) return false;
  return std::ranges::all_of(node.inputs, [&](const ShardList& argument) {
    return argument.runs().size() == 1 && argument.runs()[0].shard == 0 &&
           argument.size() == positions;
  });
}

void Cluster::Launches::GoOnPreparing(Island& island, uint64_t until) {
  for (; !island.preparing.empty(); island.preparing.pop_front()) {
    Island::Preparing& next = island.preparing.front();
    Node* const node = s.FindNode(next.node);
    if (node == nullptr || node->attempt != next.attempt || node->state != NodeState::kPrepared)
      continue;
    const size_t values = node->inputs.size() + node->outputs.size();
    if (Planted(Bug::kForgetRest)) next.participant = node->participants.size();
    for (; next.participant < node->participants.size(); ++next.participant, next.value = 0) {
      next.value = std::max(next.value, ValuesAtOnce(*node, next.participant));
      while (next.value < values) {
        if (s.units >= until) return;
        next.value = PrepareOn(*node, next.participant, next.value);
      }
    }
    node->telling = false;
    MaybeArrived(*node);
  }
}

size_t Cluster::Launches::ValuesAtOnce(const Node& node, size_t participant) const {
  const size_t devices = node.layout->parts[participant].positions.size();
  return std::max<size_t>(s.options.shards_at_once / devices, 1);
}

size_t Cluster::Launches::ValuesForAll(const CodeLayout& layout) const {
  return std::min(s.options.shards_at_once / layout.widest, kMostForAll);
}

size_t Cluster::Launches::PrepareOn(Node& node, size_t participant, size_t from) {
  const Participant& part = node.participants[participant];
  Executor& executor = s.executors.at(part.executor);
  const ExecutableSpec& spec = *node.executable;
  const CodeLayout::Part& here = node.layout->parts[participant];
  const size_t inputs = node.inputs.size(), values = inputs + node.outputs.size();
  const size_t end = std::min(values, from + ValuesAtOnce(node, participant));
  s.Charge((end - from + (from == 0 ? spec.parts.size() : 0)) / kValuesPerUnit +
           (end - from) * here.positions.size() / kLaunchShardsPerUnit);
  PrepareLaunch command;
  command.node = node.id;
  command.seq = part.seq;
  command.executable = spec.id;
  command.devices = here.ordinals;
  command.inputs.reserve(here.positions.size());
  for (const int32_t i : here.positions) {
    ShardRefs& refs = command.inputs.emplace_back();
    if (from < inputs) refs.reserve(std::min(end, inputs) - from);
    for (size_t a = from; a < std::min(end, inputs); ++a) refs.push_back(node.inputs[a][i]);
  }
  const size_t first = std::max(from, inputs);
  if (first < end) command.outputs.reserve(end - first);
  for (size_t v = first; v < end; ++v) {
    const GroupId id = node.outputs[v - inputs];
    const Group& group = *s.FindGroup(id);
    GroupPart& out =
        command.outputs.emplace_back(GroupPart{id, group.dtype, group.memory_kind, {}});
    out.shards.reserve(here.positions.size());
    for (const int32_t i : here.positions)
      out.shards.push_back({i, group.places[i].ordinal, group.shape(i)});
  }
  command.more = end < values;
  if (from == 0) {
    for (const ExecutableId code : spec.parts)
      s.commands.Install(executor, s.executables.at(code), command.devices, node);
    s.commands.Install(executor, spec, command.devices, node);
  }
  s.commands.Send(executor, std::move(command), node.session);
  return end;
}

void Cluster::Launches::MaybeArrived(Node& node) {
  const bool inputs =
      (node.unsettled_inputs == 0 && (node.inputs_ended || Planted(Bug::kIgnoreInputsEnded))) ||
      node.unlaunched_inputs == 0 ||
      (Planted(Bug::kLaunchBeforeInputs) && node.unsettled_inputs == 1 && node.reads.size() > 1);
  const bool telling = node.telling && !Planted(Bug::kLaunchBeforeTold);
  if (!inputs || node.open_installs > 0 || telling || node.state != NodeState::kPrepared) return;
  if (node.behind_transfer && node.unsettled_inputs > 0 &&
      !behind_.Begin(node.id, node.session, node.executable->devices[0]))
    return;
  s.islands.at(node.island).sequencer.InputsArrived(node.id);
  s.to_pump.insert(node.island);
}

bool Cluster::Launches::HoldsUpNobody(const Node& reader) {
  return reader.kind != NodeKind::kLaunch || reader.executable->devices.size() == 1 ||
         Planted(Bug::kGangBehindTransfer);
}

void Cluster::Launches::BehindNothing(Node& first) {
  // Those behind it that are not reached here are when their own inputs have ended.
  constexpr size_t kAtOnce = 64;
  std::vector<NodeId> left = {first.id};
  for (size_t looks = 0; !left.empty() && looks < kAtOnce;) {
    Node& node = *s.FindNode(left.back());
    left.pop_back();
    LeaveBehind(node.id);
    if (!std::exchange(node.behind_transfer, false)) continue;
    if (node.state == NodeState::kPrepared) MaybeArrived(node);
    if (node.state != NodeState::kLaunched || !node.failure.ok()) continue;
    for (size_t o = 0; o < node.outputs.size() && looks < kAtOnce; ++o) {
      Group& group = *s.FindGroup(node.outputs[o]);
      const size_t told = group.launched ? group.waiters.size() : group.num_launched;
      looks += 1 + told;
      if (!group.behind_transfer || group.settled() || looks > kAtOnce) continue;
      group.behind_transfer = false;
      for (size_t i = 0; i < told; ++i) {
        Node* const reader = s.FindNode(group.waiters[i]);
        if (reader == nullptr) continue;
        if (!HoldsUpNobody(*reader)) {
          TakesNow(*reader);
        } else if (reader->kind == NodeKind::kLaunch && !ReadsBehind(*reader)) {
          left.push_back(reader->id);
        }
      }
    }
    s.Charge(1 + looks / 4);
  }
}

bool Cluster::Launches::ReadsBehind(const Node& node) const {
  constexpr size_t kMost = 16;
  return node.reads.size() > kMost ||
         std::any_of(node.reads.begin(), node.reads.end(), [&](GroupId id) {
           const Group& group = *s.all_groups.at(id);
           return !group.settled() && group.behind_transfer;
         });
}

void Cluster::Launches::LeaveBehind(NodeId id) {
  constexpr int kAtOnce = 64;
  if (behind_.known() == 0) return;
  if (!Planted(Bug::kBehindForEver)) behind_.End(id);
  for (int i = 0; i < kAtOnce; ++i) {
    const NodeId next = behind_.Next();
    if (!next) return;
    s.Charge(1);
    if (Node* const waits = s.FindNode(next); waits != nullptr) MaybeArrived(*waits);
  }
}

void Cluster::Launches::TakesNow(Node& reader) {
  if (--reader.unlaunched_inputs > 0) return;
  reader.kind == NodeKind::kLaunch ? MaybeArrived(reader) : s.nodes.MaybeLaunchReceive(reader);
}

std::vector<int32_t> Cluster::Launches::NonDonatable(Node& node, const std::vector<bool>& failed) {
  std::vector<int32_t> out;
  const std::vector<bool> donated = CertainlyDonated(node);
  for (size_t a = 0; a < node.inputs.size(); ++a) {
    const auto index = static_cast<int32_t>(a);
    if (!failed.empty() && failed[a]) continue;
    if (!node.executable->parameters[a].donated) {
      // A step of the sequence may still take over an argument that was not given to the sequence.
      if (IsSequence(node)) out.push_back(index);
      continue;
    }
    if (donated.empty() || !donated[a]) {
      out.push_back(index);
      continue;
    }
    // The controller hears of the launch only at its end, so until then the input is charged. A
    // sequence may leave it where it is, so its memory is given to others with its free.
    if (IsSequence(node)) continue;
    for (const GroupId id : GroupsOf(node.inputs[a])) node.taken.push_back(id);
  }
  return out;
}

void Cluster::Launches::LaunchForAll(Node& node) {
  LaunchAll command;
  command.node = node.id;
  command.launch_id = node.launch_id;
  command.executable = node.executable->id;
  command.ahead = node.unsettled_inputs > 0;
  for (const ShardList& argument : node.inputs) command.inputs.push_back(argument.runs()[0].group);
  command.outputs.assign(node.outputs.begin(), node.outputs.end());
  command.non_donatable = NonDonatable(node, {});
  command.inline_outputs = InlineOutputs(node);
  node.open_participants = 1;
  const auto& on = node.layout->part_on;
  for (const GroupId id : node.outputs)
    s.FindGroup(id)->span.emplace(on.front().first, on.back().first);
  s.commands.SendAll(*node.layout, std::move(command), node.session);
  Launched(node);
}

void Cluster::Launches::DoLaunch(Node& node, LaunchId launch_id) {
  if (node.state != NodeState::kPrepared && !Planted(Bug::kLaunchTwice)) return;
  if (node.state == NodeState::kPrepared) s.nodes.Move(node, NodeState::kLaunched);
  s.Charge(node.inputs.size() / kLaunchedPerUnit);
  node.launch_id = launch_id;
  if (node.for_all) return LaunchForAll(node);
  Launch command;
  command.node = node.id;
  command.launch_id = launch_id;
  command.gang = node.executable->devices.size() > 1;
  command.ahead = node.unsettled_inputs > 0;
  // Of a launch that goes ahead, no input is known to have failed. Its executors find out about
  // failures that they have not reported yet.
  const bool poisoned = node.unsettled_inputs == 0 && node.may_have_failed_inputs() &&
                        WorstInput(s.all_groups, node) != nullptr;
  std::vector<bool> failed;
  if (poisoned) failed.resize(node.inputs.size());
  for (size_t a = 0; poisoned && a < node.inputs.size(); ++a) {
    const Group* const worst = WorstOf(s.all_groups, node.inputs[a]);
    failed[a] = worst != nullptr;
    if (failed[a] && IsSequence(node))
      command.failed.push_back({static_cast<int32_t>(a), worst->error});
  }
  command.non_donatable = NonDonatable(node, failed);
  const size_t share = TextShare(command.failed.size());
  for (Launch::FailedArgument& argument : command.failed)
    argument.status = Bounded(std::move(argument.status), share);
  // By participant.
  absl::InlinedVector<std::vector<ShardRef>, 1> inline_shards(node.participants.size());
  for (const ShardRef& ref : InlineShards(node))
    inline_shards[node.layout->part_of[ref.shard]].push_back(ref);
  for (size_t p = 0; p < node.participants.size(); ++p) {
    if (Planted(Bug::kLaunchOnSomeExecutors) && p > 0 && node.id.value % 4 == 0) continue;
    Executor& executor = s.executors.at(node.participants[p].executor);
    command.inline_shards = std::move(inline_shards[p]);
    const bool last = p + 1 == node.participants.size();
    s.commands.Send(executor, last ? std::move(command) : command, node.session);
  }
  Launched(node);
}

void Cluster::Launches::Launched(const Node& node) {
  LaunchedNode launched{node.id};
  if (!TellLaunched(node, launched, s.units + std::min(kToldAtOnce, s.options.turn_units)))
    s.WorkOf(node.session).launched.push_back(launched);
}

bool Cluster::Launches::GoOnLaunched(LaunchedNode& launched) {
  const Node* const node = s.FindNode(launched.node);
  // Once it has ended, or an executor of it is lost, those that were not told need not be.
  return node == nullptr || node->state != NodeState::kLaunched || !node->failure.ok() ||
         TellLaunched(*node, launched, s.units + kToldInSlice);
}

bool Cluster::Launches::TellLaunched(const Node& node, LaunchedNode& launched, uint64_t until) {
  for (; launched.output < node.outputs.size(); ++launched.output) {
    if (launched.output > kLargeValues && launched.output % kValuesPerUnit == 0) {
      if (s.units >= until) return false;
      s.Charge(1);
    }
    Group& group = *s.FindGroup(node.outputs[launched.output]);
    if (group.num_launched == 0) group.behind_transfer = node.behind_transfer;
    while (s.units < until && group.num_launched < group.waiters.size()) {
      s.Charge(1);
      Node* const reader = s.FindNode(group.waiters[group.num_launched++]);
      if (reader == nullptr || !TakesForLaunched(*reader, group)) continue;
      reader->behind_transfer |= group.behind_transfer;
      TakesNow(*reader);
    }
    group.launched = group.num_launched == group.waiters.size();
    if (!group.launched) return false;
  }
  return true;
}

void Cluster::Launches::Lost(const Node& node, std::vector<GroupId>& left) {
  const uint64_t until = s.units + std::min(kToldAtOnce, s.options.turn_units);
  for (const GroupId id : node.outputs) {
    Group& group = *s.FindGroup(id);
    if (std::exchange(group.launched, false)) group.num_launched = group.waiters.size();
    if (!TellLost(id, until)) left.push_back(id);
  }
}

bool Cluster::Launches::GoOnLost(GroupId id) { return TellLost(id, s.units + kToldInSlice); }

bool Cluster::Launches::TellLost(GroupId id, uint64_t until) {
  Group* const group = s.FindGroup(id);
  if (group == nullptr) return true;
  while (s.units < until && group->num_launched > group->num_told) {
    s.Charge(1);
    const NodeId waiter = group->waiters[--group->num_launched];
    Node* const reader = s.FindNode(waiter);
    if (reader == nullptr || !TakesForLaunched(*reader, *group)) continue;
    ++reader->unlaunched_inputs;
    if (reader->kind == NodeKind::kLaunch)
      s.islands.at(reader->island).sequencer.InputsMissing(waiter);
  }
  return group->num_launched <= group->num_told;
}

std::vector<int32_t> Cluster::Launches::InlineOutputs(const Node& node) const {
  int64_t inlined = 0;
  size_t shards = 0;
  std::vector<int32_t> outputs;
  for (const auto& [bytes, output] : node.layout->by_bytes) {
    if (bytes > s.options.inline_output_bytes) break;
    const GroupId id = node.outputs[output];
    const Group& group = *s.FindGroup(id);
    if (group.handle_refs == 0 || group.num_deleted > 0 || !group.memory_kind.empty()) continue;
    inlined += bytes;
    if (inlined > s.options.inline_gang_bytes) break;
    if (!outputs.empty() && shards + group.places.size() > s.options.inline_shards) break;
    const int64_t each = group.places[0].bytes;  // `bytes`: of all distinct shards
    shards += each > 0 ? static_cast<size_t>(bytes / each) : group.places.size();
    outputs.push_back(output);
  }
  return outputs;
}

std::vector<ShardRef> Cluster::Launches::InlineShards(const Node& node) const {
  std::vector<ShardRef> shards;
  for (const int32_t output : InlineOutputs(node)) {
    const Group& group = *s.FindGroup(node.outputs[output]);
    for (size_t i = 0; i < group.places.size(); ++i) {
      if (group.replica_of.empty() || group.replica_of[i] == static_cast<int32_t>(i))
        shards.push_back({group.id, static_cast<int32_t>(i)});
    }
  }
  return shards;
}

}  // namespace fairway
