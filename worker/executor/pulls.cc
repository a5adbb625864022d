// SPDX-License-Identifier: Apache-2.0
// ExecutorCore: serves shards to others. A pull waits until its transfer is known and the shard is
// ready.
#include <utility>

#include "base/planted.h"
#include "worker/executor/executor_core.h"

namespace fairway {

void ExecutorCore::ServeOrWait(const AskedShard& asked) {
  Sending& send = sends_.at(asked.transfer);
  const PrepareSend::Item& item = send.items.at(asked.index);
  const ShardRef ref = item.shard;
  const auto it = shards_.find(ref);
  const bool ready = it != shards_.end() && it->second.state == ShardState::kReady;
  work_.Charge(1);
  if (ready || Planted(Bug::kServeBeforeReady)) {
    serving_.insert(asked.pull);
    actions_->Serve(asked.pull, item);
  } else if (it != shards_.end() && it->second.state == ShardState::kFailed) {
    actions_->RefusePull(asked.pull, it->second.error);
  } else {
    send.waits.push_back(waiters_.Add(ref, {asked.pull, asked.transfer, asked.index, NodeId(), 0}));
  }
}

void ExecutorCore::On(PrepareSend command) {
  ended_sends_.erase(command.transfer);
  auto& items = sends_[command.transfer].items;
  work_.ChargeShards(command.items.size());
  for (const PrepareSend::Item& item : command.items) items[item.index] = item;
  const auto early = early_pulls_.find(command.transfer);
  if (early == early_pulls_.end()) return;
  for (const auto& [pull, index] : early->second) asked_.push_back({pull, command.transfer, index});
  num_early_pulls_ -= early->second.size();
  early_pulls_.erase(early);
}

void ExecutorCore::OnPull(uint64_t pull, TransferId transfer, int32_t index) {
  Ask({pull, transfer, index});
  DoWork();
}

void ExecutorCore::Ask(const AskedShard& asked) {
  const auto& [pull, transfer, index] = asked;
  work_.Charge(1);
  const auto send = sends_.find(transfer);
  if (send == sends_.end()) {
    if (ended_sends_.contains(transfer) && !Planted(Bug::kForgetEndedSend)) {
      actions_->RefusePull(pull, absl::CancelledError("the transfer was ended"));
      return;
    }
    if (num_early_pulls_ >= kMaxEarlyPulls) {
      actions_->RefusePull(
          pull, Error(absl::StatusCode::kResourceExhausted,
                      "{} pulls wait for transfers that are not known here", num_early_pulls_));
      return;
    }
    early_pulls_[transfer].emplace_back(pull, index);
    ++num_early_pulls_;
    return;
  }
  if (!send->second.items.contains(index)) {
    actions_->RefusePull(pull, InvalidArgument("transfer {} has no shard {}", transfer, index));
    return;
  }
  ServeOrWait(asked);
}

void ExecutorCore::OnTakenBack(TransferId transfer) {
  const auto early = early_pulls_.extract(transfer);
  if (early.empty()) return;
  work_.ChargeShards(early.mapped().size());
  num_early_pulls_ -= early.mapped().size();
  for (const auto& [pull, index] : early.mapped())
    actions_->RefusePull(pull, absl::CancelledError("it was taken back"));
}

void ExecutorCore::ServeDone(uint64_t pull) { serving_.erase(pull); }

size_t ExecutorCore::num_pulls() const {
  size_t count = num_early_pulls_ + asked_.size() + serving_.size();
  const auto add = [&](const Waiters::Line& line) {
    for (const auto& [number, waiter] : line) count += waiter.pull != 0 ? 1 : 0;
  };
  for (const auto& [ref, line] : waiters_.all()) add(line);
  for (const SettledShard& settled : settled_) add(settled.waiters);
  return count;
}

void ExecutorCore::On(EndSend command) {
  const auto send = sends_.find(command.transfer);
  if (send == sends_.end()) return;
  work_.ChargeShards(send->second.waits.size());
  for (const Waiters::Entry& entry : send->second.waits) {
    const auto [waited, waiter] = waiters_.Remove(entry);
    if (waited) actions_->RefusePull(waiter.pull, absl::CancelledError("the transfer was ended"));
  }
  sends_.erase(send);
  ended_sends_[command.transfer] = ++num_ends_;
  ends_in_order_.emplace_back(command.transfer, num_ends_);
  if (ends_in_order_.size() <= kRememberedSends) return;
  const auto [oldest, number] = ends_in_order_.front();
  ends_in_order_.pop_front();
  const auto remembered = ended_sends_.find(oldest);
  if (remembered != ended_sends_.end() && remembered->second == number)
    ended_sends_.erase(remembered);
}

}  // namespace fairway
