// SPDX-License-Identifier: Apache-2.0
// The controller's end of an island's log: the log, the tree, an outbox for each child and the
// merger of their reports, put together so that they agree.
#ifndef FAIRWAY_LOG_HEAD_H_
#define FAIRWAY_LOG_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "log/codec.h"
#include "log/index_set.h"
#include "log/island_log.h"
#include "log/merger.h"
#include "log/outbox.h"
#include "log/tree.h"

namespace fairway {

struct LogLimits {
  size_t session_bytes = 1 << 20;  // of a session, not concluded
  size_t child_bytes = 32 << 20;   // of a child, not applied; an entry passes when there is nothing
  size_t frame_bytes = 256 << 10;  // of a frame, unless one entry alone is larger
};

// Loop-confined. One per island. Children are numbers from 0 on, of the tree's present version.
class LogHead {
 public:
  explicit LogHead(LogLimits limits = {}) : limits_(limits), log_(limits.session_bytes) {}

  // As LogSets::Define.
  absl::Status DefineSet(uint32_t index, IndexSet members);

  // R3: a new version of the tree, with these children and the executors that live below them. An
  // executor whose link is cut lives until it is declared lost. No link is attached: Attach those
  // that stand, too. What concerns nobody any more is concluded. Costs what is not concluded times
  // the children that it concerns.
  // INVALID_ARGUMENT: an executor twice, or one that joins beyond the newest entry. Then nothing
  // has changed.
  absl::Status Begin(std::vector<LogChild> children);

  // RESOURCE_EXHAUSTED: such an entry has to wait, for its session or for a child; who and how
  // much. FREE, END and the like (kNeverWaits) never do.
  absl::Status Room(SessionId session, LogSetId set, uint8_t flags, size_t body_bytes);

  // R1. Its number. INVALID_ARGUMENT as CheckEntry (log/entry.h), RESOURCE_EXHAUSTED as Room,
  // FAILED_PRECONDITION: it concerns no executor that lives. Then nothing has changed.
  absl::StatusOr<LogNumber> Append(NewLogEntry entry);

  // The child has a link (again), and says what has come to it: LogOutbox::Replay. For a link that
  // stands over a new version: applied() and sent() of its outbox before Begin.
  absl::Status Attach(uint32_t child, LogNumber applied, LogNumber sent = 0);
  void Detach(uint32_t child);

  // INVALID_ARGUMENT as LogMerger::Take and LogOutbox::CheckApplied: the child lies, and its link
  // should end. Then nothing has changed.
  absl::Status Take(uint32_t child, const LogReport& report);

  // Of a child: whether a frame should leave, and the frame (LogOutbox::Next).
  const LogOutbox& outbox(uint32_t child) const { return outboxes_[child]; }
  std::string Next(uint32_t child) { return outboxes_[child].Next(limits_.frame_bytes); }

  // R2: what was concluded since the last call, each once.
  std::vector<LogNumber> TakeConcluded();

  const IslandLog& log() const { return log_; }
  uint64_t version() const { return tree_.version(); }
  int children() const { return static_cast<int>(outboxes_.size()); }
  absl::Status CheckInvariants() const;

 private:
  absl::Status Room(const IndexSet& concerned, SessionId session, uint8_t flags,
                    size_t body_bytes) const;
  // Concludes what the merger knows to have ended.
  void Settle();

  const LogLimits limits_;
  LogSets sets_;
  LogTree tree_;
  IslandLog log_;
  LogMerger merger_;
  std::vector<LogOutbox> outboxes_;  // by child
  std::vector<LogNumber> concluded_;
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_HEAD_H_
