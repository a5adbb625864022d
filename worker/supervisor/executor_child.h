// SPDX-License-Identifier: Apache-2.0
// An executor process, as its supervisor sees it: starts it, watches it, passes its log on, and
// explains its end.
#ifndef FAIRWAY_WORKER_SUPERVISOR_EXECUTOR_CHILD_H_
#define FAIRWAY_WORKER_SUPERVISOR_EXECUTOR_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "async/event_loop.h"
#include "base/recent_lines.h"
#include "base/status.h"
#include "fairway/v1/compiler.pb.h"
#include "worker/supervisor/process_end.h"

namespace fairway {

// Owned by Supervisor. Loop-confined. The child has its end of a socket at descriptor kLifeFd: it
// must end at end of file, and it writes a v1::ExecutorStarted (compile_wire.h) when it has
// devices, and for each registration.
class ExecutorChild {
 public:
  static constexpr int kLifeFd = 3;
  static constexpr size_t kLastLines = 50;

  // Starts `argv` with the environment `env` ("NAME=value"). `on_end` comes once, in the loop, when
  // the process has been reaped and its log read; `on_start` comes with each ExecutorStarted.
  // `lines` gets the lines of its log, unless it is nullptr.
  // UNAVAILABLE: it cannot be started.
  static absl::StatusOr<std::unique_ptr<ExecutorChild>> Spawn(
      EventLoop& loop, const std::vector<std::string>& argv, const std::vector<std::string>& env,
      std::shared_ptr<RecentLines> lines, std::function<void(const v1::ExecutorStarted&)> on_start,
      std::function<void(ProcessEnd)> on_end);
  // Kills the process if it still runs; then `on_end` does not come.
  ~ExecutorChild();

  pid_t pid() const;
  uint64_t incarnation() const;
  // Does nothing if the process has ended.
  void Signal(int number);
  // Sends a byte to the process's life socket, where its ExitWithParent gets it. Never blocks: what
  // a stopped process has not taken may fill the socket, and then the byte is dropped.
  void Tell(char byte);

 private:
  struct State;
  explicit ExecutorChild(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SUPERVISOR_EXECUTOR_CHILD_H_
