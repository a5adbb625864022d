// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/executor_core.h"

#include <algorithm>

#include "base/planted.h"

namespace fairway {
namespace {

constexpr uint64_t kStartUnits = 8;

// The index in out.shards that the source at `position` fills.
size_t ShardOf(const PrepareReceive& command, size_t position) {
  return command.pieces.empty() ? position : static_cast<size_t>(command.pieces[position].out);
}

}  // namespace

absl::Status ExecutorCore::Contradiction(NodeId node, std::string_view what) {
  return Error(absl::StatusCode::kInternal,
               "node {}: {}; this is a bug of the controller or the executor", node, what);
}

void ExecutorCore::On(InstallExecutable command) {
  if (!command.members.empty()) shared_.insert(command.executable);
  actions_->Load(command);
}

void ExecutorCore::On(InstallSequence command) {
  absl::Status fits = CheckSequence(*command.sequence);
  const auto& instructions = command.sequence->instructions;
  if (std::any_of(instructions.begin(), instructions.end(), [this](const Instruction& in) {
        return in.op == Instruction::Op::kRun && shared_.contains(in.executable);
      }))
    shared_.insert(command.executable);
  work_.Charge(instructions.size() / 16);
  if (fits.ok())
    sequences_[command.executable] = std::make_shared<SequenceCode>(std::move(command.sequence));
  InstallDone(command.executable, std::move(fits));
}

void ExecutorCore::On(DropExecutable command) {
  follows_.erase(command.executable);
  shared_.erase(command.executable);
  if (sequences_.erase(command.executable) == 0) actions_->Unload(command.executable);
}

const SequenceCode* ExecutorCore::SequenceOf(const Node& node) const {
  const auto* prepared = std::get_if<PrepareLaunch>(&node.command);
  const auto it = prepared == nullptr ? sequences_.end() : sequences_.find(prepared->executable);
  return it == sequences_.end() ? nullptr : it->second.get();
}

void ExecutorCore::InstallDone(ExecutableId executable, absl::Status status, bool follows) {
  if (follows) follows_.insert(executable);
  report_.installed.push_back({executable, std::move(status)});
  actions_->ReportWanted();
}

void ExecutorCore::Declare(const GroupPart& part, NodeId producer) {
  work_.ChargeShards(part.shards.size());
  for (const LocalShard& shard : part.shards)
    shards_.Insert({part.group, shard.shard}).first =
        Shard{ShardState::kDeclared, producer, absl::OkStatus()};
}

void ExecutorCore::On(PrepareLaunch command) {
  const auto [node, fresh] = nodes_.try_emplace(command.node);
  if (!fresh) {
    ReportEnd(command.seq, Contradiction(command.node, "it was prepared twice"));
    return;
  }
  for (const GroupPart& part : command.outputs) Declare(part, command.node);
  node->second.command = std::move(command);
}

void ExecutorCore::On(Launch command) {
  const auto it = nodes_.find(command.node);
  if (it == nodes_.end()) return;  // it failed here before, and that was reported
  const auto* prepared = std::get_if<PrepareLaunch>(&it->second.command);
  if (prepared == nullptr || it->second.launch.has_value()) {
    Conclude(command.node,
             Contradiction(command.node, "it was launched twice, or it is not a launch"));
    return;
  }
  if (!command.failed.empty() && SequenceOf(it->second) == nullptr) {
    Conclude(command.node,
             Contradiction(command.node, "an argument failed, but it is not a sequence"));
    return;
  }
  highest_launch_id_ = std::max(highest_launch_id_, command.launch_id.value);
  std::vector<bool> failed(prepared->inputs.empty() ? 0 : prepared->inputs[0].size());
  for (const Launch::FailedArgument& argument : command.failed) {
    const auto a = static_cast<size_t>(argument.argument);
    if (a < failed.size()) failed[a] = true;
  }
  std::vector<ShardRef> missing;
  for (const ShardRefs& inputs : prepared->inputs) {
    work_.ChargeShards(inputs.size());
    for (size_t a = 0; a < inputs.size(); ++a) {
      const ShardRef ref = inputs[a];
      if (failed[a]) continue;
      const auto shard = shards_.find(ref);
      if (shard != shards_.end() && shard->second.state == ShardState::kReady) continue;
      if (command.ahead && OnItsWay(ref)) {
        if (shard->second.state == ShardState::kDeclared) missing.push_back(ref);
        continue;
      }
      Conclude(command.node, Contradiction(command.node, fmt::format("input {}:{} is not here",
                                                                     ref.group, ref.shard)));
      return;
    }
  }
  for (const ShardRef& ref : missing) waiters_.Add(ref, {.node = command.node});
  it->second.missing = missing.size();
  it->second.launch = std::move(command);
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
  for (const ShardRefs& device : prepared.inputs) {
    for (const ShardRef& ref : device) {
      const auto shard = shards_.find(ref);
      if (shard == shards_.end() || shard->second.state == ShardState::kFailed) return false;
      if (shard->second.state == ShardState::kReady) continue;
      const auto producer = nodes_.find(shard->second.producer);
      if (producer == nodes_.end() || !producer->second.started) return false;
      if (Planted(Bug::kFollowAnyone)) continue;
      const auto* launch = std::get_if<PrepareLaunch>(&producer->second.command);
      if (launch == nullptr || launch->devices != prepared.devices ||
          producer->second.launch->gang != gang || producer->second.follows != gang ||
          SequenceOf(producer->second) != nullptr)
        return false;
    }
  }
  return true;
}

bool ExecutorCore::OnItsWay(ShardRef ref) const {
  const auto shard = shards_.find(ref);
  if (shard == shards_.end()) return false;
  if (shard->second.state != ShardState::kDeclared) return true;
  const auto producer = nodes_.find(shard->second.producer);
  if (producer == nodes_.end()) return false;
  const auto* receive = std::get_if<PrepareReceive>(&producer->second.command);
  if (receive == nullptr) return producer->second.launch.has_value();
  // The bytes came with the command, for one device or for each.
  return std::all_of(receive->sources.begin(), receive->sources.end(), [&](const ShardSource& s) {
    return s.kind == ShardSource::Kind::kInline ||
           (s.kind == ShardSource::Kind::kLocal && s.shard.group == ref.group);
  });
}

void ExecutorCore::ChargeInputs(const Node& node) {
  const std::vector<ShardRefs>& inputs = std::get<PrepareLaunch>(node.command).inputs;
  if (!inputs.empty()) work_.ChargeShards(inputs.size() * inputs[0].size());
}

void ExecutorCore::LaunchInputEnded(NodeId id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  const bool last = --it->second.missing == 0;
  if (it->second.started) {
    if (last) ended_.push_back(id);
  } else if (it->second.launch->gang) {
    MayStart(id);  // it may follow what computes the others
  } else if (last) {
    singles_.push_back(id);
  }
}

absl::Status ExecutorCore::FailedInput(const PrepareLaunch& node) const {
  if (node.inputs.empty()) return absl::OkStatus();
  for (size_t a = 0; a < node.inputs[0].size(); ++a) {
    FAIRWAY_RETURN_IF_ERROR(FailedArgument(node, a));
  }
  return absl::OkStatus();
}

absl::Status ExecutorCore::FailedArgument(const PrepareLaunch& node, size_t argument) const {
  for (const ShardRefs& device : node.inputs) {
    const auto shard = shards_.find(device[argument]);
    if (shard != shards_.end() && shard->second.state == ShardState::kFailed)
      return shard->second.error;
  }
  return absl::OkStatus();
}

void ExecutorCore::Start(NodeId id, Node& node) {
  const auto& prepared = std::get<PrepareLaunch>(node.command);
  if (node.started) return;
  if (const auto sequence = sequences_.find(prepared.executable); sequence != sequences_.end()) {
    if (node.missing == 0) StartSequence(id, node, sequence->second);
    return;
  }
  if (absl::Status failed = FailedInput(prepared); !failed.ok()) {
    if (node.missing > 0) return;
    // The other executors of the gang may wait for it, and the controller may be gone.
    LeaveOut(node, 0, 1, failed);
    Conclude(id, failed);
    return;
  }
  node.started = true;
  work_.Charge(kStartUnits);
  ChargeInputs(node);
  work_.ChargeShards(prepared.outputs.size() * prepared.devices.size());
  node.follows = node.launch->gang && follows_.contains(prepared.executable);
  if (node.launch->gang && !node.follows) lines_.Begin(PlaceOf(node));
  actions_->StartLaunch(prepared, *node.launch);
  if (Planted(Bug::kReportEarly) && id.value % 3 == 0) ReportEnd(prepared.seq, absl::OkStatus());
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
                              std::vector<Report::Inlined> inlined) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  Node::End end{std::move(status), std::move(inlined)};
  if (it->second.missing > 0) {
    it->second.end = std::move(end);
  } else {
    LaunchEnded(node, it->second, std::move(end));
  }
  DoWork();
}

