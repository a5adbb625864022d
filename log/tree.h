// SPDX-License-Identifier: Apache-2.0
// Who an entry concerns: the sets of executors of an island, and the version of the tree by which
// its entries go down. A parent asks which of its children are concerned.
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
  // Entries up to this number do not concern it: they were for the one before it in its place.
  LogNumber joined = 0;
};

// A direct child of a parent, and the executors that live below it: an executor itself, or a relay.
struct LogChild {
  std::vector<LogMember> live;
};

// Sets by their index. A set is defined once: who takes it out must know that no entry which is not
// concluded names it, which comes with the entries that drop.
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
  LogTree() = default;  // version 0: nobody is there yet
  // INVALID_ARGUMENT: an executor twice.
  static absl::StatusOr<LogTree> Make(uint64_t version, std::vector<LogChild> children);

  uint64_t version() const { return version_; }
  int children() const { return children_; }
  // The children below which an executor lives that entry `number` for `set` concerns. Nobody is
  // concerned by a set that is not defined.
  IndexSet Concerned(const LogSets& sets, LogSetId set, LogNumber number);

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
