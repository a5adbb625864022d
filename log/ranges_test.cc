// SPDX-License-Identifier: Apache-2.0
#include "log/ranges.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "log/index_set.h"

namespace fairway {
namespace {

TEST(LogRangesTest, NumbersThatTouchAreOneRange) {
  LogRangeSet set;
  for (const LogNumber n : {5, 3, 1, 4, 9}) set.Add(n);
  EXPECT_EQ(set.ToRanges(), (LogRanges{{1, 1}, {3, 5}, {9, 9}}));
  set.Add(2);
  set.Add(2);
  EXPECT_EQ(set.ToRanges(), (LogRanges{{1, 5}, {9, 9}}));
  EXPECT_EQ(set.TakeFront(1), (LogRanges{{1, 5}}));
  EXPECT_EQ(set.ToRanges(), (LogRanges{{9, 9}}));
}

TEST(LogRangesTest, ARandomSetHasTheNumbersThatWereAddedAndNotRemoved) {
  std::mt19937_64 random(7);
  LogRangeSet set;
  std::set<LogNumber> naive;
  for (int i = 0; i < 5000; ++i) {
    const LogNumber first = 1 + random() % 60;
    const LogRange range{first, first + random() % 10};
    if (random() % 4 == 0) {
      set.Remove(range);
      for (LogNumber n = range.first; n <= range.last; ++n) naive.erase(n);
    } else if (random() % 4 == 0) {
      set.Add(range);
      for (LogNumber n = range.first; n <= range.last; ++n) naive.insert(n);
    } else {
      set.Add(first);
      naive.insert(first);
    }
    const auto at = naive.lower_bound(range.first);
    ASSERT_EQ(set.Meets(range), at != naive.end() && *at <= range.last);
    bool all = true;
    for (LogNumber n = range.first; n <= range.last; ++n) all = all && naive.contains(n);
    ASSERT_EQ(set.Covers(range), all);
    size_t count = 0;
    for (const LogRange& r : set.ToRanges()) count += r.last - r.first + 1;
    ASSERT_EQ(count, naive.size());
    for (LogNumber n = 0; n < 75; ++n) ASSERT_EQ(set.Contains(n), naive.contains(n));
    ASSERT_TRUE(CheckRanges(set.ToRanges()).ok());
  }
}

TEST(LogRangesTest, RangesThatRunBackwardsOverlapOrTouchAreRefused) {
  EXPECT_TRUE(CheckRanges({{1, 1}, {3, kMaxLogNumber}}).ok());
  for (const LogRanges& bad :
       {LogRanges{{0, 1}}, LogRanges{{3, 2}}, LogRanges{{1, 2}, {2, 3}}, LogRanges{{1, 2}, {3, 3}},
        LogRanges{{5, 5}, {1, 1}}, LogRanges{{1, kMaxLogNumber + 1}}}) {
    const absl::Status status = CheckRanges(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(Text(status).find("expected"), std::string::npos) << Text(status);
  }
}

TEST(IndexSetTest, LargeMembersComeAndGo) {
  IndexSet set{3, 64, 500};
  EXPECT_TRUE(set.Contains(3) && set.Contains(64) && set.Contains(500));
  EXPECT_FALSE(set.Contains(4) || set.Contains(128) || set.Contains(564) || set.Contains(5000));
  std::vector<uint32_t> members;
  set.ForEach([&](uint32_t member) { members.push_back(member); });
  EXPECT_EQ(members, (std::vector<uint32_t>{3, 64, 500}));
  set.Remove(500);
  set.Remove(5000);
  EXPECT_EQ(set, (IndexSet{64, 3}));
  set.Remove(64);
  set.Remove(3);
  EXPECT_TRUE(set.empty());
}

}  // namespace
}  // namespace fairway
