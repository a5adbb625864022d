// SPDX-License-Identifier: Apache-2.0
#include "client/cli/child_output.h"

#include <sys/wait.h>

#include <cstdlib>

#include <gtest/gtest.h>

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
