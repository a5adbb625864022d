// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/one_cpu.h"

#include <thread>

#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
constexpr int64_t kWindow = OneCpuTrial::kWindow;
// Swaps from the begin of a trial until its end.
constexpr int64_t kTrial = 3 * kWindow;

class OneCpuTrialTest : public testing::Test {
 protected:
  // Makes swaps, of which each takes one of these times. Returns how many it has made together.
  int64_t Swap(int64_t count, microseconds apart, microseconds together) {
    int64_t made = 0;
    for (int64_t i = 0; i < count; ++i) {
      now_ += together_ ? together : apart;
      together_ = trial_.OnSwap(now_, idle_);
      made += together_ ? 1 : 0;
    }
    return made;
  }
  // Goes on until the members are together, and returns how many swaps that took.
  int64_t SwapUntilTogether(microseconds apart, microseconds together) {
    int64_t swaps = 0;
    while (!together_ && swaps < 10 * OneCpuTrial::kRest) swaps += Swap(1, apart, together) + 1;
    return swaps;
  }

  OneCpuTrial trial_;
  OneCpuTrial::Time now_ = OneCpuTrial::Time(std::chrono::hours(1));
  OneCpuTrial::Duration idle_{};
  bool together_ = false;
};

TEST_F(OneCpuTrialTest, WhatIsFasterIsKept) {
  Swap(1000, microseconds(80), microseconds(40));
  EXPECT_TRUE(together_);
  EXPECT_EQ(Swap(10000, microseconds(80), microseconds(40)), 10000);
  // Sometimes it is measured anew, and another trial follows.
  const int64_t together = Swap(4 * OneCpuTrial::kRest, microseconds(80), microseconds(40));
  EXPECT_LT(together, 4 * OneCpuTrial::kRest);
  EXPECT_GT(together, 4 * OneCpuTrial::kRest - 5 * 2 * OneCpuTrial::kBefore);
}

TEST_F(OneCpuTrialTest, WhatIsNotFasterIsTriedMoreAndMoreSeldom) {
  const microseconds each(80);
  int64_t before = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t swaps = SwapUntilTogether(each, each);
    EXPECT_GE(swaps, 2 * before - kTrial);
    before = swaps;
    EXPECT_LE(Swap(kTrial, each, each), kTrial);
    EXPECT_FALSE(together_) << "the trial has ended";
  }
  EXPECT_LE(Swap(100 * OneCpuTrial::kRest, each, each), 101 * kTrial);
}

TEST_F(OneCpuTrialTest, SwapsThatAreNotBriefAreNotTried) {
  EXPECT_EQ(Swap(10000, microseconds(300), microseconds(1)), 0);
  Swap(1000, microseconds(80), microseconds(40));
  EXPECT_TRUE(together_);
}

TEST_F(OneCpuTrialTest, WhoeverBecomesSlowerIsApartAgain) {
  Swap(1000, microseconds(80), microseconds(40));
  ASSERT_TRUE(together_);
  EXPECT_LE(Swap(1000, microseconds(300), microseconds(100)), 10 * kWindow);
  EXPECT_FALSE(together_);
}

TEST_F(OneCpuTrialTest, LongWorkEndsItAtOnceAndTimeWithoutWorkDoesNot) {
  Swap(1000, microseconds(80), microseconds(40));
  ASSERT_TRUE(together_);
  now_ += milliseconds(100);
  idle_ += milliseconds(100);
  EXPECT_EQ(Swap(1000, microseconds(80), microseconds(40)), 1000);
  EXPECT_EQ(Swap(1, microseconds(80), milliseconds(100)), 0);
  // During a trial, too.
  SwapUntilTogether(microseconds(80), microseconds(40));
  EXPECT_EQ(Swap(1, microseconds(80), milliseconds(100)), 0);
}

