// SPDX-License-Identifier: Apache-2.0
// The executor's end of its island's log: takes commands out of frames, and reports which entries
// it has taken (docs/design/0062-the-log.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_COMMAND_INBOX_H_
#define FAIRWAY_WORKER_EXECUTOR_COMMAND_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "graph/plan.h"
#include "log/follower.h"

namespace fairway {

// Lives as long as one registration. Loop-confined.
class CommandInbox {
 public:
  // `self`: the id that the controller gave this executor (Registered.executor).
  explicit CommandInbox(ExecutorId self) : follower_(self.value) {}

  // Returns the new commands of a frame. The caller must carry them out at once, in this order.
  // They count as ended, because a Report tells the ends of their work (graph/plan.h); but a
  // LaunchAll ends with Ended. INVALID_ARGUMENT, FAILED_PRECONDITION: the frame, or a command in
  // it, is bad. The registration is over then.
  absl::StatusOr<std::vector<Command>> Take(std::string_view frame);

  // These entries, which LaunchAlls of Take name, have ended. FAILED_PRECONDITION: one of them does
  // not run here.
  absl::Status Ended(const std::vector<uint64_t>& entries);

  // The message that leaves together with a report of the log. A report of the log leaves alone
  // only when the controller may wait for it before it sends more.
  enum class With : uint8_t { kNothing, kReport, kHeartbeat };
  // A report of the log; empty: none should leave now.
  std::string Report(With with);

  // There is a new connection: the next report names again all that is not concluded.
  void Resend();
  // What the controller is told on a new connection.
  uint64_t version() const { return follower_.version(); }
  LogNumber applied() const { return follower_.applied(); }

 private:
  LogFollower follower_;
  size_t unreported_ = 0;  // bytes of frames since the last report
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_COMMAND_INBOX_H_
