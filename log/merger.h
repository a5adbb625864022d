// SPDX-License-Identifier: Apache-2.0
// Finds the entries that all concerned children have ended (R2), from the reports of one version of
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

// Of early ends of one child. An executor has one range for each entry at most that has ended and
// is not concluded.
inline constexpr size_t kMaxEarlyRanges = 1 << 16;

// Loop-confined. A report costs one look-up for each range and each pending number in it. Memory:
// bits for the children of each pending entry, and the ranges of early ends.
//
// The merger of a relay may hear of an end before its parent has sent it the entry again: its
// children report what they ended in earlier versions. Such an early end counts once the entry is
// appended.
class LogMerger {
 public:
  // R3: forgets everything. Append all open entries again.
  void Begin(uint64_t version, int children);

  // Numbers must ascend. `children`: those that the entry concerns, as numbered from 0 by Begin. An
  // entry that concerns nobody has ended.
  void Append(LogNumber number, IndexSet children);

  // All entries up to this number that are not concluded have been appended, so no end of one is
  // early.
  void Appended(LogNumber last) { appended_ = last; }

  // `sent`: the highest number that the child was sent in this version, or had before it. Ignores
  // reports of older versions (R3), and numbers that have ended before. INVALID_ARGUMENT: no such
  // child; a newer version; bad ranges; a number that the child was not sent, or that does not
  // concern it; more than kMaxEarlyRanges ranges of early ends. Then nothing has changed.
  absl::Status Take(uint32_t child, const LogReport& report, LogNumber sent);

  // R2: the entries that all concerned children have ended, each once, in the order in which this
  // became known.
  std::vector<LogNumber> TakeEnded();

  uint64_t version() const { return version_; }
  bool any_ended() const { return !ended_.empty(); }
  size_t pending() const { return pending_.size(); }
  size_t early_ranges() const;
  // INTERNAL: an entry waits for nobody, or for a child that it does not concern. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Pending {
    IndexSet concerns;
    IndexSet waits;  // concerned children that have not reported its end
  };
  absl::Status Check(uint32_t child, const LogReport& report, LogNumber sent) const;

  uint64_t version_ = 0;  // R3: only reports of this one count
  int children_ = 0;
  absl::btree_map<LogNumber, Pending> pending_;
  std::vector<LogNumber> ended_;    // until TakeEnded
  LogNumber appended_ = 0;          // the newest number
  std::vector<LogRangeSet> early_;  // by child: ends of numbers above appended_
  bool any_early_ = false;          // false: early_ has none
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_MERGER_H_
