// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/reduce.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace fairway {
namespace {

// The parts of a round, which are the steps of the plan.
enum Part : int32_t {
  kOwn = 0,      // a member's own block, to neighbours
  kFold = 1,     // a surplus lead's block, to the lead before it
  kUnfold = 2,   // the result, to that surplus lead
  kResult = 3,   // the result, to the neighbours of a lead
  kDouble = 16,  // and above: the rounds of doubling between leads
};

class Reduction {
 public:
  Reduction(Exchange& exchange, uint64_t launch, uint32_t round, std::shared_ptr<Blob> own,
            absl::FunctionRef<void(char*, const char*)> combine)
      : exchange_(exchange),
        launch_(launch),
        round_(round),
        block_(std::move(own)),
        own_(block_->view()),
        combine_(combine),
        self_(exchange.self()) {
    const auto& hosts = exchange.hosts();
    while (std::count(hosts[host_].begin(), hosts[host_].end(), self_) == 0) ++host_;
    if (hosts.size() == 1) return;
    for (const size_t member : hosts[host_]) {
      if (member != self_) neighbours_.push_back(member);
    }
  }

  absl::StatusOr<std::shared_ptr<Blob>> Run() {
    if (block_.use_count() == 1 && own_.size() <= sizeof copy_) {
      std::atomic_thread_fence(std::memory_order_acquire);  // after the last other reader
      own_ = {std::ranges::copy(own_, copy_).out - own_.size(), own_.size()};
      result_ = std::move(block_);
    } else {
      result_ = Blob::Make(own_.size());
    }
    if (result_ == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted, "no memory for a sum of {} bytes",
                   own_.size());
    }
    const bool alone = exchange_.hosts().size() == 1;
    const size_t lead = Lead(host_);
    if (!alone && lead != self_) {
      FAIRWAY_RETURN_IF_ERROR(Push(kOwn, lead, own_));
      FAIRWAY_RETURN_IF_ERROR(Get(kResult, lead));
      return std::move(result_);
    }
    FAIRWAY_RETURN_IF_ERROR(AddNeighbours(alone));
    if (alone) return std::move(result_);
    FAIRWAY_RETURN_IF_ERROR(CombineHosts());
    for (const size_t neighbour : neighbours_)
      FAIRWAY_RETURN_IF_ERROR(Push(kResult, neighbour, result_->view()));
    return std::move(result_);
  }

 private:
  size_t Lead(size_t host) const { return exchange_.hosts()[host].front(); }
  absl::Status Push(int32_t part, size_t to, std::string_view bytes) {
    return exchange_.Push(launch_, round_, part, to, bytes);
  }
  // Replaces the result with a block of member `from`.
  absl::Status Get(int32_t part, size_t from) {
    return exchange_.Receive(launch_, round_, part, {from}, own_.size(),
                             [&](size_t, std::string_view bytes) {
                               std::copy_n(bytes.data(), bytes.size(), result_->data());
                             });
  }

  // Sets the result to that of all members of this host, in their order. `swap`: all of them do.
  absl::Status AddNeighbours(bool swap) {
    bool empty = true, has_own = false;
    const auto add = [&](const char* bytes) {
      if (std::exchange(empty, false)) {
        std::copy_n(bytes, own_.size(), result_->data());
      } else {
        combine_(result_->data(), bytes);
      }
    };
    const auto use = [&](size_t member, std::string_view bytes) {
      if (member > self_ && !std::exchange(has_own, true)) add(own_.data());
      add(bytes.data());
    };
    FAIRWAY_RETURN_IF_ERROR(
        swap ? exchange_.Swap(launch_, round_, kOwn, own_, use)
             : exchange_.Receive(launch_, round_, kOwn, neighbours_, own_.size(), use));
    if (!has_own) add(own_.data());
    return absl::OkStatus();
  }

  // Combines the results of the hosts, by recursive doubling.
  absl::Status CombineHosts() {
    const size_t hosts = exchange_.hosts().size();
    const size_t rest = std::bit_floor(hosts);  // hosts that double
    const size_t paired = 2 * (hosts - rest);   // the first of these fold in pairs
    const bool folds = host_ < paired;
    if (folds && host_ % 2 == 1) {
      FAIRWAY_RETURN_IF_ERROR(Push(kFold, Lead(host_ - 1), result_->view()));
      return Get(kUnfold, Lead(host_ - 1));
    }
    if (folds) FAIRWAY_RETURN_IF_ERROR(CombineWith(kFold, host_ + 1));
    const size_t rank = folds ? host_ / 2 : host_ - paired / 2;
    for (size_t bit = 1, k = 0; bit < rest; bit *= 2, ++k) {
      const size_t other = rank ^ bit;
      const size_t host = other < paired / 2 ? 2 * other : other + paired / 2;
      const int32_t part = kDouble + static_cast<int32_t>(k);
      FAIRWAY_RETURN_IF_ERROR(Push(part, Lead(host), result_->view()));
      FAIRWAY_RETURN_IF_ERROR(CombineWith(part, host));
    }
    if (folds) FAIRWAY_RETURN_IF_ERROR(Push(kUnfold, Lead(host_ + 1), result_->view()));
    return absl::OkStatus();
  }

  absl::Status CombineWith(int32_t part, size_t host) {
    std::shared_ptr<Blob> lower;
    if (host < host_ && (lower = Blob::Make(own_.size())) == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted, "no memory for a sum of {} bytes",
                   own_.size());
    }
    return exchange_.Receive(launch_, round_, part, {Lead(host)}, own_.size(),
                             [&](size_t, std::string_view bytes) {
                               if (lower == nullptr) return combine_(result_->data(), bytes.data());
                               std::copy_n(bytes.data(), bytes.size(), lower->data());
                               combine_(lower->data(), result_->data());
                               result_ = std::move(lower);
                             });
  }

  Exchange& exchange_;
  const uint64_t launch_;
  const uint32_t round_;
  std::shared_ptr<Blob> block_;
  std::string_view own_;  // of block_ or copy_
  alignas(Blob::kAlignment) char copy_[128];
  const absl::FunctionRef<void(char*, const char*)> combine_;
  const size_t self_;
  size_t host_ = 0;
  std::vector<size_t> neighbours_;  // on the same host, without this one; of several hosts
  std::shared_ptr<Blob> result_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Blob>> ReducePushed(
    Exchange& exchange, uint64_t launch, uint32_t round, std::shared_ptr<Blob> own,
    absl::FunctionRef<void(char* into, const char* more)> combine) {
  return Reduction(exchange, launch, round, std::move(own), combine).Run();
}

}  // namespace fairway
