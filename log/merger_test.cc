// SPDX-License-Identifier: Apache-2.0
#include "log/merger.h"

#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

using Numbers = std::vector<LogNumber>;

LogReport Ended(LogRanges ranges, uint64_t version = 1) { return {version, 0, std::move(ranges)}; }

class LogMergerTest : public ::testing::Test {
 protected:
  LogMergerTest() {
    merger_.Begin(1, 3);
    merger_.Append(1, {0, 1});
    merger_.Append(2, {1});
    merger_.Append(3, {0, 1, 2});
  }
  ~LogMergerTest() override { EXPECT_EQ(merger_.CheckInvariants(), absl::OkStatus()); }
  LogMerger merger_;
};

TEST_F(LogMergerTest, AnEntryHasEndedWhenAllChildrenThatItConcernsSaySo) {
  EXPECT_TRUE(merger_.Take(1, Ended({{1, 3}}), 3).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{2});
  EXPECT_TRUE(merger_.Take(0, Ended({{3, 3}}), 3).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{});
  EXPECT_TRUE(merger_.Take(0, Ended({{1, 1}}), 3).ok());
  EXPECT_TRUE(merger_.Take(2, Ended({{3, 3}}), 3).ok());
  EXPECT_EQ(merger_.TakeEnded(), (Numbers{1, 3}));
  EXPECT_EQ(merger_.pending(), 0u);
}

TEST_F(LogMergerTest, AnEndThatIsToldBeforeTheEntryIsAppendedCountsThen) {
  EXPECT_TRUE(merger_.Take(0, Ended({{3, 5}}), 9).ok());
  EXPECT_TRUE(merger_.Take(1, Ended({{5, 6}}), 9).ok());
  EXPECT_EQ(merger_.early_ranges(), 2u);
  EXPECT_EQ(merger_.TakeEnded(), Numbers{});
  merger_.Append(5, {0, 1});  // 4 is concluded, or concerns nobody here
  EXPECT_EQ(merger_.TakeEnded(), Numbers{5});
  EXPECT_EQ(merger_.early_ranges(), 1u);
  merger_.Append(6, {0, 1});
  EXPECT_EQ(merger_.TakeEnded(), Numbers{});
  EXPECT_EQ(merger_.early_ranges(), 0u);
  EXPECT_TRUE(merger_.Take(0, Ended({{6, 6}}), 9).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{6});
}

TEST_F(LogMergerTest, WhatIsToldTwiceEndsOnce) {
  EXPECT_TRUE(merger_.Take(1, Ended({{1, 2}}), 3).ok());
  EXPECT_TRUE(merger_.Take(1, Ended({{1, 2}}), 3).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{2});
  EXPECT_TRUE(merger_.Take(0, Ended({{1, 1}}), 3).ok());
  EXPECT_TRUE(merger_.Take(0, Ended({{1, 1}}), 3).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{1});
}

TEST_F(LogMergerTest, ANewVersionCountsFromNothing) {
  EXPECT_TRUE(merger_.Take(0, Ended({{1, 1}}), 3).ok());
  merger_.Begin(2, 2);
  merger_.Append(1, {0, 1});
  EXPECT_TRUE(merger_.Take(1, Ended({{1, 1}}, 2), 1).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{});
  EXPECT_TRUE(merger_.Take(0, Ended({{1, 1}}, 1), 1).ok());  // of the old version
  EXPECT_EQ(merger_.TakeEnded(), Numbers{});
  EXPECT_TRUE(merger_.Take(0, Ended({{1, 1}}, 2), 1).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{1});
}

TEST_F(LogMergerTest, WhatWasNeverSentOrDoesNotConcernTheChildIsRefusedAsAWhole) {
  EXPECT_EQ(Text(merger_.Take(1, Ended({{1, 2}, {5, 5}}), 3)),
            "child 1 has ended 5 to 5, but was sent entries up to 3 only");
  EXPECT_EQ(Text(merger_.Take(0, Ended({{1, 3}}), 3)),
            "child 0 has ended 1 to 3, but 2 does not concern it");
  EXPECT_FALSE(merger_.Take(2, Ended({{2, 2}}), 3).ok());
  EXPECT_FALSE(merger_.Take(0, Ended({{1, 1}}), 0).ok());
  EXPECT_FALSE(merger_.Take(0, Ended({{1, 1}}, 2), 3).ok());
  EXPECT_FALSE(merger_.Take(3, Ended({{1, 1}}), 3).ok());
  EXPECT_FALSE(merger_.Take(0, Ended({{3, 1}}), 3).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{});
  EXPECT_TRUE(merger_.Take(1, Ended({{1, 3}}), 3).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{2});
}

TEST_F(LogMergerTest, WhatConcernsNobodyHasEnded) {
  merger_.Append(4, {});
  EXPECT_EQ(merger_.TakeEnded(), Numbers{4});
}

TEST_F(LogMergerTest, AHugeRangeCostsWhatIsPending) {
  merger_.Append(LogNumber{1} << 40, {0});
  EXPECT_TRUE(merger_.Take(0, Ended({{4, LogNumber{1} << 40}}), LogNumber{1} << 40).ok());
  EXPECT_EQ(merger_.TakeEnded(), Numbers{LogNumber{1} << 40});
}

}  // namespace
}  // namespace fairway
