// SPDX-License-Identifier: Apache-2.0
// What an executor serves to others: pulls wait until their transfer is known and the shard is
// there.
#include <utility>

#include "base/planted.h"
#include "worker/executor/executor_core.h"

namespace fairway {

void ExecutorCore::ServeOrWait(uint64_t pull, TransferId transfer, int32_t index) {
  const PrepareSend::Item& item = sends_.at(transfer).at(index);
  const ShardRef ref = item.shard;
  const auto it = shards_.find(ref);
  const bool ready = it != shards_.end() && it->second.state == ShardState::kReady;
  if (ready || Planted(Bug::kServeBeforeReady)) {
    serving_.insert(pull);
    actions_->Serve(pull, item);
  } else if (it != shards_.end() && it->second.state == ShardState::kFailed) {
    actions_->RefusePull(pull, it->second.error);
  } else {
    waiters_[ref].push_back({pull, transfer, index, NodeId(), 0});
  }
}

void ExecutorCore::On(PrepareSend command) {
  ended_sends_.erase(command.transfer);
  auto& items = sends_[command.transfer];
  for (const PrepareSend::Item& item : command.items) items[item.index] = item;
  const auto early = early_pulls_.find(command.transfer);
  if (early == early_pulls_.end()) return;
  const auto pulls = std::move(early->second);
  early_pulls_.erase(early);
  num_early_pulls_ -= pulls.size();
  for (const auto& [pull, index] : pulls) OnPull(pull, command.transfer, index);
}

void ExecutorCore::OnPull(uint64_t pull, TransferId transfer, int32_t index) {
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
  const auto item = send->second.find(index);
  if (item == send->second.end()) {
    actions_->RefusePull(pull, InvalidArgument("transfer {} has no shard {}", transfer, index));
    return;
  }
  ServeOrWait(pull, transfer, index);
}

void ExecutorCore::ServeDone(uint64_t pull) { serving_.erase(pull); }

size_t ExecutorCore::num_pulls() const {
  size_t count = num_early_pulls_ + serving_.size();
  for (const auto& [ref, waiters] : waiters_) {
    for (const Waiter& waiter : waiters) count += waiter.pull != 0 ? 1 : 0;
  }
  return count;
}

void ExecutorCore::On(EndSend command) {
  const auto send = sends_.find(command.transfer);
  if (send == sends_.end()) return;
  for (const auto& [index, item] : send->second) {
    const auto waiting = waiters_.find(item.shard);
    if (waiting == waiters_.end()) continue;
    std::vector<uint64_t> refused;
    std::erase_if(waiting->second, [&](const Waiter& waiter) {
      const bool of_transfer = waiter.pull != 0 && waiter.transfer == command.transfer;
      if (of_transfer) refused.push_back(waiter.pull);
      return of_transfer;
    });
    if (waiting->second.empty()) waiters_.erase(waiting);
    for (const uint64_t pull : refused)
      actions_->RefusePull(pull, absl::CancelledError("the transfer was ended"));
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
