// SPDX-License-Identifier: Apache-2.0
#include "log/follower.h"

#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

using Numbers = std::vector<LogNumber>;

LogFrame Frame(uint64_t version, Numbers numbers, LogRanges concluded = {}) {
  LogFrame frame{version, std::move(concluded), {}};
  for (const LogNumber n : numbers)
    frame.entries.push_back({{n, LogSpan::One(3), EntryKind::kCommand, 0}, "b"});
  return frame;
}

Numbers Taken(LogFollower& follower, const LogFrame& frame) {
  const auto fresh = follower.Take(frame);
  EXPECT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(follower.CheckInvariants(), absl::OkStatus());
  Numbers out;
  for (const auto& entry : *fresh) out.push_back(entry.header.number);
  return out;
}

TEST(LogFollowerTest, EntriesAreHandedOnOnce) {
  LogFollower follower(3);
  EXPECT_EQ(Taken(follower, Frame(1, {2, 5})), (Numbers{2, 5}));
  EXPECT_EQ(Taken(follower, Frame(1, {2, 5, 9})), (Numbers{9}));
  EXPECT_EQ(Taken(follower, Frame(2, {5, 9, 10})), (Numbers{10}));
  EXPECT_EQ(Taken(follower, Frame(1, {11})), Numbers{});  // of an old version
  EXPECT_EQ(follower.applied(), 10u);
}

TEST(LogFollowerTest, ReportsTellWhatIsNewAndANewVersionAll) {
  LogFollower follower(3);
  Taken(follower, Frame(1, {1, 2, 3, 4}));
  follower.Next();
  EXPECT_TRUE(follower.Ended(1).ok());
  EXPECT_TRUE(follower.Ended(3).ok());
  EXPECT_TRUE(follower.Urgent());
  LogReport report = follower.Next();
  EXPECT_EQ(report.version, 1u);
  EXPECT_EQ(report.applied, 4u);
  EXPECT_EQ(report.ended, (LogRanges{{1, 1}, {3, 3}}));
  EXPECT_TRUE(follower.Ended(2).ok());
  EXPECT_EQ(follower.Next().ended, (LogRanges{{2, 2}}));
  Taken(follower, Frame(1, {}, {{1, 2}}));
  EXPECT_EQ(follower.kept().ToRanges(), (LogRanges{{3, 3}}));
  EXPECT_FALSE(follower.Urgent());
  Taken(follower, Frame(2, {}));
  EXPECT_TRUE(follower.Urgent());
  report = follower.Next();
  EXPECT_EQ(report.version, 2u);
  EXPECT_EQ(report.ended, (LogRanges{{3, 3}}));
  follower.Resend();
  EXPECT_EQ(follower.Next().ended, (LogRanges{{3, 3}}));
}

TEST(LogFollowerTest, AnEndThatNobodyWaitsForNeedsNoReportOfItsOwn) {
  LogFollower follower(3);
  Taken(follower, Frame(1, {1, 2}));
  follower.Next();
  EXPECT_TRUE(follower.Ended(1, false).ok());
  EXPECT_FALSE(follower.Urgent());
  EXPECT_TRUE(follower.more());
  EXPECT_TRUE(follower.Ended(2).ok());
  EXPECT_EQ(follower.Next().ended, (LogRanges{{1, 2}}));
}

TEST(LogFollowerTest, AllEntriesOfAFrameMayEndAtOnce) {
  LogFollower follower(3);
  const LogFrame frame = Frame(1, {1, 2, 5, 6, 7});
  const auto entries = follower.Take(frame);
  ASSERT_TRUE(entries.ok());
  EXPECT_TRUE(follower.Ended(*entries, false).ok());
  EXPECT_TRUE(follower.running().empty());
  EXPECT_FALSE(follower.Ended(*entries, false).ok());
  Taken(follower, Frame(1, {8, 9}));
  EXPECT_TRUE(follower.Ended(8).ok());
  EXPECT_EQ(follower.running().ToRanges(), (LogRanges{{9, 9}}));
  EXPECT_EQ(follower.Next().ended, (LogRanges{{1, 2}, {5, 8}}));
  EXPECT_TRUE(follower.CheckInvariants().ok());
}

TEST(LogFollowerTest, WhatRunsHereIsNotConcluded) {
  LogFollower follower(3);
  Taken(follower, Frame(1, {1, 2}));
  ASSERT_TRUE(follower.Ended(1).ok());
  const auto taken = follower.Take(Frame(2, {3}, {{1, 2}}));
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(follower.version(), 1u);
  EXPECT_EQ(follower.applied(), 2u);
  EXPECT_EQ(follower.kept().ToRanges(), (LogRanges{{1, 1}}));
}

TEST(LogFollowerTest, EntriesOfOthersAndEndsOfWhatDoesNotRunAreRefused) {
  LogFollower follower(4);
  const auto taken = follower.Take(Frame(1, {1}));
  EXPECT_EQ(Text(taken.status()), "entry 1 is for executors 3 to 3, expected 4 among them");
  EXPECT_EQ(follower.applied(), 0u);
  EXPECT_EQ(follower.Ended(1).code(), absl::StatusCode::kFailedPrecondition);
  LogFollower relay(std::nullopt);
  EXPECT_EQ(Taken(relay, Frame(1, {1})), Numbers{1});
  EXPECT_TRUE(relay.Ended(1).ok());
  EXPECT_FALSE(relay.Ended(1).ok());
}

}  // namespace
}  // namespace fairway
