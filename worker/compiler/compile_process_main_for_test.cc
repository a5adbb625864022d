// SPDX-License-Identifier: Apache-2.0
// A compile process for compile_pool_test: the real one, or one whose program text says how it
// misbehaves.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "worker/compiler/checksum.h"
#include "worker/compiler/compile_pool.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/compiler/run_compiler_process.h"

namespace fairway {
namespace {

std::string Contents(const char* path) {
  std::stringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// Whether `attempt` returns true in a child of this process.
template <typename Attempt>
bool ChildCan(Attempt attempt) {
  const pid_t child = fork();
  if (child == 0) _exit(attempt() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Executes a program that ends with 0; returns if that is refused.
bool Executes() {
  execl("/bin/true", "true", nullptr);
  return false;
}

// What a confined process can do and see, one line each.
std::string Probe() {
  std::string out = Contents("/proc/self/status");
  out += fmt::format("socket: {}\n", socket(AF_INET, SOCK_STREAM, 0) < 0 ? "refused" : "possible");
  out += fmt::format("kill: {}\n", kill(getppid(), 0) != 0 ? "refused" : "possible");
  const pid_t other = getppid();
  siginfo_t queued{};
  queued.si_code = SI_QUEUE;
  const bool signalled = syscall(SYS_tgkill, other, other, 0) == 0 ||
                         syscall(SYS_tkill, other, 0) == 0 ||
                         syscall(SYS_rt_sigqueueinfo, other, 0, &queued) == 0 ||
                         syscall(SYS_rt_tgsigqueueinfo, other, other, 0, &queued) == 0;
  const bool own = syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0) == 0;
  out += fmt::format("signals to others: {}, to itself: {}\n", signalled ? "possible" : "refused",
                     own ? "possible" : "refused");
  out += fmt::format("execute: {}\n", ChildCan(Executes) ? "possible" : "refused");
  const bool leaves = ChildCan([] { return setsid() > 0 || setpgid(0, 0) == 0; });
  out += fmt::format("leave the group: {}\n", leaves ? "possible" : "refused");
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  out += fmt::format("core: {}\n", limit.rlim_max);
  limit = {RLIM_INFINITY, RLIM_INFINITY};
  out += fmt::format("raise: {}\n", setrlimit(RLIMIT_DATA, &limit) != 0 ? "refused" : "possible");
  for (char** entry = environ; *entry != nullptr; ++entry) out += fmt::format("env: {}\n", *entry);
  for (int fd = 3; fd < 256; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) out += fmt::format("fd: {}\n", fd);
  }
  return out;
}

// "abort", "exit 3", "hang", "spin", "eat", "refused", "quoted", "babble", "flood", "probe",
// "corrupt", "spawn PATH" (a child that hangs, as its parent does then), "open PATH" (of a pipe:
// until somebody writes), "target" (what it was told to compile for); all else comes back as it is.
class UnrulyCompiler final : public Compiler {
 public:
  explicit UnrulyCompiler(std::string target = {}) : target_(std::move(target)) {}

  absl::StatusOr<CompileResult> Compile(const std::string& program,
                                        const v1::CompileOptions&) override {
    if (program == "refused") return absl::InvalidArgumentError("no such program");
    if (program == "quoted") return absl::InvalidArgumentError("no such type: \xff\xfe");
    if (program == "flood") {  // without end
      const std::string bytes(1 << 16, 'x');
      while (write(kCompileLinkFd, bytes.data(), bytes.size()) > 0) {
      }
    }
    if (program == "babble") (void)!write(kCompileLinkFd, "\x04\0\0\0\xff\xff\xff\xff", 8);
    if (program == "abort") std::abort();
    if (program == "exit 3") std::_Exit(3);
    if (program.starts_with("spawn ")) {  // and tell its process id
      const pid_t child = fork();
      while (child == 0) pause();
      std::ofstream(program.substr(6)) << child << std::endl;
      while (true) pause();
    }
    while (program == "hang") pause();
    if (program.starts_with("open ")) close(open(program.c_str() + 5, O_RDONLY));
    for (volatile uint64_t n = 0; program == "spin";) n = n + 1;
    // Memory that nobody touches, so that the machine does not feel it.
    for (std::vector<char*> all; program == "eat";)
      all.push_back(static_cast<char*>(::operator new (size_t{1} << 30)));
    CompileResult result;
    result.code = program == "probe" ? Probe() : program == "target" ? target_ : program;
    result.checksum = Sha256Hex(program == "corrupt" ? "other bytes" : result.code);
    return result;
  }

 private:
  const std::string target_;
};

}  // namespace
}  // namespace fairway

constexpr fairway::CompileLimits kLimits = {std::chrono::seconds(1), int64_t{4} << 30};

// A supervisor with a process that hangs; tells that process's id and waits to be killed.
int Supervise(const char* self) {
  fairway::CompilePool::Options options;
  options.argv = {self, "unruly"};
  options.warm = 1;
  auto pool = fairway::CompilePool::Start(std::move(options));
  if (!pool.ok()) return 1;
  const int pid = (*pool)->pids().at(0);
  (*pool)->Compile("hang", {}, std::chrono::milliseconds(0), [](auto) {});
  std::printf("%d\n", pid);
  std::fflush(stdout);
  while (true) pause();
}

int Unruly(int programs, bool sealed) {
  fairway::UnrulyCompiler compiler;
  std::optional<fairway::Seal> seal;
  if (sealed) seal.emplace(kLimits, fairway::LeaveNetwork());
  return fairway::ServeCompiler(fairway::kCompileLinkFd, &compiler, programs,
                                sealed ? &*seal : nullptr);
}

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "supervise") return Supervise(argv[0]);
  if (role == "unruly") return Unruly(1, /*sealed=*/true);
  if (role == "unruly-long") return Unruly(3, /*sealed=*/true);
  if (role == "only-first") return mkdir(argv[2], 0700) == 0 ? Unruly(3, /*sealed=*/true) : 1;
  if (role == "unsealed") return Unruly(1, /*sealed=*/false);
  if (role == "told") {
    return fairway::RunCompilerProcess({.told = true,
                                        .make =
                                            [](const fairway::v1::CompileTarget& target) {
                                              return std::make_unique<fairway::UnrulyCompiler>(
                                                  target.config());
                                            },
                                        .limits = kLimits,
                                        .programs = 100});
  }
  fairway::PjrtConfig config;
  config.plugin_path = role;
  config.num_devices = 4;
  return fairway::RunCompilerProcess(
      {.make = [&](const auto&) { return fairway::MakeWarmPjrtCompiler(config); },
       .limits = kLimits});
}
