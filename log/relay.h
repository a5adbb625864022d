// SPDX-License-Identifier: Apache-2.0
// A relay's end of the log in one version of the tree (R3): passes entries from its parent on to
// its children, and merges their reports into its own (docs/design/0066-relays.md).
#ifndef FAIRWAY_LOG_RELAY_H_
#define FAIRWAY_LOG_RELAY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>

#include "base/status.h"
#include "log/codec.h"
#include "log/follower.h"
#include "log/index_set.h"
#include "log/merger.h"
#include "log/outbox.h"
#include "log/tree.h"

namespace fairway {

struct LogRelayChild {
  LogChild below;       // the executors that it is, or that are below it
  LogNumber floor = 0;  // if it is an executor: the highest concluded number that concerns it
};

struct LogRelayLimits {
  // Of entries that a child has not applied. Above it the child is crowded (LogOutbox::Crowded).
  size_t child_bytes = 32 << 20;
  size_t frame_bytes = 64 << 10;
};

// Loop-confined. Lives for one version, and so do its links. It keeps
//  - bodies: until every child that they concern has said that they came, or is given up;
//  - of each entry that is not concluded, its number and children;
//  - of entries that have yet to come again, the ends that its children told it.
// A child without a link gets nothing; its entries gather. The owner gives up a child that stays
// crowded.
class LogRelay {
 public:
  // INVALID_ARGUMENT: version 0, or an executor twice.
  static absl::StatusOr<LogRelay> Make(uint64_t version, std::vector<LogRelayChild> children,
                                       LogRelayLimits limits = {});

  // The child has a link, perhaps again, and says what has come to it, from this parent or others.
  // FAILED_PRECONDITION: it lacks entries that are concluded, so nobody has them any more.
  // INVALID_ARGUMENT: no such child; it has less than it said before in this version, or was given
  // up. Then nothing has changed.
  absl::Status Attach(uint32_t child, LogNumber applied);
  void Detach(uint32_t child) { outboxes_[child].Cut(); }
  // Forgets the child's entries. It gets no others in this version, and those that concern it do
  // not end.
  void GiveUp(uint32_t child);

  // A frame from the parent. INVALID_ARGUMENT: of another version, or with an entry that concerns
  // nobody here. FAILED_PRECONDITION: an entry is said to be concluded that has not ended here.
  // Then the link to the parent is over.
  absl::Status TakeFrame(const LogFrame& frame);
  // A report from a child. INVALID_ARGUMENT: as LogHead::Take. Then nothing has changed, and the
  // child's link is over.
  absl::Status TakeReport(uint32_t child, const LogReport& report);

  // A child's outbox says whether a frame should leave. Next returns it.
  const LogOutbox& outbox(uint32_t child) const { return outboxes_[child]; }
  std::string Next(uint32_t child) { return outboxes_[child].Next(limits_.frame_bytes); }
  bool Crowded(uint32_t child) const { return outboxes_[child].Crowded(limits_.child_bytes); }

  // What it says to its parent on a new link: that every entry up to this number has come to it.
  // The next reports name again what has ended and is not known to be concluded.
  LogNumber Ask();
  // Whether a report tells something new. News: ends; otherwise what has come. Urgent: somebody
  // waits for an end (kEndsLater).
  bool HasNews() const { return follower_.more(); }
  bool Urgent() const { return follower_.Urgent(); }
  // The next report to the parent. If HasNews still, another one must follow at once.
  LogReport Next();

  uint64_t version() const { return version_; }
  int children() const { return static_cast<int>(outboxes_.size()); }
  // Bytes of bodies that it keeps, counted for each child.
  size_t bytes() const;
  // Entries that are not known to be concluded.
  size_t open() const { return open_.size(); }
  // INTERNAL. For tests.
  absl::Status CheckInvariants() const;

 private:
  explicit LogRelay(LogRelayLimits limits) : limits_(limits) {}
  absl::Status TakeEntry(const LogFrame::Received& entry);
  void Conclude(const LogRange& range);
  // All numbers that are known to be concluded, or to concern nobody here.
  LogRangeSet Concluded() const;
  void Settle();

  LogRelayLimits limits_;
  uint64_t version_ = 0;
  LogTree tree_;
  LogFollower follower_{std::nullopt};
  LogMerger merger_;
  std::vector<LogOutbox> outboxes_;  // by child
  std::vector<LogNumber> floors_;    // by child
  IndexSet given_up_;
  struct Open {
    IndexSet concerns;
    bool awaited = false;  // somebody waits for its end
  };
  // Entries that came and are not known to be concluded. They are what follower_ has as running
  // (merger_ waits for them) or kept.
  absl::btree_map<LogNumber, Open> open_;
  // What the parent has said to be concluded, above what has come.
  LogRangeSet concluded_ahead_;
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_RELAY_H_
