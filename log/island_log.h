// SPDX-License-Identifier: Apache-2.0
// What the controller has decided for one island, in order, and of it what is not concluded yet.
#ifndef FAIRWAY_LOG_ISLAND_LOG_H_
#define FAIRWAY_LOG_ISLAND_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>

#include "base/ids.h"
#include "base/status.h"
#include "log/entry.h"
#include "log/ranges.h"

namespace fairway {

struct NewLogEntry {
  SessionId session;  // who is charged; 0: nobody, and no limit
  LogSetId set;
  EntryKind kind = EntryKind::kCommand;
  uint8_t flags = 0;  // EntryFlags
  std::string body;   // encoded
};

// Loop-confined: no thread, clock or I/O. One per island.
class IslandLog {
 public:
  // `session_bytes`: what a session may have that is not concluded. One entry may go beyond it when
  // the session has nothing else.
  explicit IslandLog(size_t session_bytes = 1 << 20) : session_bytes_(session_bytes) {}

  // RESOURCE_EXHAUSTED: the session has no room for such an entry now. Entries with kNeverWaits,
  // and those that nobody is charged for, have room always.
  absl::Status Room(SessionId session, uint8_t flags, size_t body_bytes) const;

  // R1: only what ends by itself, and nothing is taken back. The entry has the next number.
  // INVALID_ARGUMENT as CheckEntry (log/entry.h), RESOURCE_EXHAUSTED as Room; then nothing has
  // changed.
  absl::StatusOr<EntryRef> Append(NewLogEntry entry);

  // R2: every executor that the entry concerns has ended it. It is the caller's now, and its bytes
  // count no more. FAILED_PRECONDITION: there is no such entry, or it is concluded already.
  absl::StatusOr<EntryRef> Conclude(LogNumber number);

  // nullptr: never appended, or concluded.
  EntryRef Find(LogNumber number) const;
  // What is not concluded, by number.
  const absl::btree_map<LogNumber, EntryRef>& open() const { return open_; }
  const LogRangeSet& concluded() const { return concluded_; }
  LogNumber last() const { return last_; }  // the newest number
  // Of what is not concluded, as LogEntry::bytes counts.
  size_t bytes() const { return bytes_; }
  size_t bytes(SessionId session) const;

  // INTERNAL: counts that do not agree with the entries. For tests.
  absl::Status CheckInvariants() const;

 private:
  const size_t session_bytes_;
  LogNumber last_ = 0;
  absl::btree_map<LogNumber, EntryRef> open_;
  LogRangeSet concluded_;  // with open_: all numbers up to last_
  size_t bytes_ = 0;
  absl::flat_hash_map<SessionId, size_t> session_bytes_used_;  // of those that have any
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_ISLAND_LOG_H_
