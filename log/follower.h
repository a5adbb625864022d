// SPDX-License-Identifier: Apache-2.0
// The executor's end of the log: which entries of a frame are new to it, and what it has to report.
#ifndef FAIRWAY_LOG_FOLLOWER_H_
#define FAIRWAY_LOG_FOLLOWER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "log/codec.h"
#include "log/entry.h"
#include "log/ranges.h"

namespace fairway {

// Loop-confined. Lives as long as the incarnation of its executor, over all links and versions.
class LogFollower {
 public:
  // `self`: the executor; nullopt: of a relay, which lives for one version and has no executor of
  // its own.
  explicit LogFollower(std::optional<ExecutorIndex> self) : self_(self) {}

  // The entries that are new, to be applied in this order before anything else is taken; with
  // bodies in the bytes of `frame`. A frame of an older version than the newest is none of our
  // business (R3) and brings nothing. The first one of a new version has all reported anew.
  // INVALID_ARGUMENT: an entry for another executor alone. FAILED_PRECONDITION: something is said
  // to be concluded that has not ended here (R2). Then nothing has changed, and the link is over.
  absl::StatusOr<std::vector<LogFrame::Received>> Take(const LogFrame& frame);

  // An entry that was handed on has ended. `wakes`: somebody may wait for it; else it goes with the
  // next report that leaves for another reason.
  // FAILED_PRECONDITION: it was not handed on, or has ended before.
  absl::Status Ended(LogNumber number, bool wakes = true);

  // The link was made anew: what has ended is reported anew.
  void Resend();

  bool Urgent() const { return urgent_; }
  // A report: at most kMaxFrameRanges; more() says that another one is to follow at once.
  LogReport Next();
  bool more() const { return !news_.empty(); }

  uint64_t version() const { return version_; }
  // Up to where entries have come: what the next link is told.
  LogNumber applied() const { return applied_; }
  // R2: ended, and not known to be concluded: their results are to be kept.
  const LogRangeSet& kept() const { return kept_; }
  const LogRangeSet& running() const { return running_; }

  // INTERNAL: sets that do not agree. For tests.
  absl::Status CheckInvariants() const;

 private:
  std::optional<ExecutorIndex> self_;
  uint64_t version_ = 0;   // R3: the newest that a frame has told of
  LogNumber applied_ = 0;  // entries up to here have come, and are not taken again
  LogRangeSet running_;    // handed on, not ended
  LogRangeSet kept_;       // R2: ended, not concluded
  LogRangeSet news_;       // of those what this version's reports have not told
  bool urgent_ = false;
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_FOLLOWER_H_
