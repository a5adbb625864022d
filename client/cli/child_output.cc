// SPDX-License-Identifier: Apache-2.0
#include "client/cli/child_output.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fairway {
namespace {

using std::chrono::steady_clock;

// Reads until the end of the pipe. False: the deadline has passed.
bool ReadAll(int fd, steady_clock::time_point deadline, size_t most_bytes, ChildOutput& out) {
  for (char bytes[4096];;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    pollfd waited{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&waited, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::read(fd, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    const size_t kept = std::min(static_cast<size_t>(got), most_bytes - out.output.size());
    out.output.append(bytes, kept);
    out.cut = out.cut || kept < static_cast<size_t>(got);
  }
}

}  // namespace

absl::StatusOr<ChildOutput> RunForOutput(const std::vector<std::string>& command,
                                         std::chrono::milliseconds limit, Variables variables,
                                         size_t most_bytes, const std::optional<ChildUser>& user) {
  const auto deadline = steady_clock::now() + limit;
  FAIRWAY_ASSIGN_OR_RETURN(auto pipe, MakePipe());
  const ChildSpec spec{
      .command = command,
      .log_file = {},
      .inherited = {{pipe.second.get(), STDOUT_FILENO}, {pipe.second.get(), STDERR_FILENO}},
      .without_variables = variables == Variables::kAll ? "" : "FAIRWAY_",
      .user = user};
  FAIRWAY_ASSIGN_OR_RETURN(const pid_t pid, StartChild(spec));
  pipe.second.Reset();
  ChildOutput out;
  out.late = !ReadAll(pipe.first.get(), deadline, most_bytes, out);
  // One that has closed its output has a moment to end by itself. It is reaped behind the kill, so
  // that its number is nobody else's by then.
  const auto end = std::max(deadline, steady_clock::now()) + std::chrono::milliseconds(100);
  for (siginfo_t ended{}; !out.late; ::poll(nullptr, 0, 1)) {
    if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid == pid)
      break;
    out.late = steady_clock::now() > end;
  }
  ::kill(-pid, SIGKILL);  // with what it started
  ::waitpid(pid, &out.wait_status, 0);
  return out;
}

}  // namespace fairway
