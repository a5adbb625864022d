// SPDX-License-Identifier: Apache-2.0
// The log of one island: numbers its entries, and keeps those that are not concluded.
#ifndef FAIRWAY_LOG_ISLAND_LOG_H_
#define FAIRWAY_LOG_ISLAND_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>

#include "base/ids.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "log/entry.h"
#include "log/ranges.h"

namespace fairway {

struct NewLogEntry {
  SessionId session;  // who is charged; 0: nobody, and no limit
  LogSpan span;
  EntryKind kind = EntryKind::kCommand;
  uint8_t flags = 0;    // EntryFlags
  std::string body;     // encoded
  SharedTail tail;      // of the body
  MemoryCharge charge;  // what is charged for the entry until nobody has it any more
  NodeId awaited = {};  // kEndsLater: the node that waits for its end

  size_t body_bytes() const { return body.size() + tail.size(); }
};

// Loop-confined: no thread, clock or I/O. One per island.
class IslandLog {
 public:
  // `session_bytes`: limit of what a session has that is not concluded. One entry alone may exceed
  // it.
  explicit IslandLog(size_t session_bytes = 1 << 20) : session_bytes_(session_bytes) {}

  // RESOURCE_EXHAUSTED: the session has no room for such an entry now. Entries with kNeverWaits,
  // and those that nobody is charged for, always have room.
  absl::Status Room(SessionId session, uint8_t flags, size_t body_bytes) const;

  // R1: append only what ends by itself; nothing is taken back. The entry gets the next number.
  // INVALID_ARGUMENT: as CheckEntry (log/entry.h). RESOURCE_EXHAUSTED: as Room. Then nothing has
  // changed.
  absl::StatusOr<EntryRef> Append(NewLogEntry&& entry);

  // R2: every executor that the entry concerns has ended it. Returns the entry and stops counting
  // its bytes. FAILED_PRECONDITION: there is no such entry, or it is concluded already.
  absl::StatusOr<EntryRef> Conclude(LogNumber number);

  // nullptr: never appended, or concluded.
  EntryRef Find(LogNumber number) const;
  // The entries that are not concluded, by number.
  const absl::btree_map<LogNumber, EntryRef>& open() const { return open_; }
  const LogRangeSet& concluded() const { return concluded_; }
  LogNumber last() const { return last_; }  // the newest number
  // Bytes of open entries, as LogEntry::bytes counts.
  size_t bytes() const { return bytes_; }
  size_t bytes(SessionId session) const;
  // Of these, the bytes that somebody is charged for. Walks the entries. For tests.
  int64_t charged_bytes() const;

  // INTERNAL: the counts disagree with the entries. For tests.
  absl::Status CheckInvariants() const;

 private:
  const size_t session_bytes_;
  LogNumber last_ = 0;
  absl::btree_map<LogNumber, EntryRef> open_;
  LogRangeSet concluded_;  // with open_: all numbers up to last_
  size_t bytes_ = 0;
  absl::flat_hash_map<SessionId, size_t> session_bytes_used_;  // only sessions that have any
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_ISLAND_LOG_H_
