// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/executor_core.h"

#include <algorithm>
#include <iterator>

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
  if (!command.positions.empty())
    parts_[command.executable] = {std::move(command.devices), std::move(command.positions),
                                  std::move(command.outputs), std::move(command.distinct)};
}

void ExecutorCore::On(InstallSequence command) {
  wanted_.insert(command.executable);
  if (command.sequence == nullptr) return actions_->LoadSequence(command);
  SequenceLoaded(command.executable, SequenceCode::Make(std::move(command.sequence)));
}

void ExecutorCore::SequenceLoaded(ExecutableId sequence,
                                  absl::StatusOr<std::shared_ptr<const SequenceCode>> code) {
  // It may have been dropped, and installed again, in the meantime. Each InstallSequence is
  // answered, and those of one id have the same bytes.
  if (code.ok() && wanted_.contains(sequence)) {
    work_.Charge((*code)->runs.size() / 16);
    if (std::ranges::any_of((*code)->runs,
                            [this](ExecutableId step) { return shared_.contains(step); }))
      shared_.insert(sequence);
    sequences_[sequence] = *code;
  }
  InstallDone(sequence, code.status());
}

void ExecutorCore::On(DropExecutable command) {
  follows_.erase(command.executable);
  shared_.erase(command.executable);
  parts_.erase(command.executable);
  if (wanted_.erase(command.executable) == 0) return actions_->Unload(command.executable);
  Unlink(command.executable);
  sequences_.erase(command.executable);
}

const SequenceCode* ExecutorCore::SequenceOf(const Node& node) const {
  const auto* prepared = std::get_if<PrepareLaunch>(&node.command);
  const auto it = prepared == nullptr ? sequences_.end() : sequences_.find(prepared->executable);
  return it == sequences_.end() ? nullptr : it->second.get();
}

void ExecutorCore::InstallDone(ExecutableId executable, absl::Status status, bool follows) {
  if (follows) follows_.insert(executable);
  report_.installed.push_back({executable, std::move(status)});
  report_.news = true;
  actions_->ReportWanted(/*may_wait=*/false, report_.news);
}

void ExecutorCore::Declare(const GroupPart& part, NodeId producer) {
  work_.ChargeShards(part.shards.size());
  for (const LocalShard& shard : part.shards)
    shards_.Insert({part.group, shard.shard}).first =
        Shard{ShardState::kDeclared, producer, absl::OkStatus()};
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
                            "it was prepared twice, or its sources do not match its shards"),
              /*may_wait=*/false);
    return;
  }
  Declare(command.out, command.node);
  const NodeId id = command.node;
  Node& node = nodes_[id];
  node.open = command.sources.size();
  node.out_shards = std::move(out_shards);
  node.started = true;
  node.command = std::move(command);
  if (node.open == 0) return Conclude(id, {});
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
  if (!status.ok()) node.FailedAt(position, status);
  const bool last = --node.open == 0;
  const absl::Status failure = node.failure;
  if (shard_ended) ShardEnded(ref, shard_status);
  if (last) Conclude(id, {failure, {}});
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
  absl::Status cause = command.cause.ok() ? absl::CancelledError("cancelled") : command.cause;
  Node node = std::move(it->second);
  nodes_.erase(it);
  if (node.launch.has_value()) launches_.erase({node.launch->launch_id, command.node});
  if (node.launch.has_value() && node.launch->gang) LeaveLines(command.node, node);
  if (const auto* receive = std::get_if<PrepareReceive>(&node.command)) {
    if (node.at_work > 0 && !Planted(Bug::kMixAttempts))
      stale_receives_[command.node] += node.at_work;
    if (node.at_work > 0) actions_->TakeBackPulls(*receive);
    work_.ChargeShards(node.waits.size());
    for (const Waiters::Entry& entry : node.waits) waiters_.Remove(entry);
    // What was launched may read those that have come; FreeGroups drops these, and forgets all.
    actions_->Drop(EndOpenShards(node, cause));
    ReportEnd(receive->seq, absl::OkStatus(), /*may_wait=*/false);
  } else {
    EndLaunch({std::move(node), {std::move(cause), {}}, true});
  }
}

