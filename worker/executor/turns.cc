// SPDX-License-Identifier: Apache-2.0
// The turns of an executor's core (docs/design/0058-bounded-turns.md). The order of work is:
// consequences of events, then launches whose inputs and turn have come, then the next command. So
// a command finds everything as if all earlier commands were done at once. An event that comes
// before the command is done finds everything as if the command came later. Only sequences go on
// between commands, and ends of launches with many outputs: as if the rest of the outputs came
// later.
#include <optional>
#include <utility>

#include "base/planted.h"
#include "worker/executor/executor_core.h"

namespace fairway {
namespace {

std::optional<LaunchId> LaunchIdOf(const Command& command) {
  if (const auto* launch = std::get_if<Launch>(&command)) return launch->launch_id;
  if (const auto* all = std::get_if<LaunchAll>(&command)) return all->launch_id;
  return std::nullopt;
}

}  // namespace

void ExecutorCore::OnCommand(Command command) {
  if (const std::optional<LaunchId> launch = LaunchIdOf(command)) {
    ++inbox_launches_;
    highest_launch_id_ = std::max(highest_launch_id_, launch->value);
  }
  inbox_.push_back(std::move(command));
  DoWork();
}

void ExecutorCore::Turn() {
  turn_wanted_ = false;
  work_.BeginTurn();
  DoWork();
}

size_t ExecutorCore::num_launched() const {
  return launches_.size() + inbox_launches_ + (launching_.has_value() ? 1 : 0);
}

void ExecutorCore::DoWork() {
  const auto over = [&] {
    return work_.TurnIsOver() && !(Planted(Bug::kEndlessTurn) && advance_.empty());
  };
  while (!over() && DoNext()) {
  }
  work_.EndCall();
  if (!work_.TurnIsOver() || std::exchange(turn_wanted_, true)) return;
  if (!Planted(Bug::kForgetExecutorTurn)) actions_->WantTurn();
}

bool ExecutorCore::DoNext() {
  if (FollowUpNext()) return true;
  if (!commands_next_) {
    if (!ending_.empty()) {
      auto next = ending_.upper_bound(ended_last_);
      if (next == ending_.end()) next = ending_.begin();
      ended_last_ = next->first;
      EndLaunch(std::move(ending_.extract(next).mapped()));
      return true;
    }
    if (!advance_.empty()) {
      const NodeId id = advance_.front();
      advance_.pop_front();
      Advance(id);
      return true;
    }
  }
  if (StartNext() || HandleNext()) return true;
  return std::exchange(commands_next_, false) && !(ending_.empty() && advance_.empty());
}

void ExecutorCore::CommandsNext() {
  commands_next_ = true;
  commands_until_ = work_.units() + kSliceUnits;
}

bool ExecutorCore::FollowUpNext() {
  if (forgetting_.has_value()) {
    if (GoOnEnding(*forgetting_)) forgetting_.reset();
  } else if (launching_.has_value()) {
    GoOnLaunching();
  } else if (starting_.has_value()) {
    GoOnStarting();
  } else if (!freed_.empty()) {
    const GroupId group = freed_.front();
    freed_.pop_front();
    work_.Charge(1);
    DropGroup(group);
  } else if (!settled_.empty()) {
    WakeNextWaiter(settled_.front());
  } else if (!followed_.empty()) {
    if (GoOnFollowing(followed_.front())) followed_.pop_front();
  } else if (!receives_.empty()) {
    auto& [id, position] = receives_.front();
    const auto it = nodes_.find(id);
    const auto* command =
        it == nodes_.end() ? nullptr : std::get_if<PrepareReceive>(&it->second.command);
    if (command == nullptr || position == command->sources.size()) {
      receives_.pop_front();
    } else {
      ReceiveOrWait(id, position++);
    }
  } else if (!asked_.empty()) {
    const AskedShard asked = asked_.front();
    asked_.pop_front();
    Ask(asked);
  } else if (!ended_.empty()) {
    const auto it = nodes_.find(ended_.front());
    ended_.pop_front();
    if (it != nodes_.end() && it->second.end.has_value())
      LaunchEnded(it->first, it->second, *std::exchange(it->second.end, std::nullopt));
  } else {
    return false;
  }
  return true;
}

void ExecutorCore::WakeNextWaiter(SettledShard& settled) {
  if (settled.waiters.empty()) return settled_.pop_front();
  const Waiter waiter = settled.waiters.begin()->second;
  settled.waiters.erase(settled.waiters.begin());
  const ShardRef ref = settled.ref;
  const absl::Status status = settled.status;
  work_.Charge(1);
  const auto node = nodes_.find(waiter.node);
  if (waiter.pull != 0 && !status.ok()) {
    actions_->RefusePull(waiter.pull, status);
  } else if (waiter.pull != 0) {
    ServeOrWait({waiter.pull, waiter.transfer, waiter.index});
  } else if (waiter.output.group) {
    ShareOutput(ref, waiter.output);
  } else if (node != nodes_.end() && node->second.launch.has_value()) {
    LaunchInputEnded(waiter.node, waiter.position, status);
  } else if (status.ok()) {
    ReceiveOrWait(waiter.node, waiter.position);
  } else {
    ReceiveEnded(waiter.node, waiter.position, status);
  }
}

bool ExecutorCore::GoOnFollowing(Followed& at) {
  constexpr size_t kLookedAtOnce = 64;  // outputs, and those that wait for them: copies as well
  const auto started = nodes_.find(at.node);
  const auto* launch =
      started == nodes_.end() ? nullptr : std::get_if<PrepareLaunch>(&started->second.command);
  if (launch == nullptr) return true;  // it has ended, so its outputs have
  size_t looked = 0;
  for (; at.output < launch->outputs.size(); ++at.output, at.shard = 0) {
    const GroupPart& part = launch->outputs[at.output];
    for (; at.shard < part.shards.size(); ++at.shard, at.waiter = 0) {
      const Waiters::Line& line = waiters_.Of({part.group, part.shards[at.shard].shard});
      for (auto it = line.upper_bound(at.waiter); it != line.end(); ++it) {
        if (looked++ >= kLookedAtOnce) return work_.ChargeShards(looked), false;
        at.waiter = it->first;
        if (it->second.pull == 0) Follow(it->second.node, at.node);
      }
      if (looked++ >= kLookedAtOnce) return work_.ChargeShards(looked), false;
    }
  }
  work_.ChargeShards(looked);
  return true;
}

void ExecutorCore::Follow(NodeId waiter, NodeId started) {
  const auto it = nodes_.find(waiter);
  if (it == nodes_.end() || !it->second.launch.has_value()) return;
  if (it->second.parent) return;  // WaitForInputs starts it, once all that it waits for is known
  // It may wait for many outputs of that launch.
  if (std::exchange(it->second.looked_for, started) == started) return;
  ChargeInputs(it->second);
  if (Follows(it->second)) singles_.push_back(waiter);
}

bool ExecutorCore::StartNext() {
  const bool gang = !gangs_.empty();
  if (!gang && singles_.empty()) return false;
  std::deque<NodeId>& from = gang ? gangs_ : singles_;
  const NodeId id = from.front();
  from.pop_front();
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return true;
  if (gang) {
    it->second.in_gangs = false;
    StartGang(id);
  } else {
    Start(id, it->second);
  }
  return true;
}

bool ExecutorCore::HandleNext() {
  if (inbox_.empty()) return false;
  Command command = std::move(inbox_.front());
  inbox_.pop_front();
  if (LaunchIdOf(command).has_value()) --inbox_launches_;
  work_.Charge(1);
  std::visit([this](auto&& c) { On(std::move(c)); }, std::move(command));
  if (work_.units() >= commands_until_) commands_next_ = false;
  return true;
}

void ExecutorCore::QueueSequence(NodeId id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end() || it->second.run == nullptr) return;
  if (!std::exchange(it->second.run->queued, true)) advance_.push_back(id);
}

}  // namespace fairway
