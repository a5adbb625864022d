// SPDX-License-Identifier: Apache-2.0
#include "client/cli/host_checks.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/host.h"
#include "client/cli/port_owner.h"
#include "client/cli/status_text.h"

namespace fairway {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
// Each connection, and each array that the controller keeps in a file, takes a descriptor.
constexpr rlim_t kFewFiles = 1024, kEnoughFiles = 16384;
// A worker has some twenty threads a device, and four compile processes.
constexpr rlim_t kFewThreads = 256, kEnoughThreads = 4096;
constexpr int64_t kFewMappings = 65530;  // the kernel's default
constexpr int64_t kLittleMemory = 2 * kGiB;
constexpr int64_t kNoRoom = 64 * kMiB, kLittleRoom = kGiB;

std::string Count(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

// The first number in a file; -1: none ("max", or there is no such file).
int64_t NumberIn(const std::string& path) {
  std::ifstream in(path);
  int64_t number = -1;
  return in >> number ? number : -1;
}

void CheckOpenFiles(const Report& report) {
  constexpr char kWhat[] = "limit of open files";
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return report(Skip(kWhat, std::strerror(errno)));
  // Daemons raise theirs to the hard limit.
  const std::string text = fmt::format("{} here (ulimit -Hn)", Count(files.rlim_max));
  const std::string fix =
      fmt::format("ulimit -Hn {0} as root, or LimitNOFILE={0} in the service (`systemctl edit`)",
                  4 * kEnoughFiles);
  if (files.rlim_max < kFewFiles) return report(Fail(kWhat, text, fix));
  if (files.rlim_max < kEnoughFiles) return report(Warn(kWhat, text, fix));
  report(Pass(kWhat, text));
}

// The lowest pids.max of this process's control group and those around it; -1: none.
int64_t GroupsMostProcesses() {
  std::ifstream in("/proc/self/cgroup");
  int64_t lowest = -1;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3);;) {
      const int64_t most = NumberIn("/sys/fs/cgroup" + group + "/pids.max");
      if (most >= 0 && (lowest < 0 || most < lowest)) lowest = most;
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return lowest;
}

void CheckThreads(const Report& report) {
  constexpr char kWhat[] = "limit of processes and threads";
  rlimit processes{};
  if (::getrlimit(RLIMIT_NPROC, &processes) != 0) return report(Skip(kWhat, std::strerror(errno)));
  const int64_t group = GroupsMostProcesses();
  const rlim_t most =
      group < 0 ? processes.rlim_cur : std::min(processes.rlim_cur, static_cast<rlim_t>(group));
  const std::string text = fmt::format("{} ({})", Count(most),
                                       most == processes.rlim_cur ? "ulimit -u" : "control group");
  const std::string fix =
      fmt::format("ulimit -u {0}, TasksMax={0} in the service, or --pids-limit of the container",
                  kEnoughThreads);
  if (most < kFewThreads) return report(Fail(kWhat, text, fix));
  if (most < kEnoughThreads) return report(Warn(kWhat, text, fix));
  report(Pass(kWhat, text));
}

void CheckMemory(const Report& report) {
  const int64_t mappings = CountMemoryMappings().most;
  const std::string counted = fmt::format("{} (vm.max_map_count)", mappings);
  if (mappings == 0) {
    report(Skip("memory mappings", "the kernel does not tell vm.max_map_count"));
  } else if (mappings < kFewMappings) {
    report(Warn("memory mappings", counted, "sysctl -w vm.max_map_count=262144"));
  } else {
    report(Pass("memory mappings", counted));
  }
  const int64_t memory = HostMemory();
  const std::string text =
      fmt::format("{} for the processes of this host or control group", BytesText(memory));
  if (memory < kLittleMemory) {
    report(Warn("memory", text,
                "give the control group more, or lower --transit-memory and --record-memory of the "
                "controller and --compile-memory-limit of the worker"));
  } else {
    report(Pass("memory", text));
  }
}

// What NCCL takes.
void CheckShared(bool cuda, const Report& report) {
  if (!cuda) {
    report(Skip("locked memory", "only GPUs need it, and there is no plugin of kind cuda"));
    report(Skip("/dev/shm", "only GPUs need it, and there is no plugin of kind cuda"));
    return;
  }
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  const std::string text = fmt::format("{} bytes (ulimit -l)", Count(locked.rlim_cur));
  if (locked.rlim_cur != RLIM_INFINITY && locked.rlim_cur < 64 * kMiB) {
    report(Warn("locked memory", text, "ulimit -l unlimited, or LimitMEMLOCK=infinity"));
  } else {
    report(Pass("locked memory", text));
  }
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) != 0)
    return report(Warn("/dev/shm", std::strerror(errno), "mount -t tmpfs tmpfs /dev/shm"));
  const auto room = static_cast<int64_t>(shared.f_blocks * shared.f_frsize);
  if (room < 64 * kMiB) {
    report(Warn("/dev/shm", BytesText(room), "mount -o remount,size=1G /dev/shm, or --shm-size"));
  } else {
    report(Pass("/dev/shm", BytesText(room)));
  }
}

std::string UserName(uid_t user) {
  passwd found{};
  passwd* result = nullptr;
  char text[4096];
  return ::getpwuid_r(user, &found, text, sizeof text, &result) == 0 && result != nullptr
             ? found.pw_name
             : fmt::format("{}", user);
}

