// SPDX-License-Identifier: Apache-2.0
#include "worker/process/walls.h"

#include <asm/sockios.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>

namespace fairway {
namespace {

// What a child of this process found, as its exit code.
template <typename Look>
int InChild(Look look) {
  const pid_t child = fork();
  if (child == 0) _exit(look());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

bool Opens(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool Executes() {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/true", "/bin/true", nullptr);
    _exit(1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(Walls, FilesBeyondThemAreNotOpened) {
  const std::string base = testing::TempDir() + "walls-" + std::to_string(getpid());
  ASSERT_EQ(mkdir(base.c_str(), 0700), 0);
  for (const char* name : {"/read", "/write", "/other"})
    ASSERT_EQ(mkdir((base + name).c_str(), 0700), 0);
  for (const char* name : {"/read/file", "/write/file", "/other/file"})
    std::ofstream(base + name) << "x";
  const FileRights rights = {.read = {base + "/read", base + "/does not exist"},
                             .write = {base + "/write"},
                             .execute = {}};
  const int wrong = InChild([&] {
    if (!ConfineFiles(rights)) return 99;
    return (Opens(base + "/read/file", O_RDONLY) ? 0 : 1) |
           (Opens(base + "/read/file", O_WRONLY) ? 2 : 0) |
           (Opens(base + "/read/new", O_CREAT | O_WRONLY) ? 4 : 0) |
           (Opens(base + "/write/new", O_CREAT | O_RDWR) ? 0 : 8) |
           (Opens(base + "/other/file", O_RDONLY) ? 16 : 0) |
           (Opens("/proc/" + std::to_string(getppid()) + "/mem", O_RDONLY) ? 32 : 0);
  });
  EXPECT_EQ(wrong, 0) << "a bit for each line above; 99: this kernel has no Landlock";
  std::string remove = "rm -r '" + base + "'";
  EXPECT_EQ(system(remove.c_str()), 0);
}

// Each of these works, or fails otherwise, for the process before the wall (the tests run as root).
int RefusedCalls() {
  const auto refused = [](long result) { return result < 0 && errno == EPERM; };
  int count = 0;
  count += refused(syscall(SYS_bpf, 0, nullptr, 0));
  count += refused(syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0));
  count += refused(mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_NOSUID, nullptr));
  count += refused(syscall(SYS_unshare, 0));
  return count;
}

TEST(Walls, NamespacesAndSignalsToOthersAreRefusedInOtherWaysToo) {
  const int wrong = InChild([] {
    if (!WallExecutor(/*executes=*/true).empty()) return 99;
    const long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    const bool by_clone = child == -1 && errno == EPERM;
    const bool by_clone3 = syscall(SYS_clone3, nullptr, 0) == -1 && errno == ENOSYS;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool owner = fcntl(fd, F_SETOWN, getpid()) == -1 && errno == EPERM;
    const bool owner_ex = fcntl(fd, F_SETOWN_EX, nullptr) == -1 && errno == EPERM;
    const bool signal = fcntl(fd, F_SETSIG, 0) == -1 && errno == EPERM;
    int group = getpid();
    const bool by_ioctl = ioctl(fd, FIOSETOWN, &group) == -1 && errno == EPERM &&
                          ioctl(fd, SIOCSPGRP, &group) == -1 && errno == EPERM;
    // What is not meant goes on.
    int thread_ran = 0;
    std::thread([&] { thread_ran = 1; }).join();
    const pid_t forked = fork();
    if (forked == 0) _exit(0);
    const bool runs = thread_ran == 1 && forked > 0 && waitpid(forked, nullptr, 0) == forked &&
                      fcntl(fd, F_GETFD) >= 0 && ioctl(fd, FIONREAD, &group) == 0;
    return (by_clone ? 0 : 1) | (by_clone3 ? 0 : 2) | (owner ? 0 : 4) | (owner_ex ? 0 : 8) |
           (signal ? 0 : 16) | (by_ioctl ? 0 : 32) | (runs ? 0 : 64);
  });
  EXPECT_EQ(wrong, 0) << "a bit for each condition above; 99: the system refused a wall";
}

TEST(Walls, AnExecutorMakesNoAdministrativeCalls) {
  const int wrong = InChild([] {
    const int before = RefusedCalls();
    if (!WallExecutor(/*executes=*/false).empty()) return 99;
    rlimit core{1, 1};
    getrlimit(RLIMIT_CORE, &core);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    return (before < 4 ? 0 : 1) | (RefusedCalls() == 4 ? 0 : 2) | (Executes() ? 4 : 0) |
           (core.rlim_max == 0 ? 0 : 8) | (fd >= 0 ? 0 : 16);
  });
  EXPECT_EQ(wrong, 0) << "a bit for each condition above; 99: the system refused a wall";
  EXPECT_EQ(InChild([] { return WallExecutor(/*executes=*/true).empty() && Executes() ? 0 : 1; }),
            0);
}

}  // namespace
}  // namespace fairway