void ExecutorCore::LaunchEnded(NodeId id, Node& node, Node::End end) {
  if (const auto* prepared = std::get_if<PrepareLaunch>(&node.command)) {
    ChargeInputs(node);
    if (absl::Status failed = FailedInput(*prepared); !failed.ok()) end.status = std::move(failed);
  }
  for (Report::Inlined& shard : end.inlined) {
    // Bytes that the client gave up in the meantime need not travel, nor bytes made of a failed
    // input.
    if (end.status.ok() && shards_.contains(shard.shard)) AddInlined(std::move(shard));
  }
  Conclude(id, end.status);
}

void ExecutorCore::On(PrepareReceive command) {
  std::vector<Node::OutShard> out_shards(command.out.shards.size());
  bool fits = command.sources.size() ==
              (command.pieces.empty() ? out_shards.size() : command.pieces.size());
  for (size_t i = 0; i < command.sources.size() && fits; ++i) {
    const size_t out = ShardOf(command, i);
    fits = out < out_shards.size();
    if (fits) ++out_shards[out].open;
  }
  for (const Node::OutShard& shard : out_shards) fits = fits && shard.open > 0;
  if (nodes_.contains(command.node) || !fits) {
    ReportEnd(command.seq,
              Contradiction(command.node,
                            "it was prepared twice, or its sources do not match its shards"));
    return;
  }
  Declare(command.out, command.node);
  const NodeId id = command.node;
  Node& node = nodes_[id];
  node.open = command.sources.size();
  node.out_shards = std::move(out_shards);
  node.started = true;
  node.command = std::move(command);
  if (node.open == 0) return Conclude(id, absl::OkStatus());
  if (!stale_receives_.contains(id)) receives_.emplace_back(id, 0);
}

