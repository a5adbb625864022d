// SPDX-License-Identifier: Apache-2.0
// The executor's end of the log: finds the new entries of a frame, and makes the reports.
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
  // `self`: the executor. nullopt: for a relay, which has no executor of its own; this follower
  // then lives for one version.
  explicit LogFollower(std::optional<ExecutorIndex> self) : self_(self) {}

  // Returns the new entries of a frame. The caller must apply them in this order before it takes
  // another frame. Their bodies point where those of `frame` point. A frame of an older version
  // brings nothing (R3). The first frame of a new version makes all kept entries be reported again.
  // INVALID_ARGUMENT: an entry is for another executor alone. FAILED_PRECONDITION: a concluded
  // entry has not ended here (R2). Then nothing has changed, and the link is over.
  absl::StatusOr<std::vector<LogFrame::Received>> Take(const LogFrame& frame);

  // An entry that Take returned has ended. `wakes`: somebody may wait for its end; otherwise the
  // end leaves with the next report that leaves for another reason. FAILED_PRECONDITION: Take did
  // not return the entry, or it has ended before.
  absl::Status Ended(LogNumber number, bool wakes = true) {
    return Ended(LogRange{number, number}, wakes);
  }
  // The same for all of these; `entries` as Take returned them.
  absl::Status Ended(const std::vector<LogFrame::Received>& entries, bool wakes);

  // The link is new: reports all kept entries again.
  void Resend();

  // Whether the next report names an end for which somebody waits.
  bool Urgent() const { return urgent_; }
  // The next report, of at most kMaxFrameRanges. If more(), another one must follow at once.
  LogReport Next();
  bool more() const { return !news_.empty(); }

  uint64_t version() const { return version_; }
  // All entries up to this number that concern it have come. The next link is told so.
  LogNumber applied() const { return applied_; }
  // R2: entries that have ended and are not known to be concluded. Their results must be kept.
  const LogRangeSet& kept() const { return kept_; }
  const LogRangeSet& running() const { return running_; }

  // INTERNAL: the sets disagree. For tests.
  absl::Status CheckInvariants() const;

 private:
  absl::Status Ended(LogRange range, bool wakes);

  std::optional<ExecutorIndex> self_;
  uint64_t version_ = 0;   // R3: the newest version of any frame
  LogNumber applied_ = 0;  // entries up to here have come, and are not taken again
  LogRangeSet running_;    // returned by Take, not ended
  LogRangeSet kept_;       // R2: ended, not concluded
  LogRangeSet news_;       // kept, and in no report of this version yet
  LogRangeSet awaited_;    // kept, and somebody waits for the end
  bool urgent_ = false;
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_FOLLOWER_H_
