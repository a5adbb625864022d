// SPDX-License-Identifier: Apache-2.0
#include "client/cli/child_output.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "client/cli/software_checks.h"

namespace fairway {
namespace {

constexpr std::chrono::seconds kLimit{120};

ChildOutput Shell(const std::string& script, std::chrono::milliseconds limit = kLimit,
                  size_t most = 1000) {
  auto ran = RunForOutput({"/bin/sh", "-c", script}, limit, Variables::kAll, most);
  EXPECT_TRUE(ran.ok()) << ran.status();
  return ran.ok() ? *ran : ChildOutput();
}

TEST(RunForOutput, HasBothStreamsAndTheEnd) {
  const ChildOutput ran = Shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(ran.output, "out\nerr\n");
  EXPECT_EQ(WEXITSTATUS(ran.wait_status), 3);
  EXPECT_FALSE(ran.Succeeded());
  EXPECT_TRUE(Shell("true").Succeeded());
}

TEST(RunForOutput, WhatHangsIsKilledWithWhatItHasStarted) {
  const ChildOutput ran = Shell("sleep 1000 & sleep 1000", std::chrono::milliseconds(100));
  EXPECT_TRUE(ran.late);
  EXPECT_TRUE(WIFSIGNALED(ran.wait_status));
}

TEST(RunForOutput, ACrashIsTold) {
  EXPECT_EQ(WTERMSIG(Shell("kill -SEGV $$").wait_status), SIGSEGV);
}

TEST(RunForOutput, RootCanStartItAsAnotherUserWithNothingOfRoots) {
  const auto nobody = FindUser("nobody");
  if (::geteuid() != 0 || !nobody) GTEST_SKIP() << "only root can be another user";
  const auto ran =
      RunForOutput({"/bin/sh", "-c", "id -u; id -g; id -G; grep CapEff /proc/self/status"}, kLimit,
                   Variables::kAll, 1000, nobody);
  ASSERT_TRUE(ran.ok()) << ran.status();
  EXPECT_EQ(ran->output, fmt::format("{0}\n{1}\n{2}\nCapEff:\t0000000000000000\n", nobody->user,
                                     nobody->group, fmt::join(nobody->groups, " ")));
  const auto refused = RunForOutput({"/no/such"}, kLimit, Variables::kAll, 1000, nobody).status();
  EXPECT_EQ(Text(refused), "cannot start /no/such as user nobody: No such file or directory");
}

TEST(RunForOutput, AnotherUserGetsNoFileNoVariableAndNoTerminalOfRoots) {
  const auto nobody = FindUser("nobody");
  if (::geteuid() != 0 || !nobody) GTEST_SKIP() << "only root can be another user";
  const OwnedFd secret(::open("/etc/shadow", O_RDONLY));  // not closed on exec
  ASSERT_GE(secret.get(), 0);
  ::setenv("ROOTS_SECRET", "hunter2", 1);
  const std::string script = fmt::format(
      "[ -z \"$ROOTS_SECRET\" ] && echo no variable; [ -e /proc/$$/fd/{} ] || echo no file; "
      "[ \"$(cut -d' ' -f6 /proc/$$/stat)\" = $$ ] && echo own session",
      secret.get());
  const auto ran = RunForOutput({"/bin/sh", "-c", script}, kLimit, Variables::kAll, 1000, nobody);
  ::unsetenv("ROOTS_SECRET");
  ASSERT_TRUE(ran.ok()) << ran.status();
  EXPECT_EQ(ran->output, "no variable\nno file\nown session\n");
}

TEST(UserForPlugin, IsTheDaemonsForRootAndNobodyElseForOthers) {
  EXPECT_FALSE(UserForPlugin(1000, {"/proc/self"}));
  char folder[] = "/tmp/fairway-user-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  if (::chown(folder, 12345, 12346) == 0) {
    const auto found = UserForPlugin(0, {"/no/such", "/", folder});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->user, 12345U);
    EXPECT_EQ(found->group, 12346U);
    EXPECT_EQ(found->groups, std::vector<gid_t>{12346});
  }
  ::rmdir(folder);
  const auto otherwise = UserForPlugin(0, {"/no/such", "/"});
  EXPECT_EQ(otherwise.has_value(), FindUser("fairway").has_value());
}

TEST(RunForOutput, NoMoreThanIsAskedForIsKept) {
  const ChildOutput ran = Shell("head -c 100000 /dev/zero", kLimit, 10);
  EXPECT_EQ(ran.output.size(), 10U);
  EXPECT_TRUE(ran.cut);
  EXPECT_TRUE(ran.Succeeded());
}

TEST(RunForOutput, ADaemonDoesNotSeeWhatIsForClients) {
  ::setenv("FAIRWAY_TLS_CA", "/x", 1);
  const auto ran = RunForOutput({"/bin/sh", "-c", "echo ${FAIRWAY_TLS_CA-none} ${PATH:+path}"},
                                kLimit, Variables::kNotOfFairway);
  ::unsetenv("FAIRWAY_TLS_CA");
  ASSERT_TRUE(ran.ok());
  EXPECT_EQ(ran->output, "none path\n");
}

TEST(RunForOutput, AProgramThatIsNotThereIsAnError) {
  EXPECT_FALSE(RunForOutput({"/no/such/program"}, kLimit).ok());
}

}  // namespace
}  // namespace fairway
