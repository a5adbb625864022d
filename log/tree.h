// SPDX-License-Identifier: Apache-2.0
// Finds the children of a parent that an entry concerns, from the sets of an island's executors and
// one version of the tree.
#ifndef FAIRWAY_LOG_TREE_H_
#define FAIRWAY_LOG_TREE_H_

#include <cstdint>
#include <map>
#include <vector>

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

// Sets by index. Each is defined once. Removing one comes with DROP, once no open entry names it.
class LogSets {
 public:
  // ALREADY_EXISTS: the index is taken. INVALID_ARGUMENT: an empty set.
  absl::Status Define(uint32_t index, IndexSet members);
  // nullptr: not defined.
  const IndexSet* Find(uint32_t index) const;

 private:
  std::map<uint32_t, IndexSet> sets_;
};

// One version of the tree (R3), as one parent sees it.
class LogTree {
 public:
  LogTree() = default;  // version 0: no executors yet
  // INVALID_ARGUMENT: an executor twice.
  static absl::StatusOr<LogTree> Make(uint64_t version, std::vector<LogChild> children);

  uint64_t version() const { return version_; }
  int children() const { return children_; }
  // The children with an executor that entry `number` for `set` concerns. A set that is not defined
  // concerns nobody.
  IndexSet Concerned(const LogSets& sets, LogSetId set, LogNumber number);

  // Whether the executor lives, and an entry of this number for it concerns it.
  bool Concerns(ExecutorIndex executor, LogNumber number) const;

  // For a planted mistake (log/planted.h).
  void KeepConcerned(const LogTree& older);

 private:
  struct Place {
    uint32_t child = 0;
    LogNumber joined = 0;
  };
  uint64_t version_ = 0;
  int children_ = 0;
  LogNumber last_joined_ = 0;
  absl::flat_hash_map<ExecutorIndex, Place> places_;
  absl::flat_hash_map<uint32_t, IndexSet> of_sets_;  // for numbers above last_joined_
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_TREE_H_
