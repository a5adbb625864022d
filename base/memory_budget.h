// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_BASE_MEMORY_BUDGET_H_
#define FAIRWAY_BASE_MEMORY_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace fairway {

// Bytes of host memory that several owners may use together, or one owner's share of them.
// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}
  // A part of `whole`: at most `limit`, and no more than the whole has left.
  MemoryBudget(int64_t limit, std::shared_ptr<MemoryBudget> whole)
      : limit_(limit), whole_(std::move(whole)) {}
  // A share of `whole`. It gives bytes as long as it has no more than it leaves to others: one
  // owner alone gets half, n owners that all want more get 1/(n+1) each, and one that comes later
  // finds as much. (Dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking
  // 6(2), 1998.)
  explicit MemoryBudget(std::shared_ptr<MemoryBudget> whole)
      : limit_(whole->limit_), share_(true), whole_(std::move(whole)) {}

  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  // What a share has yet goes back to the whole.
  ~MemoryBudget() {
    if (whole_ != nullptr) whole_->Release(used_);
  }

  bool Reserve(int64_t bytes) {
    const int64_t used = used_.fetch_add(bytes) + bytes;
    if (used <= (share_ ? whole_->room() - bytes : limit_) &&
        (whole_ == nullptr || whole_->Reserve(bytes)))
      return true;
    used_ -= bytes;
    return false;
  }
  // Returns whether Reserve would give so many.
  bool HasRoom(int64_t bytes) const {
    return bytes <= (share_ ? (whole_->room() - used_) / 2 : room());
  }
  // Reserves the bytes in any case; afterwards over() may be true.
  void Take(int64_t bytes) {
    used_ += bytes;
    if (whole_ != nullptr) whole_->Take(bytes);
  }
  // Returns whether more is reserved than Reserve would have given.
  bool over() const { return share_ ? used_ > whole_->room() : room() < 0; }
  // What is left, of the whole too. Negative: Take has taken more than there was.
  int64_t room() const {
    if (share_) return whole_->room() - used_;
    return whole_ == nullptr ? limit_ - used_ : std::min(limit_ - used_, whole_->room());
  }
  void Release(int64_t bytes) {
    used_ -= bytes;
    if (whole_ != nullptr) whole_->Release(bytes);
  }
  int64_t used() const { return used_; }

 private:
  const int64_t limit_;
  const bool share_ = false;
  const std::shared_ptr<MemoryBudget> whole_;  // nullptr: this is the whole
  std::atomic<int64_t> used_ = 0;
};

// Bytes that are taken from a budget, in any case, until this is gone. Moves; does not copy.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  // nullptr: nobody is charged.
  MemoryCharge(std::shared_ptr<MemoryBudget> budget, int64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {
    if (budget_ != nullptr) budget_->Take(bytes_);
  }
  MemoryCharge(MemoryCharge&& other) noexcept { Swap(other); }
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    MemoryCharge(std::move(other)).Swap(*this);
    return *this;
  }
  ~MemoryCharge() {
    if (budget_ != nullptr) budget_->Release(bytes_);
  }
  int64_t bytes() const { return budget_ == nullptr ? 0 : bytes_; }

 private:
  void Swap(MemoryCharge& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
  }

  std::shared_ptr<MemoryBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_BASE_MEMORY_BUDGET_H_
