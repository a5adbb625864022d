// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_BASE_MEMORY_BUDGET_H_
#define FAIRWAY_BASE_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>

namespace fairway {

// Bytes of host memory that several owners may use together. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}
  bool Reserve(int64_t bytes) {
    if (used_.fetch_add(bytes) + bytes <= limit_) return true;
    used_ -= bytes;
    return false;
  }
  void Release(int64_t bytes) { used_ -= bytes; }
  int64_t used() const { return used_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_BASE_MEMORY_BUDGET_H_