void CheckRoom(const std::string& what, const std::string& path, const Report& report) {
  struct statvfs facts {};
  if (::statvfs(path.c_str(), &facts) != 0)
    return report(Skip(what, fmt::format("{}: {}", path, std::strerror(errno))));
  const std::string fix = fmt::format("make room: df -h {0}; du -xsh {0}/*", path);
  if ((facts.f_flag & ST_RDONLY) != 0)
    return report(
        Fail(what, fmt::format("{} is on a file system that is read-only", path),
             fmt::format("mount -o remount,rw $(stat -c %m {}), or another folder", path)));
  if (facts.f_files > 0 && facts.f_favail == 0)
    return report(Fail(what, fmt::format("{} has no inode left: no file can be made", path), fix));
  const auto room = static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
  const std::string text = fmt::format("{} has {} free", path, BytesText(room));
  if (room < kNoRoom) return report(Fail(what, text, fix));
  if (room < kLittleRoom) return report(Warn(what, text, fix));
  report(Pass(what, text));
}

// What is wrong with the owner and the mode of a folder that is its user's alone.
bool IsPrivate(const std::string& what, const std::string& path, const struct stat& facts,
               const Report& report) {
  const std::string mode = fmt::format("{} has mode {:04o}", path, facts.st_mode & 07777U);
  const uid_t user = ::geteuid();
  if (user != 0 && facts.st_uid != user) {
    report(
        Fail(what,
             fmt::format("{} is of user {}, and this is {}", path, UserName(facts.st_uid),
                         UserName(user)),
             fmt::format("run it as that user (sudo -u {} fairway doctor ...), or as root: chown "
                         "-R {} {}",
                         UserName(facts.st_uid), UserName(user), path)));
    return false;
  }
  if ((facts.st_mode & 077U) != 0) {
    report(Fail(what, mode + ": other users can reach the tokens in it",
                fmt::format("chmod 700 {}", path)));
    return false;
  }
  if ((facts.st_mode & 0700U) != 0700U) {
    report(Fail(what, mode + ": its owner cannot write in it", fmt::format("chmod 700 {}", path)));
    return false;
  }
  report(Pass(what, fmt::format("{}, of user {}", mode, UserName(facts.st_uid))));
  return true;
}

}  // namespace

void CheckLimits(bool cuda, const Report& report) {
  CheckOpenFiles(report);
  CheckThreads(report);
  CheckMemory(report);
  CheckShared(cuda, report);
}

void CheckKernel(const Report& report) {
#ifdef __NR_landlock_create_ruleset
  constexpr int kVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION
  const long landlock = ::syscall(__NR_landlock_create_ruleset, nullptr, 0, kVersion);
#else
  const long landlock = -1;
#endif
  if (landlock >= 1) {
    report(Pass("Landlock", fmt::format("version {}", landlock)));
  } else {
    report(Warn("Landlock",
                "the kernel has none: a program that takes a compile process over can read the "
                "files of the worker's user",
                "Linux 5.13 or newer, with landlock in the kernel's parameter lsm="));
  }
  uint32_t action = SECCOMP_RET_ERRNO;
  if (::syscall(__NR_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0) {
    report(Pass("seccomp", "the kernel filters system calls"));
  } else {
    report(Warn("seccomp",
                fmt::format("{}: system calls of executors and compile processes are not filtered",
                            std::strerror(errno)),
                "a kernel with CONFIG_SECCOMP_FILTER, and a container that permits seccomp"));
  }
}

void CheckFolder(const std::string& what, const std::string& path, bool secret,
                 const Report& report) {
  struct stat facts {};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  if (!there || !S_ISDIR(facts.st_mode)) {
    const int error = there ? ENOTDIR : errno;
    return report(Fail(what, fmt::format("{}: {}", path, std::strerror(error)),
                       secret ? "name the one that `fairway init` made, or make a new cluster: "
                                "fairway init DIRECTORY"
                              : fmt::format("mkdir -p {}", path)));
  }
  if (secret && !IsPrivate(what, path, facts, report)) return;
  if (!secret && ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return report(Fail(what,
                       fmt::format("{} cannot be written by {}: {}", path, UserName(::geteuid()),
                                   std::strerror(errno)),
                       fmt::format("chown it, or name another folder: ls -ld {}", path)));
  }
  CheckRoom(what, path, report);
}

void CheckPort(const std::string& flag, const std::string& host, int port, const std::string& owner,
               const Report& report) {
  const std::string what = fmt::format("--{}={}", flag, port);
  if (port == 0) return report(Pass(fmt::format("--{}", flag), "0: any free port"));
  const absl::StatusOr<std::optional<PortOwner>> found = FindPortOwner(host, port);
  if (!found.ok()) return report(Skip(what, std::string(found.status().message())));
  if (!*found) return report(Pass(what, "free"));
  if ((*found)->pid == 0) {
    return report(Warn(what, "taken by a process that this user does not see",
                       fmt::format("sudo ss -ltnp 'sport = :{}'", port)));
  }
  const std::string whose = fmt::format("{} (pid {})", (*found)->program, (*found)->pid);
  if ((*found)->program == owner) return report(Pass(what, fmt::format("{} listens there", whose)));
  report(Fail(what, fmt::format("taken by {}", whose),
              fmt::format("end it, or give the controller another --{}", flag)));
}

}  // namespace fairway
