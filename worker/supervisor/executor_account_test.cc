// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/executor_account.h"

#include <csignal>

#include <gtest/gtest.h>

#include "worker/process/exit_codes.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ProcessEnd Killed(uint64_t incarnation) {
  return {
      .pid = 1, .signal = SIGKILL, .exit_code = 0, .incarnation = incarnation, .last_lines = {}};
}
ProcessEnd Exited(int code, uint64_t incarnation) {
  return {.pid = 1, .signal = 0, .exit_code = code, .incarnation = incarnation, .last_lines = {}};
}

class ExecutorAccountTest : public ::testing::Test {
 protected:
  ExecutorAccount account_{{}};
};

TEST_F(ExecutorAccountTest, RestartsComeEverLaterUntilAnExecutorLivesLong) {
  milliseconds before{50};
  for (int i = 0; i < 12; ++i, before = std::min(2 * before, milliseconds(10000))) {
    account_.Started(seconds(i));
    EXPECT_EQ(account_.Ended(Killed(7), seconds(i), false).restart_in, before);
  }
  EXPECT_EQ(account_.NotStarted(), seconds(10));
  account_.Started(seconds(100));
  EXPECT_EQ(account_.Ended(Killed(7), seconds(121), false).restart_in, milliseconds(50));
}

TEST_F(ExecutorAccountTest, ARestartThatAnOperatorAskedForIsNoError) {
  account_.Started(seconds(0));
  EXPECT_FALSE(account_.Kill(6, 7, "it is silent", false)) << "another process";
  EXPECT_TRUE(account_.Kill(7, 7, "an operator asked for it", true));
  const ExecutorAccount::Verdict verdict = account_.Ended(Killed(7), seconds(1), false);
  EXPECT_TRUE(verdict.asked);
  EXPECT_EQ(verdict.cause, "killed by SIGKILL by its supervisor: an operator asked for it");
  EXPECT_EQ(verdict.restart_in, milliseconds(50));
  account_.Started(seconds(1));
  EXPECT_EQ(account_.Ended(Killed(8), seconds(2), false).cause, "killed by SIGKILL")
      << "the reason was that of the process before";
  EXPECT_TRUE(account_.Ended(Exited(kExitAsked, 9), seconds(3), false).asked);
}

TEST_F(ExecutorAccountTest, WhatAnotherTryWillNotCureIsNotStartedAgain) {
  EXPECT_TRUE(account_.Ended(Exited(kExitNoPlugin, 0), seconds(0), false).hopeless);
  EXPECT_FALSE(account_.Ended(Exited(kExitInternal, 0), seconds(0), false).hopeless);
  EXPECT_FALSE(account_.Ended(Exited(kExitFenced, 7), seconds(0), false).hopeless);
  EXPECT_FALSE(account_.Ended(Exited(kExitNoPlugin, 0), seconds(0), false).hopeless)
      << "one has registered before";
}

TEST_F(ExecutorAccountTest, EndsAreToldOnceAndTheOldestAreForgotten) {
  for (uint64_t incarnation = 1; incarnation <= 20; ++incarnation)
    account_.Ended(Killed(incarnation), seconds(0), false);
  const std::deque<v1::ExecutorDied> deaths = account_.TakeDeaths();
  ASSERT_EQ(deaths.size(), ExecutorAccount::kMaxDeaths);
  EXPECT_EQ(deaths.front().incarnation(), 5u);
  EXPECT_EQ(deaths.back().cause(), "killed by SIGKILL");
  EXPECT_TRUE(account_.TakeDeaths().empty());
}

TEST_F(ExecutorAccountTest, AnEndWhoseLinkBrokeIsToldAgainUntilTheNextExecutorStarts) {
  account_.Ended(Killed(7), seconds(0), false);
  EXPECT_EQ(account_.TakeDeaths().size(), 1u);
  account_.LinkEnded();
  ASSERT_EQ(account_.TakeDeaths().size(), 1u);
  account_.LinkEnded();
  account_.Ended(Killed(8), seconds(0), false);
  EXPECT_EQ(account_.TakeDeaths().front().incarnation(), 7u);
  account_.Started(seconds(1));
  account_.LinkEnded();
  EXPECT_TRUE(account_.TakeDeaths().empty());
}

TEST_F(ExecutorAccountTest, AnExecutorThatWasToStopAndHadToBeKilledWasLate) {
  account_.KillLate();
  EXPECT_TRUE(account_.Ended(Killed(7), seconds(0), true).late);
  EXPECT_EQ(account_.TakeDeaths().front().restart_in_ms(), -1);
  account_.Started(seconds(1));
  EXPECT_FALSE(account_.Ended(Exited(kExitOk, 8), seconds(2), true).late);
}

}  // namespace
}  // namespace fairway
