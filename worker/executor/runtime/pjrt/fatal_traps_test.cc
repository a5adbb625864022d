// SPDX-License-Identifier: Apache-2.0
// Traps that end the process, each in a child of its own: with our precautions it lives, without
// them it dies (otherwise the precaution would be useless).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

// A running child. Its standard error is returned at its end.
class ChildProcess {
 public:
  ChildProcess(const std::string& what, const std::string& xla_flags) {
    std::vector<std::string> env = {"XLA_FLAGS=" + xla_flags,
                                    "FAIRWAY_PJRT_PLUGIN=" + test::ConfigOfTests(1).plugin_path};
    for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
      if (const char* value = std::getenv(name)) env.push_back(std::string(name) + "=" + value);
    }
    std::vector<char*> env_pointers;
    for (std::string& text : env) env_pointers.push_back(text.data());
    env_pointers.push_back(nullptr);
    std::string program = FAIRWAY_TEST_CHILD, argument = what;
    char* argv[] = {program.data(), argument.data(), nullptr};
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &files, nullptr, argv, env_pointers.data()), 0);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    errors_ = ends[0];
  }
  ~ChildProcess() {
    Kill();
    close(errors_);
  }

  // Reads until the child has ended. Returns its wait status.
  int Wait() {
    char chunk[4096];
    ssize_t n;
    while ((n = read(errors_, chunk, sizeof(chunk))) > 0)
      text_.append(chunk, static_cast<size_t>(n));
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return status;
  }

  // Reads until `needle` has been written, or the end.
  bool WaitFor(const std::string& needle) {
    char chunk[4096];
    ssize_t n;
    while (text_.find(needle) == std::string::npos &&
           (n = read(errors_, chunk, sizeof(chunk))) > 0) {
      text_.append(chunk, static_cast<size_t>(n));
    }
    return text_.find(needle) != std::string::npos;
  }

  bool Runs() {
    int status = 0;
    return waitpid(pid_, &status, WNOHANG) == 0;
  }

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  const std::string& text() const { return text_; }

 private:
  pid_t pid_ = 0;
  int errors_ = -1;
  std::string text_;
};

std::string Flags(int warn_seconds, int terminate_seconds) {
  PjrtConfig config;
  config.collective_warn_timeout = std::chrono::seconds(warn_seconds);
  config.collective_terminate_timeout = std::chrono::seconds(terminate_seconds);
  return XlaFlags(config);
}

void ExpectLives(const std::string& what, const std::string& flags) {
  ChildProcess child(what, flags);
  const int status = child.Wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << what << ": wait status " << status << "\n"
      << child.text();
}

TEST(FatalTrapsTest, OurXlaFlagsAreKnownToThePlugin) {
  ExpectLives("compile", XlaFlags(PjrtConfig{}));
}

TEST(FatalTrapsTest, AnUnknownXlaFlagEndsTheProcess) {
  ChildProcess child("compile", "--xla_no_such_flag=1");
  const int status = child.Wait();
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "then filtering is no longer needed";
  ExpectLives("compile", XlaFlags(PjrtConfig{}, "--xla_no_such_flag=1"));
}

TEST(FatalTrapsTest, AStuckGangEndsTheProcessAfterShortTimeouts) {
  ChildProcess child("stuck", Flags(1, 2));
  const int status = child.Wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
      << "wait status " << status << "\n"
      << child.text();
}

TEST(FatalTrapsTest, AStuckGangIsLeftToTheWatchdogWithOurTimeouts) {
  ChildProcess child("stuck", Flags(1, 24 * 3600));
  // The warning shows that XLA has seen it; an abort would follow at once.
  EXPECT_TRUE(child.WaitFor("stuck")) << child.text();
  EXPECT_TRUE(child.Runs()) << child.text();
}

TEST(FatalTrapsTest, ALongProgramBesideAGangLivesWithSpareDevices) {
  ExpectLives("one-long", Flags(1, 30));
}

TEST(FatalTrapsTest, LongProgramsOnAllDevicesBesideAGangLive) {
  ExpectLives("all-long", Flags(1, 30));
}

TEST(FatalTrapsTest, WithoutSpareDevicesALongProgramKillsTheGang) {
  ChildProcess child("no-spare", Flags(1, 2));
  const int status = child.Wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
      << "then spare devices are no longer needed; wait status " << status << "\n"
      << child.text();
}

TEST(FatalTrapsTest, AThousandGangsBesideLongPrograms) { ExpectLives("many", Flags(1, 60)); }

}  // namespace
}  // namespace fairway
