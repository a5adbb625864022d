// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_CHILD_H_
#define FAIRWAY_WORKER_COMPILER_CHILD_H_

#include <string>
#include <vector>

#include <sys/types.h>

#include "base/status.h"

namespace fairway {

// The end of a process: a signal or an exit code, and the same as text: "killed by SIGABRT",
// "exited with code 3".
struct ChildEnd {
  int signal = 0;
  int exit_code = 0;
  std::string text;
};

// A compile process and our end of its link (non-blocking). Owned by CompilePool's thread.
class Child {
 public:
  Child() = default;
  // Starts the process. It inherits standard error and the link, nothing else; its signals are as
  // at the start of a process. UNAVAILABLE: it cannot be started.
  static absl::StatusOr<Child> Spawn(const std::vector<std::string>& argv,
                                     const std::vector<std::string>& env);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();  // kills it

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  int fd() const { return fd_; }

  // Kills it if it still runs and waits for its end.
  ChildEnd End();
  // Kills the process and closes the link without waiting. Returns true once the process is gone;
  // until then call it again.
  bool Retire();

 private:
  pid_t pid_ = 0;
  int fd_ = -1;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_CHILD_H_