void ExecutorCore::ReceiveOrWait(NodeId id, size_t position) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  const auto& command = std::get<PrepareReceive>(it->second.command);
  const ShardSource& source = command.sources[position];
  if (source.kind == ShardSource::Kind::kLocal) {
    const auto shard = shards_.find(source.shard);
    if (shard == shards_.end() || shard->second.state == ShardState::kDeclared) {
      it->second.waits.push_back(waiters_.Add(source.shard, {.node = id, .position = position}));
      return;
    }
    if (shard->second.state == ShardState::kFailed) {
      ReceiveEnded(id, position, shard->second.error);
      return;
    }
  }
  ++it->second.at_work;
  work_.Charge(kStartUnits);
  actions_->StartReceive(command, position);
}

void ExecutorCore::ReceiveDone(NodeId id, size_t position, absl::Status status) {
  const auto it = nodes_.find(id);
  if (const auto stale = stale_receives_.find(id); stale != stale_receives_.end()) {
    if (--stale->second > 0) return;
    stale_receives_.erase(stale);
    if (it != nodes_.end()) receives_.emplace_back(id, 0);
    return DoWork();
  }
  if (it == nodes_.end()) return;
  --it->second.at_work;
  ReceiveEnded(id, position, status);
  DoWork();
}

void ExecutorCore::ReceiveEnded(NodeId id, size_t position, const absl::Status& status) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  Node& node = it->second;
  const auto* command = std::get_if<PrepareReceive>(&node.command);
  if (command == nullptr || node.open == 0) return;
  const size_t out = ShardOf(*command, position);
  const ShardRef ref{command->out.group, command->out.shards[out].shard};
  Node::OutShard& shard = node.out_shards[out];
  if (shard.failure.ok()) shard.failure = status;
  const bool shard_ended = --shard.open == 0;
  const absl::Status shard_status = shard.failure;
  if (!status.ok() && (node.failure.ok() || position < node.failed_at)) {
    node.failure = status;
    node.failed_at = position;
  }
  const bool last = --node.open == 0;
  const absl::Status failure = node.failure;
  if (shard_ended) ShardEnded(ref, shard_status);
  if (last) Conclude(id, failure);
}

