// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/report_pace.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(ReportPaceTest, EverythingIsToldAtOnceUntilTheControllerLaunchesAhead) {
  ReportPace pace(1);
  pace.Reported(milliseconds(10));
  pace.LaunchEnded();
  EXPECT_TRUE(pace.Due(3, milliseconds(10)));
  pace.LaunchedAhead();
  EXPECT_FALSE(pace.Due(3, milliseconds(10)));
  EXPECT_TRUE(pace.Due(0, milliseconds(10))) << "nothing else will come";
  pace.Urgent();
  EXPECT_TRUE(pace.Due(3, milliseconds(10)));
}

TEST(ReportPaceTest, EndsAreToldByEightOrAfterAPause) {
  ReportPace pace(1);
  pace.LaunchedAhead();
  pace.Reported(milliseconds(10));
  for (int i = 0; i < 7; ++i) pace.LaunchEnded();
  EXPECT_FALSE(pace.Due(1, milliseconds(10) + microseconds(999)));
  EXPECT_TRUE(pace.Due(1, milliseconds(11)));
  pace.LaunchEnded();
  EXPECT_TRUE(pace.Due(1, milliseconds(10)));
  pace.Reported(milliseconds(10));
  EXPECT_EQ(pace.unreported_ends(), 0u);
  EXPECT_FALSE(pace.Due(1, milliseconds(10)));
}

TEST(ReportPaceTest, TheMoreExecutorsTellOfTheSameGangsTheLongerIsThePause) {
  EXPECT_EQ(ReportPace(1).pause(), milliseconds(1));
  EXPECT_EQ(ReportPace(40).pause(), milliseconds(1));
  EXPECT_EQ(ReportPace(512).pause(), microseconds(12800));
}

}  // namespace
}  // namespace fairway
