// SPDX-License-Identifier: Apache-2.0
// The controller's end of an island's log: keeps the log, the tree, an outbox for each child and
// the merger of the children's reports consistent.
#ifndef FAIRWAY_LOG_HEAD_H_
#define FAIRWAY_LOG_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/status.h"
#include "log/codec.h"
#include "log/index_set.h"
#include "log/island_log.h"
#include "log/merger.h"
#include "log/outbox.h"
#include "log/tree.h"

namespace fairway {

struct LogLimits {
  size_t session_bytes = 1 << 20;  // of a session, not concluded; one entry alone may exceed it
  size_t child_bytes = 32 << 20;   // of a child, not applied; one entry alone may exceed it
  size_t frame_bytes = 64 << 10;   // of a frame, unless one entry alone is larger
  bool floors = false;             // whether floor() and open() are wanted
};

// Loop-confined. One per island. Each version of the tree numbers its children from 0.
class LogHead {
 public:
  explicit LogHead(LogLimits limits = {}) : limits_(limits), log_(limits.session_bytes) {}

  // R3: begins a version of the tree, with these children and the executors that live below them.
  // An executor whose link is cut lives until it is declared lost. Detaches all links: Attach those
  // that still stand, too. Concludes entries that concern nobody any more. Costs one step for each
  // open entry and each child that it concerns. INVALID_ARGUMENT: an executor appears twice, or
  // joins beyond the newest entry. Then nothing has changed.
  absl::Status Begin(std::vector<LogChild> children);

  // Whether such an entry may be appended now. RESOURCE_EXHAUSTED: it must wait, for its session or
  // for a child; the text says how much. Entries with kNeverWaits never wait.
  absl::Status Room(SessionId session, LogSpan span, uint8_t flags, size_t body_bytes);

  // R1: appends an entry and returns its number. INVALID_ARGUMENT: as CheckEntry (log/entry.h).
  // RESOURCE_EXHAUSTED: as Room. FAILED_PRECONDITION: no executor lives that it concerns. On error
  // nothing has changed.
  absl::StatusOr<LogNumber> Append(NewLogEntry&& entry);

  // The child has a link, perhaps again, and says what has come to it (LogOutbox::Replay). For a
  // link that outlives a version: applied() and sent() of its outbox before Begin.
  absl::Status Attach(uint32_t child, LogNumber applied, LogNumber sent = 0);
  // As LogOutbox::Keep. `before`: standing() of its outbox before Begin.
  absl::Status Keep(uint32_t child, LogOutbox::Standing before);
  void Detach(uint32_t child);

  // INVALID_ARGUMENT: as LogMerger::Take and LogOutbox::CheckApplied. The child lies, and its link
  // should end. Then nothing has changed.
  absl::Status Take(uint32_t child, const LogReport& report);

  // A child's outbox says whether a frame should leave. Next returns it (LogOutbox::Next).
  const LogOutbox& outbox(uint32_t child) const { return outboxes_[child]; }
  std::string Next(uint32_t child, SharedTail* tail = nullptr) {
    return outboxes_[child].Next(limits_.frame_bytes, tail);
  }

  // The highest concluded number that concerns an executor that lives; 0: none. It cannot go on
  // behind it, because nobody has those entries any more. Requires LogLimits::floors.
  LogNumber floor(ExecutorIndex executor) const;

  struct Open {
    size_t entries = 0, bytes = 0;
    bool operator==(const Open&) const = default;
  };
  // The open entries that concern this executor alone, and the bytes of their bodies. Requires
  // LogLimits::floors.
  Open open(ExecutorIndex executor) const;

  // R2: the entries concluded since the last call, each once.
  std::vector<LogNumber> TakeConcluded();

  // The nodes that waited for entries that were concluded since the last call.
  std::vector<NodeId> TakeEnded() { return std::exchange(ended_, {}); }

  // Calls `f` with each child that such an entry concerns.
  template <typename F>
  void ForEachConcerned(LogSpan span, F f) {
    tree_.Concerned(span, log_.last()).ForEach(f);
  }

  const IslandLog& log() const { return log_; }
  uint64_t version() const { return tree_.version(); }
  // Of LogMerger. None: every entry that is not concluded has been appended.
  size_t early_ranges() const { return merger_.early_ranges(); }
  int children() const { return static_cast<int>(outboxes_.size()); }
  absl::Status CheckInvariants() const;

 private:
  absl::Status Room(const IndexSet& concerned, SessionId session, uint8_t flags,
                    size_t body_bytes) const;
  // Concludes the entries that the merger knows to have ended.
  void Settle();
  void Raise(ExecutorIndex executor, LogNumber number);
  void RaiseFloor(LogSpan span, LogNumber number);
  void CountOpen(const LogEntry& entry, bool more);

  // The highest concluded number of a span of several.
  struct SpanFloor {
    LogSpan span;
    LogNumber number = 0;
  };
  static constexpr size_t kSpanFloors = 16;

  const LogLimits limits_;
  LogTree tree_;
  IslandLog log_;
  LogMerger merger_;
  std::vector<LogOutbox> outboxes_;  // by child
  std::vector<LogNumber> concluded_;
  std::vector<NodeId> ended_;
  // An executor's floor is the highest of its own here and of those of the spans that it is in.
  absl::flat_hash_map<ExecutorIndex, LogNumber> floors_;
  std::vector<SpanFloor> span_floors_;             // at most kSpanFloors
  absl::flat_hash_map<ExecutorIndex, Open> open_;  // of executors that have any
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_HEAD_H_
