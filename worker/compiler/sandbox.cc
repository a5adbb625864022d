// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/sandbox.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/host.h"

namespace fairway {
namespace {

// System calls that neither decoding nor compiling makes, beside the administrative ones: they
// would reach the network and other processes.
constexpr uint32_t kRefused[] = {
    __NR_socket,
    __NR_connect,
    __NR_bind,
    __NR_listen,
    __NR_accept,
    __NR_accept4,
    __NR_setpgid,
    __NR_setsid,
    __NR_tkill,
    __NR_rt_sigqueueinfo,
    __NR_rt_tgsigqueueinfo,
    __NR_pidfd_send_signal,
    __NR_setrlimit,
};

// A process that leads a group, like those of CompilePool, ends together with its children.
bool LeadsGroup() { return getpgrp() == getpid(); }

std::vector<sock_filter> Filter(Execution execution) {
  constexpr uint32_t kNewLimit = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);
  const sock_filter deny = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const std::span<const uint32_t> administrative = AdministrativeCalls();
  std::vector<uint32_t> refused(administrative.begin(), administrative.end());
  refused.insert(refused.end(), std::begin(kRefused), std::end(kRefused));
  if (execution == Execution::kNone) refused.push_back(__NR_execve);
  std::vector<sock_filter> out = RefuseCalls(refused);
  // kill(): only its own group, if it leads one.
  const uint8_t own_group = LeadsGroup() ? 1 : 0;
  constexpr uint32_t kProcess = offsetof(seccomp_data, args);
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_kill, 0, 4));
  out.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kProcess));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, own_group, 0));
  out.push_back(deny);
  out.push_back(allow);
  // abort() sends a signal to a thread of this process; signals to others are refused.
  constexpr uint32_t kGroup = offsetof(seccomp_data, args);
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_tgkill, 0, 6));
  out.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kGroup));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(getpid()), 0, 2));
  out.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kGroup + 4));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
  out.push_back(deny);
  out.push_back(allow);
  // glibc reads limits for every thread; setting them is no longer allowed.
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_prlimit64, 0, 5));
  out.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNewLimit));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2));
  out.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNewLimit + 4));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
  out.push_back(deny);
  out.push_back(allow);
  return out;
}

bool SetLimit(__rlimit_resource resource, rlim_t soft, rlim_t hard) {
  rlimit old{};
  if (getrlimit(resource, &old) != 0) return false;
  hard = std::min(hard, old.rlim_max);
  const rlimit limit = {std::min(soft, hard), hard};
  return setrlimit(resource, &limit) == 0;
}

// Returns the bytes of private memory that this process may write, touched or not; RLIMIT_DATA
// counts these.
int64_t WritableBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  statm >> total >> resident >> shared >> text >> library >> data;
  return data * sysconf(_SC_PAGESIZE);
}

std::chrono::seconds CpuUsed() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return std::chrono::seconds(use.ru_utime.tv_sec + use.ru_stime.tv_sec);
}

void OutOfMemory() {
  constexpr char kText[] = "a compile process reached its memory limit\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(kExitOutOfMemory);
}

}  // namespace

int64_t DefaultCompileMemory() { return std::max(HostMemory() / 4, int64_t{2} << 30); }

bool LeaveNetwork() {
  if (const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    (void)!write(fd, "1000", 4);
    close(fd);
  }
  // An ordinary user needs a user namespace around the network namespace.
  return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

std::vector<std::string> AssemblersOf(const std::string& plugin) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path folder = fs::weakly_canonical(plugin, none).parent_path();
  std::vector<fs::path> places = {"/usr/local/cuda/bin", "/opt/cuda/bin", folder / "cuda/bin",
                                  folder / "../../../../bin", folder / "../../../../../bin"};
  for (const char* packages : {"../nvidia", "../../nvidia"}) {
    for (const fs::directory_entry& toolkit : fs::directory_iterator(folder / packages, none)) {
      places.push_back(toolkit.path() / "bin");
    }
  }
  const char* path = std::getenv("PATH");
  std::istringstream named(path == nullptr ? "" : path);
  for (std::string place; std::getline(named, place, ':');) places.emplace_back(place);
  std::vector<std::string> found;
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place / "ptxas", none)) found.push_back(place / "ptxas");
  }
  return found;
}

