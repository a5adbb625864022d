// SPDX-License-Identifier: Apache-2.0
// The entries of an island's log (docs/design/0062-the-log.md). Three rules carry it:
//
//   R1 Append only what ends by itself. An entry enters a log when its memory is reserved, its code
//      is loaded on all its executors, and every shard that it reads is ready or is made by an
//      entry that is in a log already. Nothing in a log is taken back.
//   R2 One truth about ends. An entry is concluded when the controller knows that every executor
//      that it concerns has ended it, and has the results. Until then the controller keeps its
//      bytes, and executors keep its results.
//   R3 A changed tree is a new version. The controller replays what is not concluded, everybody
//      reports anew, and reports of older versions count for nothing.
#ifndef FAIRWAY_LOG_ENTRY_H_
#define FAIRWAY_LOG_ENTRY_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "log/ranges.h"
#include "transport/frame.h"

namespace fairway {

// Identifies an executor and its successors in their island's log: the number of the ExecutorId.
using ExecutorIndex = uint32_t;

// The executors that an entry concerns: those of the island from `first` to `last` that lived in
// the version of the tree in which it was appended. Whoever joins later is concerned by nothing
// old.
struct LogSpan {
  ExecutorIndex first = 0;
  ExecutorIndex last = 0;  // invariant: first <= last

  static LogSpan One(ExecutorIndex executor) { return {executor, executor}; }
  bool is_one() const { return first == last; }
  bool Contains(ExecutorIndex executor) const { return first <= executor && executor <= last; }
  friend auto operator<=>(const LogSpan&, const LogSpan&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const LogSpan& span) {
    return H::combine(std::move(h), span.first, span.last);
  }
};

// What the body is. Only kCommand has a body yet; the other numbers are reserved.
enum class EntryKind : uint8_t {
  kCommand = 1,  // an encoded v1.Command, the same for all
  kRoster = 2,   // executors: index, incarnation, devices
  kPlace = 3,    // devices, by an index
  kCode = 4,     // compiled code, by an index
  kRun = 5,      // a launch
  kPut = 6,      // a small upload
  kMove = 7,     // a transfer
  kFree = 8,     // runs of groups
  kEnd = 9,      // stops a move, abandons a run
  kContinue = 10,
  kDrop = 11,  // a code or placement
};
inline constexpr int kMaxEntryKind = 11;
std::string_view Name(EntryKind kind);

// Bits.
enum EntryFlags : uint8_t {
  kBulkEntry = 1,   // a COMMAND longer than other entries may be: up to kMaxBulkBytes
  kNeverWaits = 2,  // appended above all limits, as what makes room must be
  kMayLinger = 4,   // lets the executor begin nothing: needs no frame of its own
  kEndsLater = 8,   // ends when its work has ended, and somebody waits for that; else when it comes
  kAllEntryFlags = 15
};

inline constexpr size_t kMaxEntryBytes = 256 << 10;  // of a body
inline constexpr size_t kMaxLogFrameBytes = kMaxFrameBytes;
inline constexpr size_t kMaxBulkBytes = kMaxLogFrameBytes - (1 << 20);
// Most bytes of a header: 10 for number, 10 for span, 2 for kind and flags, 5 for length.
inline constexpr size_t kMaxEntryHeaderBytes = 27;

struct EntryHeader {
  LogNumber number = 0;
  LogSpan span;
  EntryKind kind = EntryKind::kCommand;
  uint8_t flags = 0;
  friend bool operator==(const EntryHeader&, const EntryHeader&) = default;
};

// INVALID_ARGUMENT: unknown flags, another kind than COMMAND in bulk, or a body too long.
absl::Status CheckEntry(EntryKind kind, uint8_t flags, size_t body_bytes);

// An entry as the controller keeps it until it is concluded (R2). Immutable: the log and the
// outboxes of all children share it, so its body is encoded once.
struct LogEntry {
  EntryHeader header;
  SessionId session;  // who is charged for it; 0: nobody
  std::string body;
  SharedTail tail;      // of the body, which is not copied
  MemoryCharge charge;  // ends with the entry
  NodeId awaited;       // kEndsLater: the node that waits for its end

  size_t body_bytes() const { return body.size() + tail.size(); }
  size_t bytes() const { return kMaxEntryHeaderBytes + body_bytes(); }  // as the limits count
};
using EntryRef = std::shared_ptr<const LogEntry>;

}  // namespace fairway

#endif  // FAIRWAY_LOG_ENTRY_H_
