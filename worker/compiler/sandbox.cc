// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
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

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
constexpr char kLoader[] = "/lib64/ld-linux-x86-64.so.2";
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
constexpr char kLoader[] = "/lib/ld-linux-aarch64.so.1";
#else
constexpr uint32_t kArchitecture = 0;
constexpr char kLoader[] = "/lib/ld.so";
#endif
constexpr uint32_t kX32Bit = 0x40000000;  // x86-64's second table of system calls

// System calls that neither decoding nor compiling needs, and that could reach other processes.
constexpr uint32_t kDenied[] = {
    __NR_socket,
    __NR_connect,
    __NR_bind,
    __NR_listen,
    __NR_accept,
    __NR_accept4,
    __NR_execveat,
    __NR_setpgid,
    __NR_setsid,
    __NR_tkill,
    __NR_rt_sigqueueinfo,
    __NR_rt_tgsigqueueinfo,
    __NR_ptrace,
    __NR_process_vm_readv,
    __NR_process_vm_writev,
    __NR_pidfd_send_signal,
    __NR_pidfd_getfd,
    __NR_io_uring_setup,
    __NR_mount,
    __NR_umount2,
    __NR_unshare,
    __NR_setns,
    __NR_bpf,
    __NR_perf_event_open,
    __NR_keyctl,
    __NR_add_key,
    __NR_request_key,
    __NR_init_module,
    __NR_finit_module,
    __NR_kexec_load,
    __NR_reboot,
    __NR_swapon,
    __NR_open_by_handle_at,
    __NR_setrlimit,
    __NR_chroot,
    __NR_pivot_root,
    __NR_quotactl,
    __NR_acct,
    __NR_settimeofday,
};

// A process that leads a group, like those of CompilePool, ends together with its children.
bool LeadsGroup() { return getpgrp() == getpid(); }

std::vector<sock_filter> Filter(Execution execution) {
  constexpr uint32_t kNumber = offsetof(seccomp_data, nr);
  constexpr uint32_t kArch = offsetof(seccomp_data, arch);
  constexpr uint32_t kNewLimit = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);
  const sock_filter deny = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  std::vector<sock_filter> out = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArch),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      deny,
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1),
      deny,
  };
  for (const uint32_t number : kDenied) {
    out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    out.push_back(deny);
  }
  if (execution == Execution::kNone) {
    out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_execve, 0, 1));
    out.push_back(deny);
  }
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

bool FilterSystemCalls(Execution execution) {
  if (kArchitecture == 0) return false;
  std::vector<sock_filter> filter = Filter(execution);
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
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

bool ExecuteOnly(const std::vector<std::string>& programs) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE;
  const int rules =
      static_cast<int>(syscall(__NR_landlock_create_ruleset, &attributes, sizeof attributes, 0));
  if (rules < 0) return false;
  const auto permit = [rules](const std::string& file) {
    landlock_path_beneath_attr rule{};
    rule.allowed_access = LANDLOCK_ACCESS_FS_EXECUTE;
    rule.parent_fd = open(file.c_str(), O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) return false;
    const bool added =
        syscall(__NR_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    close(rule.parent_fd);
    return added;
  };
  const bool done = std::all_of(programs.begin(), programs.end(), permit) && permit(kLoader) &&
                    syscall(__NR_landlock_restrict_self, rules, 0) == 0;
  close(rules);
  return done;
}

bool HasNvJitLink() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libnvJitLink.so") != std::string::npos) return true;
  }
  return false;
}

Seal::Seal(const CompileLimits& limits, bool left_network, Execution execution)
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
  const bool filtered = FilterSystemCalls(execution);
  demand(filtered, "system call filter");
  if (!filtered) demand(left_network, "no network");
  demand(execution != Execution::kAny, "no other programs than the assembler (Landlock)");
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