void ExecutorCore::EndReceives(const absl::Status& why) {
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const auto* known = std::get_if<PrepareReceive>(&it->second.command);
    if (known == nullptr || std::ranges::none_of(known->sources, [](const ShardSource& source) {
          return source.kind == ShardSource::Kind::kPeer ||
                 source.kind == ShardSource::Kind::kController;
        })) {
      ++it;
      continue;
    }
    const NodeId id = it->first;
    const Node node = std::move(it->second);
    it = nodes_.erase(it);
    const auto& receive = std::get<PrepareReceive>(node.command);
    if (node.at_work > 0) stale_receives_[id] += node.at_work;
    if (node.at_work > 0) actions_->TakeBackPulls(receive);
    for (const Waiters::Entry& entry : node.waits) waiters_.Remove(entry);
    EndOpenShards(node, why);
  }
  DoWork();
}

std::vector<ShardRef> ExecutorCore::EndOpenShards(const Node& receive, const absl::Status& why) {
  const GroupPart& out = std::get<PrepareReceive>(receive.command).out;
  work_.ChargeShards(out.shards.size());
  std::vector<ShardRef> open;
  for (size_t i = 0; i < out.shards.size(); ++i) {
    if (receive.out_shards[i].open > 0) open.push_back({out.group, out.shards[i].shard});
  }
  for (const ShardRef ref : open) ShardEnded(ref, why);
  return open;
}

void ExecutorCore::Forget(const GroupPart& part, const absl::Status& cause) {
  ShardsEnded(part, cause);
  std::vector<ShardRef> refs;
  for (const LocalShard& shard : part.shards) refs.push_back({part.group, shard.shard});
  for (const ShardRef ref : refs) shards_.erase(ref);
  actions_->Drop(refs);
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

void ExecutorCore::ReportEnd(uint64_t seq, const absl::Status& status, bool may_wait) {
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
  report_.news = true;
  Reported(may_wait);
}

void ExecutorCore::ReportLaunchEnd(const PrepareLaunch& launch, const absl::Status& status,
                                   bool may_wait) {
  if (launch.entry == 0) return ReportEnd(launch.seq, status, may_wait);
  if (status.ok()) {
    report_.ended.push_back(launch.entry);
  } else {
    unheard_.emplace(launch.node, launch.entry);
  }
  if (!status.ok()) AddFailure({.status = status, .node = launch.node});
  Reported(may_wait);
}

void ExecutorCore::On(FailureHeard command) {
  const auto failed = unheard_.find(command.node);
  if (failed == unheard_.end()) return;
  report_.ended.push_back(failed->second);
  unheard_.erase(failed);
  Reported(/*may_wait=*/false);
}

void ExecutorCore::Reported(bool may_wait) {
  actions_->ReportWanted(may_wait, report_.news);
  if (++report_ends_ < kReportEnds && report_bytes_ < kReportBytes) return;
  report_ends_ = report_bytes_ = 0;
  full_.push_back(std::exchange(report_, {}));
  full_.back().finished_through = ended_through_;
}

void ExecutorCore::AddInlined(Report::Inlined inlined) {
  report_bytes_ += inlined.bytes->size() + 32;
  report_.inlined.push_back(std::move(inlined));
  report_.news = true;
}

void ExecutorCore::AddFailure(Report::Failure failure) {
  report_bytes_ += failure.status.message().size() + 32;
  report_.failures.push_back(std::move(failure));
  report_.news = true;
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
    actions_->ReportWanted(/*may_wait=*/false, report.news);
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
  garbage_->clear();
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
  launching_.reset();
  starting_.reset();
  forgetting_.reset();
  ending_.clear();
  work_.BeginTurn();
  turn_wanted_ = commands_next_ = false;
  sequences_.clear();
  blocks_.clear();
  wanted_.clear();
  follows_.clear();
  shared_.clear();
  parts_.clear();
  unheard_.clear();
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
