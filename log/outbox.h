// SPDX-License-Identifier: Apache-2.0
// Makes the frames from a parent to one child: entries in order, and ranges of concluded ones.
#ifndef FAIRWAY_LOG_OUTBOX_H_
#define FAIRWAY_LOG_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "base/status.h"
#include "log/codec.h"
#include "log/entry.h"
#include "log/ranges.h"

namespace fairway {

// Loop-confined. One for each child in each version of the tree (R3).
//
//   made -> Replay or Keep -> connected -> Cut -> Replay ...
class LogOutbox {
 public:
  explicit LogOutbox(uint64_t version) : version_(version) {}

  // Adds an entry that concerns the child. Numbers must ascend.
  void Append(EntryRef entry);
  // An entry that concerns the child is concluded (R2).
  void Conclude(LogNumber number);
  // As do all of these, of which some may not concern it.
  void Conclude(LogRange range);

  // The child has a link, perhaps again. Entries up to `applied` have come to it. Sends all later
  // ones again, in order, and all of `concluded`. A frame is due at once, because the first one of
  // a version announces it. `sent`: if the link outlives a version, the highest number that was
  // sent on it before. Entries up to it may come or be lost with the link, so they are sent again,
  // too. INVALID_ARGUMENT: `applied` is below what the child said before in this version, or above
  // what it was sent. First call in a version: it or `sent` is above `last`, the newest entry. Then
  // nothing has changed.
  absl::Status Replay(LogNumber applied, LogNumber sent, LogNumber last,
                      const LogRangeSet& concluded);
  // What a child that is one executor has been sent on a link that stands.
  struct Standing {
    LogNumber applied = 0;
    LogNumber sent = 0;
    LogNumber here = 0;  // sent on this very link; less than `sent` while a replay is under way
    LogRangeSet untold;  // concluded, and not told yet
  };
  // The child is one executor, and its link outlives a version, or belongs to a new registration
  // (`before` is empty then). What was sent on it comes before what is sent now, or the
  // registration ends, so nothing is sent twice. INVALID_ARGUMENT: `before` is beyond `last`, the
  // newest entry.
  absl::Status Keep(Standing before, LogNumber last);
  Standing standing() const { return {applied_, sent_, here_, told_}; }
  // The link is gone. Entries gather until Replay.
  void Cut() { connected_ = false; }

  // Entries up to this number have come to the child and need no replay. CheckApplied:
  // INVALID_ARGUMENT as for Replay.
  absl::Status CheckApplied(LogNumber applied) const;
  void Applied(LogNumber applied);

  // Urgent: a frame should leave at once. HasNews: a frame could leave. Entries that may linger are
  // not urgent; unsent_bytes() counts them, too.
  bool Urgent() const { return connected_ && (due_ || urgent_ > 0); }
  bool HasNews() const {
    return connected_ && (due_ || unsent_ < entries_.size() || !told_.empty());
  }
  // Encodes a frame of at most `most` bytes, or with one larger entry alone. Requires HasNews.
  // `tail` gets the end of the frame, if an entry shares it; nullptr: it is copied into the frame.
  std::string Next(size_t most, SharedTail* tail = nullptr);

  bool connected() const { return connected_; }
  // The highest number that was sent in this version, or that the child had before it.
  LogNumber sent() const { return sent_; }
  LogNumber applied() const { return applied_; }
  // Entries that the child has not reported to have come, and their bytes. For back-pressure.
  size_t entries() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }
  size_t unsent_bytes() const { return unsent_bytes_; }
  // Whether bytes() is above the limit. One entry alone may exceed it, and so may what there was
  // when the child's first link came.
  bool Crowded(size_t limit) const {
    return bytes_ > first_bytes_ && bytes_ - entries_.front()->bytes() > limit;
  }

  // INTERNAL: the counts disagree with the entries. For tests.
  absl::Status CheckInvariants() const;

 private:
  static bool IsUrgent(const LogEntry& entry) { return (entry.header.flags & kMayLinger) == 0; }
  void CountUnsent(const LogEntry& entry, bool more);

  uint64_t version_;
  bool connected_ = false;
  bool replayed_ = false;  // at least once
  bool due_ = false;
  std::deque<EntryRef> entries_;  // not applied, as far as we know
  size_t unsent_ = 0;             // entries_[unsent_] is the first that was not sent on this link
  size_t urgent_ = 0;             // unsent ones that may not linger
  size_t unsent_bytes_ = 0;
  size_t bytes_ = 0;
  size_t first_bytes_ = 0;  // bytes_ at the first Replay
  LogNumber sent_ = 0;
  LogNumber here_ = 0;  // sent on this link, or applied before it
  LogNumber applied_ = 0;
  LogRangeSet told_;  // concluded, to be named in the next frames
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_OUTBOX_H_
