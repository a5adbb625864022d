// SPDX-License-Identifier: Apache-2.0
// Starts and watches child processes for `fairway up`.
#ifndef FAIRWAY_CLIENT_CLI_PROCESS_H_
#define FAIRWAY_CLIENT_CLI_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace fairway {

// A file descriptor that is closed with its owner.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~OwnedFd() { Reset(); }
  int get() const { return fd_; }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Returns the read end and the write end; both close on exec.
absl::StatusOr<std::pair<OwnedFd, OwnedFd>> MakePipe();

// Whom a child is.
struct ChildUser {
  std::string name;
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // all of its groups
};

// The user of that number or name, with its groups. nullopt: this host has none.
std::optional<ChildUser> FindUser(uid_t user);
std::optional<ChildUser> FindUser(const std::string& name);

struct ChildSpec {
  std::vector<std::string> command;  // [0]: path of the program
  // Standard output and error are appended to it. Empty: nobody gets standard output, and standard
  // error is ours.
  std::string log_file;
  std::vector<std::pair<int, int>> inherited;  // (our descriptor, its number in the child)
  // Variables whose names begin with it are not passed on; empty: all are.
  std::string without_variables = {};
  // In a process group of its own, so that Ctrl-C reaches only us.
  bool own_group = true;
  // It is asked to end (SIGTERM) when the thread that starts it ends, and so however this process
  // does. The thread waits for it.
  bool ends_with_us = false;
  // Whom it is from before its first instruction on, for a parent that is root; nullopt: as we are.
  // Then it has a session of its own, few of our variables, and of `inherited` what becomes its
  // standard input, output or error.
  std::optional<ChildUser> user = {};
};

// Starts it with no signal blocked.
absl::StatusOr<pid_t> StartChild(const ChildSpec& spec);

// Describes waitpid's status: "exit code 3", "signal 9 (Killed)".
std::string DescribeExit(int wait_status);

// The last `lines` lines of a file; empty if it cannot be read.
std::string TailOfFile(const std::string& path, int lines);

// A free port of the IP address `host`: `preferred` if that is free, else any. INVALID_ARGUMENT:
// `host` is not an IP address; UNAVAILABLE: no port is free, or `host` is not this host's.
absl::StatusOr<int> FreePort(const std::string& host, int preferred);

// The directory of the running program.
std::string ProgramDirectory();

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PROCESS_H_