// The CPUs of the calling thread, and what it was moved to.
class OneCpuTest : public testing::Test {
 protected:
  void SetUp() override {
    allowed_ = Now();
    if (CPU_COUNT(&allowed_) < 2) GTEST_SKIP() << "there is one CPU";
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed_)) last_ = static_cast<uint32_t>(cpu + 1);
    }
  }
  void TearDown() override {
    const sched_param none{};
    sched_setaffinity(0, sizeof allowed_, &allowed_);
    sched_setscheduler(0, SCHED_OTHER, &none);
  }

  static cpu_set_t Now() {
    cpu_set_t now;
    EXPECT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
    return now;
  }
  bool Anywhere() const {
    const cpu_set_t now = Now();
    return CPU_EQUAL(&now, &allowed_) != 0;
  }
  bool On(uint32_t cpu) const {
    const cpu_set_t now = Now();
    return CPU_COUNT(&now) == 1 && CPU_ISSET(cpu - 1, &now);
  }
  void Swap(uint64_t first, uint32_t cpu, int times = OneCpu::kSame + 1) {
    for (int i = 0; i < times; ++i) thread_.OnSwap(first, cpu);
  }
  void Launch() { thread_.OnLaunch(OneCpuTrial::Time()); }

  cpu_set_t allowed_;
  uint32_t last_ = 0;  // of them, plus 1
  OneCpu thread_;
};

TEST_F(OneCpuTest, TheThreadFollowsAndComesBack) {
  Swap(7, last_, OneCpu::kSame);
  EXPECT_TRUE(Anywhere()) << "these may be few";
  Swap(7, last_, 1);
  EXPECT_TRUE(On(last_));
  Swap(7, 0, 1);
  EXPECT_TRUE(Anywhere());
  Swap(7, last_, 1);
  EXPECT_TRUE(On(last_));
  Swap(8, last_, 1);
  EXPECT_TRUE(Anywhere()) << "other members";
}

TEST_F(OneCpuTest, TheThreadInterruptsNobodyWhileItSharesTheCpu) {
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  Swap(7, last_);
  EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  Swap(7, 0, 1);
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
}

TEST_F(OneCpuTest, APolicyThatTheThreadWasGivenStays) {
  std::thread([&] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    Swap(7, last_);
    EXPECT_TRUE(On(last_));
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
    Swap(7, 0, 1);
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  }).join();
}

TEST_F(OneCpuTest, AGangWithoutASwapFreesTheThread) {
  Launch();
  Swap(7, last_);
  Launch();
  EXPECT_TRUE(On(last_));
  Swap(7, last_, 1);
  Launch();
  EXPECT_TRUE(On(last_));
  Launch();
  EXPECT_TRUE(Anywhere());
  Swap(7, last_, 1);
  EXPECT_TRUE(Anywhere());
}

TEST_F(OneCpuTest, NoThreadGoesWhereItMayNotRun) {
  cpu_set_t fewer = allowed_;
  CPU_CLR(last_ - 1, &fewer);
  ASSERT_EQ(sched_setaffinity(0, sizeof fewer, &fewer), 0);
  for (const uint32_t cpu : {last_, uint32_t{CPU_SETSIZE}, uint32_t{CPU_SETSIZE} + 1, UINT32_MAX}) {
    Swap(7, cpu);
    const cpu_set_t now = Now();
    EXPECT_TRUE(CPU_EQUAL(&now, &fewer)) << cpu;
  }
}

TEST_F(OneCpuTest, TheFirstMemberChoosesTheCpuThatItIsOn) {
  OneCpuTrial::Time now(std::chrono::hours(1));
  uint32_t cpu = 0;
  for (int i = 0; i < 2 * OneCpuTrial::kBefore && cpu == 0; ++i)
    cpu = thread_.Decide(now += microseconds(80));
  ASSERT_NE(cpu, 0u);
  EXPECT_TRUE(CPU_ISSET(cpu - 1, &allowed_));
  for (int i = 0; i < kTrial; ++i) cpu = thread_.Decide(now += microseconds(80));
  EXPECT_EQ(cpu, 0u) << "that was not faster";
}

TEST_F(OneCpuTest, TimeBetweenGangsIsNotThatOfSwaps) {
  OneCpuTrial::Time now(std::chrono::hours(1));
  uint32_t cpu = 0;
  for (int i = 0; i < 2 * OneCpuTrial::kBefore && cpu == 0; ++i) {
    thread_.OnLaunch(now += milliseconds(1));
    cpu = thread_.Decide(now += microseconds(80));
    thread_.OnSwap(7, cpu);
    thread_.OnEnd(now);
  }
  EXPECT_NE(cpu, 0u);
}

}  // namespace
}  // namespace fairway
