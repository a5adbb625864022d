// SPDX-License-Identifier: Apache-2.0
// A compile process for compile_pool_test: the real one, or one that misbehaves as the program text
// says.
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

// Returns whether `attempt` returns true in a child of this process.
template <typename Attempt>
bool ChildCan(Attempt attempt) {
  const pid_t child = fork();
  if (child == 0) _exit(attempt() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Executes a program that ends with 0; returns if that is refused.
bool Executes(const char* file = "/bin/true") {
  execl(file, file, nullptr);
  return false;
}

const char* Said(bool possible) { return possible ? "possible" : "refused"; }

// Makes a file without a name, with the contents of `file`.
int MemoryFile(const std::string& file) {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "copy", 0));
  const std::string bytes = Contents(file.c_str());
  return write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) ? fd : -1;
}

bool ExecutesMemoryFile(const std::string& file) {
  return Executes(fmt::format("/proc/self/fd/{}", MemoryFile(file)).c_str());
}

bool ExecutesByDescriptor(const std::string& file) {
  char* argv[] = {const_cast<char*>("copy"), nullptr};
  syscall(SYS_execveat, MemoryFile(file), "", argv, environ, AT_EMPTY_PATH);
  return false;
}

bool ExecutesCopy(const std::string& file) {
  const std::string copy = file + "-copy";
  std::ofstream(copy, std::ios::binary) << Contents(file.c_str());
  chmod(copy.c_str(), 0700);
  return Executes(copy.c_str());
}

constexpr char kLoader[] = "/lib64/ld-linux-x86-64.so.2";

// Executes this program again, in the role "inside"; it is another file than the assembler.
bool ExecutesThroughLoader() {
  const std::string supervisor = fmt::format("{}", getppid());
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return false;
  execl(kLoader, kLoader, self, "inside", supervisor.c_str(), nullptr);
  return false;
}

// Returns what a program that a confined process has executed can do beyond it; 0: nothing.
int Inside(pid_t supervisor) {
  rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  return (socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 1 : 0) | (kill(supervisor, 0) == 0 ? 2 : 0) |
         (setsid() > 0 || setpgid(0, 0) == 0 ? 4 : 0) |
         (setrlimit(RLIMIT_CPU, &limit) == 0 ? 8 : 0) |
         (ChildCan([] { return Executes(); }) ? 16 : 0);
}

// Returns whether a child reaches the limit of CPU time by itself while this process goes on.
bool ChildHasItsOwnLimit() {
  const pid_t child = fork();
  for (volatile uint64_t n = 0; child == 0;) n = n + 1;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU;
}

// Returns what a process that may execute the assembler `file` can do, one line each.
std::string ProbeOfExecution(const std::string& file) {
  std::string out;
  const auto line = [&out](const char* what, bool possible) {
    out += fmt::format("{}: {}\n", what, Said(possible));
  };
  line("the assembler", ChildCan([&] { return Executes(file.c_str()); }));
  line("another file", ChildCan([] { return Executes(); }));
  line("a copy of the assembler", ChildCan([&] { return ExecutesCopy(file); }));
  line("by a descriptor", ChildCan([&] { return ExecutesByDescriptor(file); }));
  line("a file without a name", ChildCan([&] { return ExecutesMemoryFile("/bin/true"); }));
  // It ends with 0 if it could do no more than this process.
  line("another file through the loader, confined", ChildCan(ExecutesThroughLoader));
  line("a limit of CPU time of its own", ChildHasItsOwnLimit());
  return out;
}

