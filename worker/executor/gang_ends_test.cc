// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/gang_ends.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

namespace fairway {
namespace {

class GangEndsTest : public testing::Test {
 protected:
  // Runs one launch of `code` that ends within, and returns the ends that were told by then.
  std::string Run(const char& code, char end, size_t queued) {
    ends_.Run(
        &code, [=] { return queued; }, [&] { Add(end); });
    return told_;
  }
  void Add(char end, size_t ids = 1) {
    ends_.Add([this, end] { told_ += end; }, ids);
  }

  static inline GangEnds::Clock::time_point now_;  // stands still, however busy the machine is

  GangEnds ends_{[] { return now_; }};
  std::string told_;
  char one_ = 0, two_ = 0;  // code
};

TEST_F(GangEndsTest, TheEndOfTheLastQueuedGangIsToldAtOnceWithThoseBefore) {
  EXPECT_EQ(Run(one_, 'a', 0), "a");
  EXPECT_EQ(Run(one_, 'b', 1), "a");
  EXPECT_EQ(Run(one_, 'c', 1), "a");
  EXPECT_EQ(Run(one_, 'd', 0), "abcd");
}

TEST_F(GangEndsTest, NoMoreThanFourWaitWhereNoMoreAreQueued) {
  Run(one_, 'a', 4);
  Run(one_, 'b', 4);
  EXPECT_EQ(Run(one_, 'c', 4), "");
  EXPECT_EQ(Run(one_, 'd', 4), "abcd");
}

TEST_F(GangEndsTest, AGangOfSeveralLaunchIdsIsAsManyEnds) {
  const auto run = [&](char end, size_t ids) {
    ends_.Run(
        &one_, [] { return size_t{1}; }, [&] { Add(end, ids); });
    return told_;
  };
  EXPECT_EQ(run('a', 2), "");
  EXPECT_EQ(run('b', 1), "");
  EXPECT_EQ(run('c', 1), "abc");
  EXPECT_EQ(run('d', 4), "abcd");
  EXPECT_EQ(run('e', 3), "abcd") << "it counts from nothing again";
}

TEST_F(GangEndsTest, WhatIsBriefIsCountedByItsTime) {
  using std::chrono::microseconds;
  EXPECT_EQ(GangEnds::Brief(microseconds(100), 1), 40u);
  EXPECT_EQ(GangEnds::Brief(microseconds(3200), 32), 40u);
  EXPECT_EQ(GangEnds::Brief(microseconds(999), 1), 4u);
  EXPECT_EQ(GangEnds::Brief(microseconds(1000), 1), 0u);
  EXPECT_EQ(GangEnds::Brief(microseconds(9000), 8), 0u);
  EXPECT_GT(GangEnds::Brief({}, 1), 1000u);
}

TEST_F(GangEndsTest, AsManyWaitAsAreQueuedBehindThem) {
  for (size_t queued = 13; queued > 7; --queued) EXPECT_EQ(Run(one_, 'a', queued), "");
  EXPECT_EQ(Run(one_, 'b', 7), "aaaaaab");
}

TEST_F(GangEndsTest, NoMoreThanTwentyFourWait) {
  for (size_t i = 1; i < GangEnds::kMost; ++i) EXPECT_EQ(Run(one_, 'a', 100), "");
  EXPECT_EQ(Run(one_, 'b', 100).size(), GangEnds::kMost);
}

TEST_F(GangEndsTest, AnEndThatHasWaitedForLongIsToldBeforeTheNextLaunch) {
  const auto launch = [&](char end) {
    ends_.Run(
        &one_, [] { return size_t{100}; },
        [&] {
          Add(end);
          now_ += std::chrono::microseconds(GangEnds::kLongest) / 4;
        });
  };
  for (const char end : {'a', 'b', 'c', 'd'}) launch(end);
  EXPECT_EQ(told_, "");
  launch('e');
  EXPECT_EQ(told_, "abcd");
}

TEST_F(GangEndsTest, NoneWaitsForCodeThatIsNotKnownToBeShort) {
  Run(one_, 'a', 1);
  std::string before;
  ends_.Run(
      &two_, [] { return size_t{1}; }, [&] { before = told_; });
  EXPECT_EQ(before, "a");
}

TEST_F(GangEndsTest, NoneWaitsForCodeWhoseLastLaunchWasNotShort) {
  ends_.Run(
      &one_, [] { return size_t{1}; },
      [&] {
        Add('a');
        now_ += GangEnds::kShort;
      });
  EXPECT_EQ(told_, "");
  std::string before;
  ends_.Run(
      &one_, [] { return size_t{1}; }, [&] { before = told_; });
  EXPECT_EQ(before, "a");
}

TEST_F(GangEndsTest, NoneWaitsForALaunchThatGoesOnElsewhere) {
  Run(one_, 'a', 1);
  ends_.Run(
      &one_, [] { return size_t{1}; }, [] {});
  EXPECT_EQ(told_, "a");
  Add('b');  // its end, from another place
  EXPECT_EQ(told_, "ab");
}

TEST_F(GangEndsTest, AThreadThatWaitsLongTellsThemBefore) {
  Run(one_, 'a', 1);
  ends_.Run(
      &one_, [] { return size_t{1}; },
      [&] {
        EXPECT_EQ(told_, "");
        ends_.Flush();
        EXPECT_EQ(told_, "a");
        Add('b');
      });
  EXPECT_EQ(told_, "a");
  ends_.Flush();
  EXPECT_EQ(told_, "ab");
}

}  // namespace
}  // namespace fairway
