// SPDX-License-Identifier: Apache-2.0
#include "worker/process/walls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

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
