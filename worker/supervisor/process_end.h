// SPDX-License-Identifier: Apache-2.0
// How a process of a worker ended, and what that means.
#ifndef FAIRWAY_WORKER_SUPERVISOR_PROCESS_END_H_
#define FAIRWAY_WORKER_SUPERVISOR_PROCESS_END_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fairway {

// How a process ended.
struct ProcessEnd {
  pid_t pid = 0;
  int signal = 0;  // at most one of the two is not 0; both 0: exited with 0
  int exit_code = 0;
  uint64_t incarnation = 0;             // of its latest registration; 0: none yet
  std::vector<std::string> last_lines;  // of its log, oldest first, at most 50
};

// "killed by SIGKILL", "exited with code 3 (the plugin cannot be loaded)".
std::string Cause(const ProcessEnd& end);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SUPERVISOR_PROCESS_END_H_