// Returns what a confined process can do and see, one line each.
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
  out += fmt::format("execute: {}\n", Said(ChildCan([] { return Executes(); })));
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
// "corrupt", "spawn PATH" (starts a child that hangs, then hangs itself), "open PATH" (opens a
// pipe: waits for a writer), "execute PATH" (what it can execute; PATH is the assembler), "target"
// (the target that it got). Any other program comes back unchanged.
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
    if (program.starts_with("spawn ")) {  // and write its process id
      const pid_t child = fork();
      while (child == 0) pause();
      std::ofstream(program.substr(6)) << child << std::endl;
      while (true) pause();
    }
    while (program == "hang") pause();
    if (program.starts_with("open ")) close(open(program.c_str() + 5, O_RDONLY));
    for (volatile uint64_t n = 0; program == "spin";) n = n + 1;
    // Never touches the memory, so that the machine is not short of it.
    for (std::vector<char*> all; program == "eat";)
      all.push_back(static_cast<char*>(::operator new (size_t{1} << 30)));
    CompileResult result;
    result.code = program == "probe" ? Probe() : program == "target" ? target_ : program;
    if (program.starts_with("execute ")) result.code = ProbeOfExecution(program.substr(8));
    if (program.starts_with("read ")) result.code = Contents(program.c_str() + 5);
    if (program == "pid") result.code = fmt::format("{}", getpid());
    if (program.starts_with("write ")) std::ofstream(program.substr(6)) << "written";
    result.checksum = Sha256Hex(program == "corrupt" ? "other bytes" : result.code);
    return result;
  }

 private:
  const std::string target_;
};

}  // namespace
}  // namespace fairway

constexpr fairway::CompileLimits kLimits = {std::chrono::seconds(2), int64_t{4} << 30};
constexpr fairway::CompileLimits kLimitsOfXla = {std::chrono::seconds(60), int64_t{4} << 30};

// A supervisor with a process that hangs. Writes the process's id and waits to be killed.
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

// `writable`: a folder for tests, or null.
int Unruly(int programs, bool sealed, const char* writable = nullptr) {
  fairway::UnrulyCompiler compiler;
  std::optional<fairway::Seal> seal;
  if (sealed) {
    fairway::FileRights files = fairway::FilesToCompile("", {});
    if (writable != nullptr) files.write.push_back(writable);
    const bool left_network = fairway::LeaveNetwork();
    seal.emplace(kLimits, left_network, fairway::ConfineFiles(files));
  }
  return fairway::ServeCompiler(fairway::kCompileLinkFd, &compiler, programs,
                                sealed ? &*seal : nullptr);
}

// A compile process that may execute the assembler `file`; `alone`: no other program.
int WithAssembler(const char* file, bool alone) {
  const bool left_network = fairway::LeaveNetwork();
  if (alone && !fairway::ConfineFiles(fairway::FilesToCompile("", {file}))) return 1;
  fairway::UnrulyCompiler compiler;
  const fairway::Seal seal(kLimits, left_network, alone, fairway::Execution::kAssembler);
  return fairway::ServeCompiler(fairway::kCompileLinkFd, &compiler, 1, &seal);
}

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "inside") return fairway::Inside(std::atoi(argv[2]));
  if (role == "assembler-alone") return WithAssembler(argv[2], /*alone=*/true);
  if (role == "assembler-and-more") return WithAssembler(argv[2], /*alone=*/false);
  if (role == "supervise") return Supervise(argv[0]);
  if (role == "unruly") return Unruly(1, /*sealed=*/true, argc > 2 ? argv[2] : nullptr);
  if (role == "unruly-long") return Unruly(3, /*sealed=*/true);
  if (role == "first-hangs") {  // the others are ready
    while (mkdir(argv[2], 0700) == 0) pause();
    return Unruly(3, /*sealed=*/true);
  }
  if (role == "all-hang") {
    while (true) pause();
  }
  if (role == "only-first")
    return mkdir(argv[2], 0700) == 0 ? Unruly(3, /*sealed=*/true, argv[3]) : 1;
  if (role == "unsealed") return Unruly(1, /*sealed=*/false);
  if (role == "told") {
    return fairway::RunCompilerProcess({.told = true,
                                        .make =
                                            [](const fairway::v1::CompileTarget& target) {
                                              return std::make_unique<fairway::UnrulyCompiler>(
                                                  target.config());
                                            },
                                        .limits = kLimits,
                                        .programs = 100,
                                        .files = fairway::FilesToCompile("", {})});
  }
  fairway::PjrtConfig config;
  config.plugin_path = role;
  config.num_devices = 4;
  return fairway::RunCompilerProcess(
      {.make = [&](const auto&) { return fairway::MakeWarmPjrtCompiler(config); },
       .limits = kLimitsOfXla,
       .files = fairway::FilesToCompile(config.plugin_path, {})});
}
