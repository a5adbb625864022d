// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "worker/compiler/compile_server.h"

namespace fairway {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

ChildEnd HowItEnded(int status) {
  ChildEnd end;
  if (!WIFSIGNALED(status)) {
    end.exit_code = WEXITSTATUS(status);
    end.text = fmt::format("exited with code {}", end.exit_code);
    return end;
  }
  end.signal = WTERMSIG(status);
  const char* name = sigabbrev_np(end.signal);
  end.text = name != nullptr ? fmt::format("killed by SIG{}", name)
                             : fmt::format("killed by signal {}", end.signal);
  return end;
}

}  // namespace

absl::StatusOr<Child> Child::Spawn(const std::vector<std::string>& argv,
                                   const std::vector<std::string>& env) {
  if (argv.empty()) return InvalidArgument("no program for compile processes");
  int link[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) != 0) {
    return Error(absl::StatusCode::kUnavailable, "compile process: socketpair: {}",
                 std::strerror(errno));
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, link[1], kCompileLinkFd);
  posix_spawn_file_actions_addclosefrom_np(&files, kCompileLinkFd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                            POSIX_SPAWN_SETPGROUP);  // a group of its own
  Child child;
  const int error = posix_spawnp(&child.pid_, argv[0].c_str(), &files, &attributes,
                                 Pointers(argv).data(), Pointers(env).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  close(link[1]);
  child.fd_ = link[0];
  if (error != 0) {
    child.pid_ = 0;
    return Error(absl::StatusCode::kUnavailable, "cannot start a compile process, {}: {}", argv[0],
                 std::strerror(error));
  }
  fcntl(child.fd_, F_SETFL, O_NONBLOCK);
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), fd_(std::exchange(other.fd_, -1)) {}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(fd_, other.fd_);
  return *this;
}

Child::~Child() { End(); }

ChildEnd Child::End() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  if (pid_ <= 0) return {.text = "not running"};
  const pid_t pid = std::exchange(pid_, 0);
  // Closing the link ends the process; killing it before looking would hide its cause of death. Its
  // children are killed with it: until it is reaped, no other group can have its number.
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0) {
    kill(-pid, SIGKILL);
  }
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(pid, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped == pid) return HowItEnded(status);
  return {.text = "ended, and somebody else reaped it"};
}

bool Child::Retire() {
  if (fd_ >= 0) {
    close(std::exchange(fd_, -1));
    kill(-pid_, SIGKILL);
  }
  if (pid_ <= 0 || waitpid(pid_, nullptr, WNOHANG) == 0) return pid_ <= 0;
  pid_ = 0;
  return true;
}

}  // namespace fairway