FileRights FilesToCompile(const std::string& plugin, const std::vector<std::string>& assemblers) {
  namespace fs = std::filesystem;
  std::error_code none;
  FileRights out;
  // Libraries, and what they ask the system: its processors, its memory, the time zone.
  out.read = {"/usr",
              "/lib",
              "/lib64",
              "/etc/ld.so.cache",
              "/etc/localtime",
              "/proc/self",
              "/proc/cpuinfo",
              "/proc/meminfo",
              "/proc/stat",
              "/proc/sys",
              "/sys/devices/system",
              "/sys/fs/cgroup",
              "/sys/kernel/mm",
              "/dev/zero",
              "/dev/urandom",
              "/opt/cuda"};
  out.write = {"/dev/null"};
  out.execute = assemblers;
  const fs::path self = fs::read_symlink("/proc/self/exe", none);
  out.read.push_back(self.parent_path());
  out.read.push_back(self.parent_path() / "../lib");
  if (!plugin.empty()) {
    // XLA reads its library of functions for GPUs from the packages beside the plugin. Some
    // installers make links to files elsewhere, which count where they are.
    const fs::path folder = fs::weakly_canonical(plugin, none).parent_path();
    for (const char* packages : {"", "../nvidia", "../../nvidia"}) {
      out.read.push_back(folder / packages);
      const auto skip = fs::directory_options::skip_permission_denied;
      fs::recursive_directory_iterator file(folder / packages, skip, none), end;
      for (; !none && file != end; file.increment(none)) {
        if (std::error_code gone; file->is_symlink(gone)) out.read.push_back(file->path());
      }
      none.clear();
    }
  }
  const char* libraries = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(libraries == nullptr ? "" : libraries);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) out.read.push_back(folder);
  }
  if (!assemblers.empty()) out.write.push_back(fs::temp_directory_path(none));
  // An operator may ask XLA to write what it does.
  constexpr std::string_view kDump = "--xla_dump_to=";
  const char* flags = std::getenv("XLA_FLAGS");
  const std::string_view asked = flags == nullptr ? "" : flags;
  if (const size_t at = asked.find(kDump); at != asked.npos) {
    const std::string_view folder = asked.substr(at + kDump.size());
    out.write.emplace_back(folder.substr(0, folder.find(' ')));
  }
  return out;
}

bool HasNvJitLink() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libnvJitLink.so") != std::string::npos) return true;
  }
  return false;
}

Seal::Seal(const CompileLimits& limits, bool left_network, bool confined, Execution execution)
    : limits_(limits), cpu_(CpuUsed()), memory_(WritableBytes()) {
  const auto demand = [&](bool done, std::string_view what) {
    if (!done) refused_ += fmt::format("{}{}", refused_.empty() ? "" : ", ", what);
  };
  demand(SetLimit(RLIMIT_CORE, 0, 0), "no core files");
  // RLIMIT_DATA, not RLIMIT_AS: XLA and malloc reserve address space that they never touch.
  if (limits.memory > 0) {
    const rlim_t bytes = static_cast<rlim_t>(memory_ + limits.memory);
    demand(SetLimit(RLIMIT_DATA, bytes, bytes), "memory limit");
  }
  if (limits.cpu.count() > 0) {
    const rlim_t seconds = static_cast<rlim_t>((cpu_ + limits.cpu).count()) + 1;
    demand(SetLimit(RLIMIT_CPU, seconds, seconds + 5), "limit of CPU time");
  }
  std::set_new_handler(OutOfMemory);
  demand(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  const bool filtered = FilterCalls(Filter(execution));
  demand(filtered, "system call filter");
  if (!filtered) demand(left_network, "no network");
  demand(confined, execution == Execution::kNone ? "no other files (Landlock)"
                                                 : "no other files and programs (Landlock)");
}

bool Seal::Used() const {
  return (limits_.cpu.count() > 0 && CpuUsed() - cpu_ > limits_.cpu / 10) ||
         (limits_.memory > 0 && WritableBytes() - memory_ > limits_.memory / 10);
}

std::vector<std::string> CompileEnvironment(const std::vector<std::string>& env) {
  constexpr std::string_view kNames[] = {
      "PATH",
      "LANG",
      "LC_ALL",
      "TZ",
      "TMPDIR",
      "LD_PRELOAD",
      "XLA_FLAGS",
      "ASAN_OPTIONS",
      "LSAN_OPTIONS",
      "UBSAN_OPTIONS",
      "TSAN_OPTIONS",
      "LD_LIBRARY_PATH",
      "TF_CPP_MIN_LOG_LEVEL",
      "GLIBC_TUNABLES",
      "OPENBLAS_NUM_THREADS",
  };
  std::vector<std::string> out;
  for (const std::string& entry : env) {
    const std::string_view name = std::string_view(entry).substr(0, entry.find('='));
    const bool malloc_setting = name.starts_with("MALLOC_");
    if (malloc_setting || std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames))
      out.push_back(entry);
  }
  return out;
}

}  // namespace fairway
