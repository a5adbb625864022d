// SPDX-License-Identifier: Apache-2.0
// The limits on how far a session may run ahead of its devices and of the compilers (rule B3).
#ifndef FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_
#define FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/memory_budget.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/sessions.h"

namespace fairway {

// The programs of a session that are being compiled. Loop-confined.
class PendingCompilations {
 public:
  // `memory`: for those of all sessions; nullptr: nobody counts them together.
  explicit PendingCompilations(const std::shared_ptr<MemoryBudget>& memory = nullptr)
      : share_(memory == nullptr ? nullptr : std::make_shared<MemoryBudget>(memory)) {}

  // Counts a program of `bytes` bytes until the last copy of the returned pointer is gone.
  std::shared_ptr<void> Add(size_t bytes) {
    ++counts_->number;
    counts_->bytes += bytes;
    // The program, and the message to its compiler.
    const auto charged = static_cast<int64_t>(2 * bytes);
    if (share_ != nullptr) share_->Take(charged);
    return {nullptr, [counts = counts_, share = share_, bytes, charged](void*) {
              --counts->number;
              counts->bytes -= bytes;
              if (share != nullptr) share->Release(charged);
            }};
  }
  size_t number() const { return counts_->number; }
  size_t bytes() const { return counts_->bytes; }
  // Whether they hold more than they leave to those of other sessions.
  bool over() const { return share_ != nullptr && share_->used() > kLeast && share_->over(); }

 private:
  static constexpr int64_t kLeast = int64_t{256} << 10;

  struct Counts {
    size_t number = 0, bytes = 0;
  };
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  const std::shared_ptr<MemoryBudget> share_;
};

struct SessionCaps {
  // Multiplies the caps while nodes wait for memory or for the client's bytes. Above that the first
  // that waits for memory fails after a while (ClusterOptions::admission_grace_ms).
  static constexpr size_t kTimesWaiting = 4;

  // The bytes of records that a session may have even when others hold all the room.
  static constexpr size_t kLeastBytes = size_t{256} << 10;

  // Reading stops above this many unfinished executions, or bytes of their records.
  size_t max_queued_nodes = 100000;
  size_t max_queued_bytes = size_t{256} << 20;
  // It also stops at this many programs that are being compiled, or bytes of them, and while these
  // hold more than they leave to those of other sessions.
  size_t max_compilations = 256;
  size_t max_compiled_bytes = size_t{1} << 30;
  std::shared_ptr<MemoryBudget> compiling = nullptr;  // for PendingCompilations

  // It also stops at this many bytes under way from executors for fetches. Each fetch becomes an
  // answer, which the controller holds until the client reads it.
  int64_t max_fetching = int64_t{256} << 20;

  // It also stops while its commands that executors have not taken hold more than its share.
  //
  // While the session waits for memory or for bytes, the caps are higher: one of the next requests
  // may free the memory or bring the bytes.
  bool MayRead(const Cluster::Sessions::Backlog& backlog,
               const PendingCompilations& compiling) const {
    if (compiling.number() >= max_compilations || compiling.bytes() >= max_compiled_bytes ||
        compiling.over())
      return false;
    if (backlog.fetching >= max_fetching || backlog.commands_wait) return false;
    const size_t times = backlog.waits_for_memory || backlog.waits_for_bytes ? kTimesWaiting : 1;
    const size_t bytes = std::min(max_queued_bytes, std::max(backlog.record_room, kLeastBytes));
    return backlog.nodes <= times * max_queued_nodes && backlog.record_bytes <= times * bytes;
  }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_
