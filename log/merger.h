// SPDX-License-Identifier: Apache-2.0
// Which entries all children have ended that they concern (R2), by the reports of one version of
// the tree (R3).
#ifndef FAIRWAY_LOG_MERGER_H_
#define FAIRWAY_LOG_MERGER_H_

#include <cstdint>
#include <vector>

#include <absl/container/btree_map.h>

#include "base/status.h"
#include "log/codec.h"
#include "log/index_set.h"
#include "log/ranges.h"

namespace fairway {

// Loop-confined. Costs a look-up for each number that a report names, and a bit for each child of
// an entry that has not ended.
class LogMerger {
 public:
  // R3: counts from nothing. Append what is not concluded anew.
  void Begin(uint64_t version, int children);

  // Numbers ascending. `children`: below which the entry concerns somebody, by Begin's numbers. An
  // entry that concerns nobody has ended.
  void Append(LogNumber number, IndexSet children);

  // `sent`: the highest number that this child was sent in this version, or had before it. Reports
  // of older versions count for nothing (R3), and so do numbers that have ended before.
  // INVALID_ARGUMENT: no such child; a newer version; a number that the child was not sent, or that
  // does not concern it. Then nothing has changed.
  absl::Status Take(uint32_t child, const LogReport& report, LogNumber sent);

  // R2: what all the children it concerns have ended, each once, in the order in which that was
  // known.
  std::vector<LogNumber> TakeEnded();

  uint64_t version() const { return version_; }
  size_t pending() const { return pending_.size(); }
  // INTERNAL: an entry that waits for nobody, or for one that it does not concern. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Pending {
    IndexSet concerns;
    IndexSet waits;  // of those the children that have not said that they ended it
  };
  absl::Status Check(uint32_t child, const LogReport& report, LogNumber sent) const;

  uint64_t version_ = 0;  // R3: only reports of this one count
  int children_ = 0;
  absl::btree_map<LogNumber, Pending> pending_;
  std::vector<LogNumber> ended_;  // until TakeEnded
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_MERGER_H_