void ExecutorCore::ShardEnded(ShardRef ref, const absl::Status& status) {
  const auto it = shards_.find(ref);
  if (it == shards_.end()) return;
  it->second.state = status.ok() ? ShardState::kReady : ShardState::kFailed;
  it->second.error = status;
  Waiters::Line waiters = waiters_.Take(ref);
  if (!waiters.empty()) settled_.push_back({ref, status, std::move(waiters)});
}

void ExecutorCore::ShardsEnded(const GroupPart& part, const absl::Status& status) {
  work_.ChargeShards(part.shards.size());
  for (const LocalShard& shard : part.shards) ShardEnded({part.group, shard.shard}, status);
}

void ExecutorCore::On(CancelNode command) {
  const auto it = nodes_.find(command.node);
  if (it == nodes_.end()) return;
  const Node node = std::move(it->second);
  nodes_.erase(it);
  const auto forget = [&](const GroupPart& part) {
    ShardsEnded(part, command.cause.ok() ? absl::CancelledError("cancelled") : command.cause);
    std::vector<ShardRef> refs;
    for (const LocalShard& shard : part.shards) {
      refs.push_back({part.group, shard.shard});
      shards_.erase(refs.back());
    }
    actions_->Drop(refs);
  };
  if (const auto* launch = std::get_if<PrepareLaunch>(&node.command)) {
    if (node.launch.has_value()) launches_.erase({node.launch->launch_id, command.node});
    if (node.launch.has_value() && node.launch->gang) LeaveLines(command.node, node);
    for (const GroupPart& part : launch->outputs) forget(part);
    ReportEnd(launch->seq, absl::OkStatus());
  } else {
    const auto& receive = std::get<PrepareReceive>(node.command);
    if (node.at_work > 0 && !Planted(Bug::kMixAttempts))
      stale_receives_[command.node] += node.at_work;
    if (node.at_work > 0) actions_->TakeBackPulls(receive);
    forget(receive.out);
    work_.ChargeShards(node.waits.size());
    for (const Waiters::Entry& entry : node.waits) waiters_.Remove(entry);
    ReportEnd(receive.seq, absl::OkStatus());
  }
}

void ExecutorCore::On(FreeGroups command) {
  freed_.insert(freed_.end(), command.groups.begin(), command.groups.end());
}

void ExecutorCore::DropGroup(GroupId group) {
  std::vector<ShardRef> refs;
  refs.reserve(8);  // mostly enough
  for (auto it = shards_.lower_bound({group, INT32_MIN});
       it != shards_.end() && it->first.group == group;) {
    refs.push_back(it->first);
    it = shards_.erase(it);
  }
  work_.ChargeShards(refs.size());
  actions_->Drop(refs);
}

