// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/report_pace.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Next = ReportPace::Next;

constexpr milliseconds kBegin{10};

class ReportPaceTest : public ::testing::Test {
 protected:
  // A launch ends, and the core wants to report that.
  void End() {
    pace_.LaunchEnded();
    step_to_come_ |= pace_.Wanted(/*may_wait=*/true, /*news=*/true);
  }
  // The step that was asked for.
  Next Step(size_t under_way, ReportPace::Time now) {
    EXPECT_TRUE(std::exchange(step_to_come_, false));
    return pace_.Step(under_way, now);
  }
  // Something else is reported at this time.
  void Report(ReportPace::Time now) {
    step_to_come_ |= pace_.Wanted(/*may_wait=*/false, /*news=*/true);
    EXPECT_EQ(Step(3, now), Next::kSend);
  }

  ReportPace pace_{1};
  bool step_to_come_ = false;
};

TEST_F(ReportPaceTest, EverythingIsReportedAtOnceUntilTheControllerLaunchesAhead) {
  Report(kBegin);
  End();
  EXPECT_EQ(Step(3, kBegin), Next::kSend);
  pace_.LaunchedAhead();
  End();
  EXPECT_EQ(Step(3, kBegin), Next::kTimer);
  End();
  EXPECT_EQ(Step(0, kBegin), Next::kSend) << "nothing else will come";
  Report(kBegin);
}

TEST_F(ReportPaceTest, SixteenEndsOfLaunchesAreReportedTogetherOrAfterAPause) {
  pace_.LaunchedAhead();
  Report(kBegin);
  End();
  EXPECT_EQ(Step(1, kBegin), Next::kTimer);
  for (int i = 2; i <= 15; ++i) {
    End();
    EXPECT_EQ(Step(1, kBegin + microseconds(999)), Next::kNothing) << "the timer runs";
  }
  End();
  EXPECT_EQ(Step(1, kBegin), Next::kSend);
  EXPECT_EQ(pace_.TimerEnded(1, kBegin + milliseconds(1)), Next::kNothing) << "no end waits";
  End();
  EXPECT_EQ(Step(1, kBegin), Next::kTimer) << "a new one";
  EXPECT_EQ(pace_.TimerEnded(1, kBegin + milliseconds(1)), Next::kSend);
}

TEST_F(ReportPaceTest, WhatMayWaitWithoutTheEndOfALaunchIsReportedAfterThePause) {
  pace_.LaunchedAhead();
  Report(kBegin);
  step_to_come_ |= pace_.Wanted(/*may_wait=*/true, /*news=*/true);
  EXPECT_EQ(Step(0, kBegin), Next::kTimer) << "a launch may follow";
  EXPECT_EQ(pace_.TimerEnded(0, kBegin + milliseconds(1)), Next::kSend);
}

TEST_F(ReportPaceTest, WhatMayNotWaitTakesTheOthersAlong) {
  pace_.LaunchedAhead();
  Report(kBegin);
  End();
  EXPECT_EQ(Step(1, kBegin), Next::kTimer);
  Report(kBegin);
  EXPECT_EQ(pace_.TimerEnded(1, kBegin + milliseconds(1)), Next::kNothing);
}

TEST_F(ReportPaceTest, OneStepIsAskedForAtATimeAndNoneOnceItHasStopped) {
  EXPECT_TRUE(pace_.Wanted(false, true));
  EXPECT_FALSE(pace_.Wanted(true, true));
  EXPECT_EQ(pace_.Step(0, kBegin), Next::kSend);
  EXPECT_TRUE(pace_.Wanted(false, true));
  pace_.Stop();
  EXPECT_EQ(pace_.Step(0, kBegin), Next::kNothing);
  EXPECT_FALSE(pace_.Wanted(false, true));
}

TEST_F(ReportPaceTest, TheMoreExecutorsReportTheSameGangsTheLongerIsThePause) {
  EXPECT_EQ(ReportPace(1).pause(), milliseconds(1));
  EXPECT_EQ(ReportPace(4).pause(), milliseconds(1));
  EXPECT_EQ(ReportPace(6).pause(), microseconds(1500));
  EXPECT_EQ(ReportPace(8).pause(), milliseconds(2));
  EXPECT_EQ(ReportPace(80).pause(), milliseconds(2));
  EXPECT_EQ(ReportPace(512).pause(), microseconds(12800));
}

TEST_F(ReportPaceTest, BelowARelayWhatTheLogTellsWaitsAsLongAsTheRelaysChildrenAreMany) {
  ReportPace pace(512);
  pace.LaunchedAhead();
  pace.Below(16);
  EXPECT_TRUE(pace.Wanted(/*may_wait=*/true, /*news=*/false));
  EXPECT_EQ(pace.Step(1, kBegin), Next::kSend) << "the first";
  EXPECT_TRUE(pace.Wanted(/*may_wait=*/true, /*news=*/false));
  EXPECT_EQ(pace.Step(1, kBegin), Next::kTimer);
  EXPECT_EQ(pace.pause(), milliseconds(1));
  EXPECT_EQ(pace.TimerEnded(1, kBegin + milliseconds(1)), Next::kSend);

  EXPECT_TRUE(pace.Wanted(/*may_wait=*/true, /*news=*/true));
  EXPECT_EQ(pace.Step(1, kBegin + milliseconds(2)), Next::kTimer) << "news go to the controller";
  EXPECT_EQ(pace.pause(), microseconds(12800));
  EXPECT_EQ(pace.TimerEnded(1, kBegin + milliseconds(14)), Next::kSend);

  pace.Below(100);
  EXPECT_EQ(pace.pause(), microseconds(2500));
  pace.Below(0);
  EXPECT_EQ(pace.pause(), microseconds(12800));
}

}  // namespace
}  // namespace fairway
