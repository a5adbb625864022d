// SPDX-License-Identifier: Apache-2.0
#include "client/cli/process.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

extern char** environ;

namespace fairway {
namespace {

using boost::asio::ip::tcp;

// Above all descriptor numbers of children, so that no dup2 overwrites the source of another.
constexpr int kFirstPrivateFd = 64;

absl::Status FromErrno(int error, std::string_view what) {
  return Error(absl::StatusCode::kUnavailable, "{}: {}", what, ::strerror(error));
}

absl::StatusOr<pid_t> Spawn(const ChildSpec& spec, std::vector<char*>& argv,
                            std::vector<char*>& variables) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (spec.log_file.empty()) {
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  } else {
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, spec.log_file.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  }
  for (const auto& [ours, theirs] : spec.inherited) {
    ::posix_spawn_file_actions_adddup2(&files, ours, theirs);
  }
  sigset_t none;
  ::sigemptyset(&none);
  sigset_t all;
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes,
                             static_cast<int16_t>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                  (spec.own_group ? POSIX_SPAWN_SETPGROUP : 0)));
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, argv[0], &files, &attributes, argv.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return FromErrno(error, fmt::format("cannot start {}", spec.command[0]));
  return pid;
}

// What other threads have open is not for another user: streams of the C++ library do not close on
// exec by themselves.
void CloseRestOnExec() {
#ifdef __NR_close_range
  constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC
  if (::syscall(__NR_close_range, STDERR_FILENO + 1, ~0U, kCloseOnExec) == 0) return;
#endif
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  for (rlim_t fd = STDERR_FILENO + 1; fd < files.rlim_cur; ++fd)
    ::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
}

// In the child of a process with threads: system calls only. The C library's setuid() would look
// for the threads of the parent. Returns when something is refused; errno says why.
void BecomeAndRun(const ChildSpec& spec, pid_t parent, char* const* argv, char* const* variables) {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &usual, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (spec.user) ::setsid();  // a terminal of root's would take what it types there
  const int nothing = ::open("/dev/null", O_RDWR);
  if (nothing < 0) return;
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  for (const auto& [ours, theirs] : spec.inherited) {
    if (::dup2(ours, theirs) < 0) return;
  }
  if (spec.user) {
    CloseRestOnExec();
    const ChildUser& as = *spec.user;
    if (::syscall(SYS_setgroups, as.groups.size(), as.groups.data()) != 0 ||
        ::syscall(SYS_setresgid, as.group, as.group, as.group) != 0 ||
        ::syscall(SYS_setresuid, as.user, as.user, as.user) != 0)
      return;
  }
  // Another user's rights would have taken it back.
  if (spec.ends_with_us) {
    if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return;
    if (::getppid() != parent) ::_exit(127);  // it has ended already
  }
  ::execve(argv[0], argv, variables);
}

// As Spawn does it, for another user, or for a child that ends with us: posix_spawn cannot.
// `spec.log_file` is empty, and without a user the child is of our process group.
absl::StatusOr<pid_t> Fork(const ChildSpec& spec, std::vector<char*>& argv,
                           std::vector<char*>& variables) {
  FAIRWAY_ASSIGN_OR_RETURN(auto failure, MakePipe());
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return FromErrno(errno, fmt::format("cannot start {}", spec.command[0]));
  if (pid == 0) {
    BecomeAndRun(spec, parent, argv.data(), variables.data());
    const int why = errno;
    [[maybe_unused]] const ssize_t put = ::write(failure.second.get(), &why, sizeof why);
    ::_exit(127);
  }
  failure.second.Reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(failure.first.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got != sizeof error) return pid;  // exec has closed the other end
  ::waitpid(pid, nullptr, 0);
  const std::string as = spec.user ? " as user " + spec.user->name : "";
  return FromErrno(error, fmt::format("cannot start {}{}", spec.command[0], as));
}

// Another user gets what a library may need to be opened, and no secret of this shell.
bool IsPassedOn(const ChildSpec& spec, std::string_view variable) {
  constexpr std::string_view kForOthers[] = {
      "PATH=", "LANG=", "LC_",   "TZ=",   "LD_LIBRARY_PATH=", "CUDA_", "NVIDIA_", "XLA_",
      "ASAN_", "LSAN_", "TSAN_", "UBSAN_"};
  const auto begins = [&](std::string_view name) { return variable.starts_with(name); };
  if (!spec.without_variables.empty() && begins(spec.without_variables)) return false;
  return !spec.user || std::ranges::any_of(kForOthers, begins);
}

std::optional<ChildUser> Filled(const passwd* found) {
  if (found == nullptr) return std::nullopt;
  ChildUser out{.name = found->pw_name,
                .user = found->pw_uid,
                .group = found->pw_gid,
                .groups = std::vector<gid_t>(64)};
  auto count = static_cast<int>(out.groups.size());
  if (::getgrouplist(found->pw_name, found->pw_gid, out.groups.data(), &count) < 0) {
    out.groups.resize(static_cast<size_t>(count));
    ::getgrouplist(found->pw_name, found->pw_gid, out.groups.data(), &count);
  }
  out.groups.resize(static_cast<size_t>(count));
  return out;
}

}  // namespace

std::optional<ChildUser> FindUser(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  char text[16384];
  ::getpwuid_r(user, &entry, text, sizeof text, &found);
  return Filled(found);
}

std::optional<ChildUser> FindUser(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  char text[16384];
  ::getpwnam_r(name.c_str(), &entry, text, sizeof text, &found);
  return Filled(found);
}

void OwnedFd::Reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

absl::StatusOr<std::pair<OwnedFd, OwnedFd>> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return FromErrno(errno, "cannot make a pipe");
  OwnedFd low[2] = {OwnedFd(fds[0]), OwnedFd(fds[1])};
  OwnedFd read(::fcntl(fds[0], F_DUPFD_CLOEXEC, kFirstPrivateFd));
  OwnedFd write(::fcntl(fds[1], F_DUPFD_CLOEXEC, kFirstPrivateFd));
  if (read.get() < 0 || write.get() < 0) return FromErrno(errno, "cannot make a pipe");
  return std::pair(std::move(read), std::move(write));
}

absl::StatusOr<pid_t> StartChild(const ChildSpec& spec) {
  std::vector<char*> argv;
  for (const std::string& word : spec.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (IsPassedOn(spec, *entry)) variables.push_back(*entry);
  }
  variables.push_back(nullptr);
  if (spec.user || spec.ends_with_us) return Fork(spec, argv, variables);
  return Spawn(spec, argv, variables);
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return fmt::format("signal {} ({})", number, ::strsignal(number));
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

std::string TailOfFile(const std::string& path, int lines) {
  std::ifstream in(path);
  std::deque<std::string> last;
  std::string line;
  while (std::getline(in, line)) {
    last.push_back(line);
    if (last.size() > static_cast<size_t>(lines)) last.pop_front();
  }
  return fmt::format("{}", fmt::join(last, "\n"));
}

absl::StatusOr<int> FreePort(const std::string& host, int preferred) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  if (error)
    return InvalidArgument("'{}' is not an IP address (127.0.0.1, 0.0.0.0 and ::1 are)", host);
  boost::asio::io_context io;
  for (const int port : {preferred, 0}) {
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
    tcp::acceptor acceptor(io);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    // Only `listen` tells whether another listener has the port.
    if (!error) acceptor.listen(1, error);
    if (!error) return acceptor.local_endpoint().port();
  }
  return Error(absl::StatusCode::kUnavailable, "cannot listen at {}: {}", host, error.message());
}

std::string ProgramDirectory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace fairway