void ExecutorCore::Conclude(NodeId id, const absl::Status& status) {
  const auto it = nodes_.find(id);
  Node node = std::move(it->second);
  nodes_.erase(it);
  if (const auto* launch = std::get_if<PrepareLaunch>(&node.command)) {
    if (node.launch.has_value() && node.launch->gang) {
      if (!node.started || node.run != nullptr) {
        LeaveLines(id, node);
      } else if (!node.follows) {
        Wake(lines_.End(PlaceOf(node)));
      }
    }
    if (node.launch.has_value() && !node.parent) launches_.erase({node.launch->launch_id, id});
    for (const GroupPart& part : launch->outputs) ShardsEnded(part, status);
    if (node.parent) return StepEnded(std::move(node));
    ReportEnd(launch->seq, status);
  } else {
    ReportEnd(std::get<PrepareReceive>(node.command).seq, status);
  }
}

void ExecutorCore::ReportEnd(uint64_t seq, const absl::Status& status) {
  if (!status.ok()) AddFailure({seq, status});
  if (seq == ended_through_ + 1) {
    ended_through_ = seq;
    if (ended_above_.Contains(seq + 1)) ended_through_ = ended_above_.TakeFront(1).front().last;
  } else if (seq > ended_through_) {
    ended_above_.Add(seq);
    if (Planted(Bug::kWatermarkSkips) && ended_above_.ranges() > 1)
      ended_through_ = ended_above_.TakeFront(1).front().last;
  }
  if (seq > ended_through_) report_.finished.push_back(seq);
  actions_->ReportWanted();
  if (++report_ends_ < kReportEnds && report_bytes_ < kReportBytes) return;
  report_ends_ = report_bytes_ = 0;
  full_.push_back(std::exchange(report_, {}));
  full_.back().finished_through = ended_through_;
}

void ExecutorCore::AddInlined(Report::Inlined inlined) {
  report_bytes_ += inlined.bytes->size() + 32;
  report_.inlined.push_back(std::move(inlined));
}

void ExecutorCore::AddFailure(Report::Failure failure) {
  report_bytes_ += failure.status.message().size() + 32;
  report_.failures.push_back(std::move(failure));
}

Report ExecutorCore::TakeReport() {
  Report report;
  if (full_.empty()) {
    report = std::exchange(report_, {});
    report.finished_through = ended_through_;
    report_ends_ = report_bytes_ = 0;
  } else {
    report = std::move(full_.front());
    full_.pop_front();
    actions_->ReportWanted();
  }
  std::erase_if(report.finished, [&](uint64_t seq) { return seq <= report.finished_through; });
  std::sort(report.finished.begin(), report.finished.end());
  return report;
}

void ExecutorCore::Reset() {
  std::vector<ShardRef> all;
  for (const auto& [ref, shard] : shards_) all.push_back(ref);
  shards_.clear();
  nodes_.clear();
  gangs_.clear();
  singles_.clear();
  advance_.clear();
  ended_.clear();
  freed_.clear();
  settled_.clear();
  followed_.clear();
  receives_.clear();
  asked_.clear();
  inbox_.clear();
  inbox_launches_ = 0;
  work_.BeginTurn();
  turn_wanted_ = commands_next_ = false;
  sequences_.clear();
  follows_.clear();
  shared_.clear();
  lines_.Clear();
  launches_.clear();
  sends_.clear();
  waiters_.Clear();
  early_pulls_.clear();
  num_early_pulls_ = 0;
  serving_.clear();
  ended_sends_.clear();
  ends_in_order_.clear();
  stale_receives_.clear();
  ended_above_.Clear();
  ended_through_ = 0;
  report_ = {};
  report_ends_ = report_bytes_ = 0;
  full_.clear();
  actions_->Drop(all);
}

}  // namespace fairway
