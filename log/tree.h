// SPDX-License-Identifier: Apache-2.0
// Finds the children of a parent that an entry concerns, in one version of the tree.
#ifndef FAIRWAY_LOG_TREE_H_
#define FAIRWAY_LOG_TREE_H_

#include <cstdint>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>

#include "base/status.h"
#include "log/entry.h"
#include "log/index_set.h"

namespace fairway {

// An executor that lives.
struct LogMember {
  ExecutorIndex executor = 0;
  // Entries up to this number do not concern it: they were for its predecessor.
  LogNumber joined = 0;
};

// A direct child of a parent: an executor, or a relay with the executors that live below it.
struct LogChild {
  std::vector<LogMember> live;
};

// One version of the tree (R3), as one parent sees it.
class LogTree {
 public:
  LogTree() = default;  // version 0: no executors yet
  // INVALID_ARGUMENT: an executor twice.
  static absl::StatusOr<LogTree> Make(uint64_t version, std::vector<LogChild> children);

  uint64_t version() const { return version_; }
  int children() const { return children_; }
  // The children with an executor that entry `number` for `span` concerns. The first time for a
  // span of several it costs a step for each executor in it.
  IndexSet Concerned(LogSpan span, LogNumber number);
  // Calls `f` with each executor that it concerns.
  template <typename F>
  void ForEach(LogSpan span, LogNumber number, F f) const {
    for (auto it = places_.lower_bound(span.first); it != places_.end() && it->first <= span.last;
         ++it) {
      if (it->second.joined < number) f(it->first, it->second.child);
    }
  }

  // Whether the executor lives, and an entry of this number for it concerns it.
  bool Concerns(ExecutorIndex executor, LogNumber number) const;

  // For a planted mistake (log/planted.h).
  void KeepConcerned(const LogTree& older);

 private:
  struct Place {
    uint32_t child = 0;
    LogNumber joined = 0;
  };
  // Clients choose the spans, so what is kept of them is bounded.
  static constexpr size_t kKnownSpans = 256;
  uint64_t version_ = 0;
  int children_ = 0;
  LogNumber last_joined_ = 0;
  absl::btree_map<ExecutorIndex, Place> places_;
  absl::flat_hash_map<LogSpan, IndexSet> of_spans_;  // of several, for numbers above last_joined_
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_TREE_H_
