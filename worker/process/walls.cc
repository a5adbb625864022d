// SPDX-License-Identifier: Apache-2.0
#include "worker/process/walls.h"

#include <asm/sockios.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <initializer_list>

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

constexpr uint32_t kAdministrative[] = {
    __NR_execveat,
    __NR_ptrace,
    __NR_process_vm_readv,
    __NR_process_vm_writev,
    __NR_pidfd_getfd,
    __NR_io_uring_setup,
    __NR_mount,
    __NR_move_mount,
    __NR_open_tree,
    __NR_fsopen,
    __NR_fsconfig,
    __NR_fsmount,
    __NR_fspick,
    __NR_mount_setattr,
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
    __NR_delete_module,
    __NR_kexec_load,
    __NR_kexec_file_load,
    __NR_reboot,
    __NR_swapon,
    __NR_open_by_handle_at,
    __NR_chroot,
    __NR_pivot_root,
    __NR_quotactl,
    __NR_acct,
    __NR_settimeofday,
    __NR_clock_settime,
    __NR_adjtimex,
    __NR_clock_adjtime,
};

constexpr uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                 CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kTruncate = 1 << 14;  // LANDLOCK_ACCESS_FS_TRUNCATE, of newer headers
constexpr uint64_t kWriteFile = kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr uint64_t kExecuteFile = kReadFile | LANDLOCK_ACCESS_FS_EXECUTE;
constexpr uint64_t kOfFiles = kWriteFile | kExecuteFile;  // the others are rights on folders
constexpr uint64_t kMake = LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                           LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                           LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER;
constexpr uint64_t kRemove = LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE;
constexpr uint64_t kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWrite = kRead | kWriteFile | kMake | kRemove;
constexpr uint64_t kAll =
    kWrite | kExecuteFile | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK;

// The rights that this kernel knows; 0: it has no Landlock.
uint64_t KnownRights() {
  const long version =
      syscall(__NR_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return 0;
  uint64_t known = kAll;
  if (version < 2) known &= ~uint64_t{LANDLOCK_ACCESS_FS_REFER};
  if (version < 3) known &= ~kTruncate;
  return known;
}

// Where the low half of an argument is, on machines that have it first.
constexpr uint32_t LowHalfOf(size_t argument) {
  return offsetof(seccomp_data, args) + static_cast<uint32_t>(argument * sizeof(uint64_t));
}
constexpr sock_filter kRefuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
constexpr sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

// These append to a filter that has the call's number in the accumulator: `call` is refused if its
// argument has one of `bits`, or is one of `values`, and else permitted.
void RefuseBits(uint32_t call, size_t argument, uint32_t bits, std::vector<sock_filter>* to) {
  to->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4));
  to->push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalfOf(argument)));
  to->push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
  to->push_back(kRefuse);
  to->push_back(kAllow);
}
void RefuseValues(uint32_t call, size_t argument, std::initializer_list<uint32_t> values,
                  std::vector<sock_filter>* to) {
  const auto count = static_cast<uint8_t>(values.size());
  to->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, static_cast<uint8_t>(2 * count + 2)));
  to->push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalfOf(argument)));
  for (const uint32_t value : values) {
    to->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    to->push_back(kRefuse);
  }
  to->push_back(kAllow);
}

// True if `path` does not exist.
bool Permit(int rules, const std::string& path, uint64_t rights) {
  landlock_path_beneath_attr rule{};
  rule.parent_fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (rule.parent_fd < 0) return true;
  struct stat found {};
  const bool folder = fstat(rule.parent_fd, &found) == 0 && S_ISDIR(found.st_mode);
  rule.allowed_access = folder ? rights : rights & kOfFiles;
  const bool added =
      syscall(__NR_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
  close(rule.parent_fd);
  return added;
}

}  // namespace

bool ConfineFiles(const FileRights& rights) {
  const uint64_t known = KnownRights();
  if (known == 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = known;
  const int rules =
      static_cast<int>(syscall(__NR_landlock_create_ruleset, &attributes, sizeof attributes, 0));
  if (rules < 0) return false;
  const auto permit = [&](const std::vector<std::string>& paths, uint64_t right) {
    return std::ranges::all_of(
        paths, [&](const std::string& path) { return Permit(rules, path, right & known); });
  };
  const bool done = permit(rights.read, kRead) && permit(rights.write, kWrite) &&
                    permit(rights.execute, kRead | kExecuteFile) &&
                    permit({kLoader}, kExecuteFile) &&
                    syscall(__NR_landlock_restrict_self, rules, 0) == 0;
  close(rules);
  return done;
}

std::span<const uint32_t> AdministrativeCalls() { return kAdministrative; }

std::vector<sock_filter> RefuseCalls(std::span<const uint32_t> calls) {
  std::vector<sock_filter> out = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      kRefuse,
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1),
      kRefuse,
  };
  for (const uint32_t number : calls) {
    out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    out.push_back(kRefuse);
  }
  // What these calls do is in an argument. fcntl and ioctl could have the kernel send signals to
  // other processes of the user.
  RefuseBits(__NR_clone, 0, kNamespaces, &out);
  RefuseValues(__NR_fcntl, 1, {F_SETOWN, F_SETOWN_EX, F_SETSIG}, &out);
  RefuseValues(__NR_ioctl, 1, {FIOSETOWN, SIOCSPGRP}, &out);
  // Its flags are in memory, which a filter cannot read. Without it the C library uses clone.
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 0, 1));
  out.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  return out;
}

bool FilterCalls(std::vector<sock_filter> filter) {
  if (kArchitecture == 0) return false;
  filter.push_back(kAllow);
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

std::string WallExecutor(bool executes) {
  std::string refused;
  const auto demand = [&](bool done, const char* what) {
    if (!done) refused += std::string(refused.empty() ? "" : ", ") + what;
  };
  const rlimit none = {0, 0};
  demand(setrlimit(RLIMIT_CORE, &none) == 0, "no core files");
  demand(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  std::vector<uint32_t> calls(std::begin(kAdministrative), std::end(kAdministrative));
#ifdef FAIRWAY_SANITIZED
  std::erase(calls, __NR_ptrace);  // the search for leaks stops the other threads by it
#endif
  // CUDA shares memory between processes by these, within one user's processes.
  if (executes) std::erase(calls, __NR_pidfd_getfd);
  if (!executes) calls.push_back(__NR_execve);
  demand(FilterCalls(RefuseCalls(calls)), "system call filter");
  return refused;
}

}  // namespace fairway
