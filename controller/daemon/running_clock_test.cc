// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/running_clock.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr RunningClock::Time kStart{std::chrono::hours(1)};

TEST(RunningClockTest, ItGoesAsTimeGoesWhileTheProcessRuns) {
  RunningClock clock(kStart, milliseconds(200));
  EXPECT_EQ(clock.Advance(kStart + milliseconds(100)), milliseconds(0));
  EXPECT_EQ(clock.Advance(kStart + milliseconds(300)), milliseconds(0));
  EXPECT_EQ(clock.now(), kStart + milliseconds(300));
}

TEST(RunningClockTest, AStopCountsNoMoreThanATurn) {
  RunningClock clock(kStart, milliseconds(200));
  EXPECT_EQ(clock.Advance(kStart + milliseconds(20000)), milliseconds(19800));
  EXPECT_EQ(clock.now(), kStart + milliseconds(200));
  clock.Advance(kStart + milliseconds(20100));
  EXPECT_EQ(clock.now(), kStart + milliseconds(300));
}

TEST(RunningClockTest, ItNeverGoesBack) {
  RunningClock clock(kStart, milliseconds(200));
  EXPECT_EQ(clock.Advance(kStart - milliseconds(50)), milliseconds(0));
  EXPECT_EQ(clock.now(), kStart);
}

}  // namespace
}  // namespace fairway
