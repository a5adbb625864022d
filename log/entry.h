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

#include "base/ids.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "log/ranges.h"
#include "transport/frame.h"

namespace fairway {

// Identifies an executor and its successors in their island's log. It is small, because sets have a
// bit for each index (log/index_set.h): the controller uses the number of the ExecutorId.
using ExecutorIndex = uint32_t;

// The executors that an entry concerns: one of them, or a set that was defined (log/tree.h).
class LogSetId {
 public:
  LogSetId() = default;  // of executor 0 alone
  static LogSetId One(ExecutorIndex executor) { return LogSetId(uint64_t{executor} << 1); }
  static LogSetId Defined(uint32_t index) { return LogSetId(uint64_t{index} << 1 | 1); }
  // From its form in a header. INVALID_ARGUMENT: more than 33 bits.
  static absl::StatusOr<LogSetId> FromWire(uint64_t value);

  bool is_one() const { return (value_ & 1) == 0; }
  uint32_t index() const { return static_cast<uint32_t>(value_ >> 1); }  // of executor or set
  uint64_t wire() const { return value_; }
  friend auto operator<=>(LogSetId, LogSetId) = default;

 private:
  explicit LogSetId(uint64_t value) : value_(value) {}
  uint64_t value_ = 0;
};

// What the body is. Only kCommand has a body yet; the other numbers are reserved.
enum class EntryKind : uint8_t {
  kCommand = 1,  // an encoded v1.Command for one executor
  kRoster = 2,   // executors: index, incarnation, devices
  kPlace = 3,    // devices, by an index; its header defines the set of their executors
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
  kAllEntryFlags = 7
};

inline constexpr size_t kMaxEntryBytes = 256 << 10;  // of a body
inline constexpr size_t kMaxLogFrameBytes = kMaxFrameBytes;
inline constexpr size_t kMaxBulkBytes = kMaxLogFrameBytes - (1 << 20);
// Most bytes of a header: 10 for number, 5 for set, 1 for kind and flags, 5 for length.
inline constexpr size_t kMaxEntryHeaderBytes = 21;

struct EntryHeader {
  LogNumber number = 0;
  LogSetId set;
  EntryKind kind = EntryKind::kCommand;
  uint8_t flags = 0;
  friend bool operator==(const EntryHeader&, const EntryHeader&) = default;
};

// INVALID_ARGUMENT: unknown flags, a COMMAND for a set, another kind in bulk, or a body too long.
absl::Status CheckEntry(EntryKind kind, LogSetId set, uint8_t flags, size_t body_bytes);

// An entry as the controller keeps it until it is concluded (R2). Immutable: the log and the
// outboxes of all children share it, so its body is encoded once.
struct LogEntry {
  EntryHeader header;
  SessionId session;  // who is charged for it; 0: nobody
  std::string body;
  SharedTail tail;      // of the body, which is not copied
  MemoryCharge charge;  // ends with the entry

  size_t body_bytes() const { return body.size() + tail.size(); }
  size_t bytes() const { return kMaxEntryHeaderBytes + body_bytes(); }  // as the limits count
};
using EntryRef = std::shared_ptr<const LogEntry>;

}  // namespace fairway

#endif  // FAIRWAY_LOG_ENTRY_H_
