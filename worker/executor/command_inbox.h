// SPDX-License-Identifier: Apache-2.0
// The executor's end of its island's log while entries are old commands: commands come out of
// frames, and reports of the log say which have been taken.
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

// Of one registration. Loop-confined.
class CommandInbox {
 public:
  // `self`: as the controller has registered it.
  explicit CommandInbox(ExecutorId self) : follower_(self.value) {}

  // The commands of a frame that are new, to be carried out in this order, at once: they count as
  // ended, since what they ask for has reports of its own (graph/plan.h).
  // An error: the frame or a command in it is bad, and the registration is over.
  absl::StatusOr<std::vector<Command>> Take(std::string_view frame);

  // What a report of the log would leave with. Nobody waits for one, so it has a frame of its own
  // only when the controller might wait for it to send more.
  enum class With : uint8_t { kNothing, kReport, kHeartbeat };
  // A report of the log; empty: not now.
  std::string Report(With with);

 private:
  LogFollower follower_;
  size_t unreported_ = 0;  // bytes of frames since the last report
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_COMMAND_INBOX_H_
