// SPDX-License-Identifier: Apache-2.0
// What a parent still has to give to one child, in order: entries and news of concluded ones, as
// frames.
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

// Loop-confined. Of one child in one version of the tree (R3): a new version makes it anew.
//
//   made -> Replay -> connected -> Cut -> Replay ...
class LogOutbox {
 public:
  explicit LogOutbox(uint64_t version) : version_(version) {}

  // Numbers ascending, only entries that concern the child.
  void Append(EntryRef entry);
  // An entry that concerns the child is concluded (R2).
  void Conclude(LogNumber number);

  // The child's link is there, or is there again. The child says up to where entries have come to
  // it: what is above is sent again, in order, and so is all that is `concluded`. A frame is due at
  // once, since the first one of a version tells the child of it. `sent`: what may be on its way to
  // the child from before this version, on a link that stands; it may come, or be lost with the
  // link, so it is sent again, too.
  // INVALID_ARGUMENT: `applied` is below what it said before in this version, or above what it was
  // sent (in a new version: above `last`, the newest entry). Then nothing has changed.
  absl::Status Replay(LogNumber applied, LogNumber sent, LogNumber last,
                      const LogRangeSet& concluded);
  // The link is gone. Entries gather until Replay.
  void Cut() { connected_ = false; }

  // The child reports that entries up to this number have come to it; they need no replay.
  // CheckApplied: INVALID_ARGUMENT: as for Replay.
  absl::Status CheckApplied(LogNumber applied) const;
  void Applied(LogNumber applied);

  // Whether a frame should leave at once, or could. What may linger waits for what may not; its
  // bytes are unsent_bytes().
  bool Urgent() const { return connected_ && (due_ || urgent_ > 0); }
  bool HasNews() const {
    return connected_ && (due_ || unsent_ < entries_.size() || !told_.empty());
  }
  // Only with HasNews. An encoded frame of at most `most` bytes, or more with one entry alone.
  std::string Next(size_t most);

  bool connected() const { return connected_; }
  // The highest number that was sent in this version, or that the child had before it.
  LogNumber sent() const { return sent_; }
  LogNumber applied() const { return applied_; }
  // Of entries that have not come to the child, as far as it has said: for back-pressure.
  size_t bytes() const { return bytes_; }
  size_t unsent_bytes() const { return unsent_bytes_; }

  // INTERNAL: counts that do not agree with the entries. For tests.
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
  size_t urgent_ = 0;             // of those
  size_t unsent_bytes_ = 0;
  size_t bytes_ = 0;
  LogNumber sent_ = 0;
  LogNumber applied_ = 0;
  LogRangeSet told_;  // concluded, and to be told with the next frames
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_OUTBOX_H_
