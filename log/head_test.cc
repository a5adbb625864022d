// SPDX-License-Identifier: Apache-2.0
#include "log/head.h"

#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

using Numbers = std::vector<LogNumber>;

NewLogEntry Entry(LogSpan span, size_t bytes = 10, uint8_t flags = 0,
                  SessionId session = SessionId(1)) {
  return {session, span, EntryKind::kRun, flags, std::string(bytes, 'b')};
}

Numbers InNextFrame(LogHead& head, uint32_t child) {
  const std::string bytes = head.Next(child);
  const auto frame = DecodeLogFrame(bytes);
  EXPECT_TRUE(frame.ok()) << frame.status();
  Numbers out;
  for (const auto& entry : frame->entries) out.push_back(entry.header.number);
  return out;
}

constexpr LogSpan kBoth{0, 1};

// Executors 0, 1 and 2, each a child.
class LogHeadTest : public ::testing::Test {
 protected:
  LogHeadTest() {
    EXPECT_TRUE(head_.Begin({{{{0, 0}}}, {{{1, 0}}}, {{{2, 0}}}}).ok());
    for (uint32_t child = 0; child < 3; ++child) EXPECT_TRUE(head_.Attach(child, 0).ok());
  }
  ~LogHeadTest() override { EXPECT_EQ(head_.CheckInvariants(), absl::OkStatus()); }
  absl::Status Ended(uint32_t child, LogNumber applied, LogRanges ranges) {
    return head_.Take(child, {head_.version(), applied, std::move(ranges)});
  }
  LogHead head_{LogLimits{1000, 2000, 500}};
};

TEST_F(LogHeadTest, EntriesGoToThoseTheyConcernAndAreConcludedByThem) {
  EXPECT_EQ(*head_.Append(Entry(kBoth)), 1u);
  EXPECT_EQ(*head_.Append(Entry(LogSpan::One(2))), 2u);
  EXPECT_EQ(InNextFrame(head_, 0), Numbers{1});
  EXPECT_EQ(InNextFrame(head_, 1), Numbers{1});
  EXPECT_EQ(InNextFrame(head_, 2), Numbers{2});
  EXPECT_TRUE(Ended(0, 1, {{1, 1}}).ok());
  EXPECT_TRUE(Ended(2, 2, {{2, 2}}).ok());
  EXPECT_EQ(head_.TakeConcluded(), Numbers{2});
  EXPECT_TRUE(Ended(1, 1, {{1, 1}}).ok());
  EXPECT_EQ(head_.TakeConcluded(), Numbers{1});
  EXPECT_EQ(head_.log().bytes(), 0u);
  EXPECT_TRUE(head_.outbox(0).HasNews());  // entry 1 is concluded
}

TEST(LogHeadFloorTest, AFloorIsOfTheExecutorThatLivesAndNotOfItsPredecessor) {
  LogHead head(LogLimits{.floors = true});
  ASSERT_TRUE(head.Begin({{{{0, 0}, {1, 0}}}}).ok());
  ASSERT_TRUE(head.Attach(0, 0).ok());
  for (const LogSpan span : {kBoth, LogSpan::One(1), LogSpan::One(0)})
    ASSERT_TRUE(head.Append(Entry(span)).ok());
  EXPECT_EQ(head.floor(0), 0u);
  head.Next(0);
  ASSERT_TRUE(head.Take(0, {1, 3, {{1, 2}}}).ok());
  EXPECT_EQ(head.floor(0), 1u);
  EXPECT_EQ(head.floor(1), 2u);
  // 0 has a successor, for which 3 was not. 1 lives.
  ASSERT_TRUE(head.Begin({{{{0, 3}}}, {{{1, 0}}}}).ok());
  EXPECT_EQ(head.TakeConcluded(), (Numbers{1, 2, 3}));
  EXPECT_EQ(head.floor(0), 0u);
  EXPECT_EQ(head.floor(1), 2u);
  EXPECT_EQ(head.floor(2), 0u);
}

TEST(LogHeadFloorTest, FloorsOfAnyNumberOfSpansAreKept) {
  LogHead head(LogLimits{.floors = true});
  LogChild all;
  for (ExecutorIndex e = 0; e < 40; ++e) all.live.push_back({e, 0});
  ASSERT_TRUE(head.Begin({all}).ok());
  ASSERT_TRUE(head.Attach(0, 0).ok());
  for (ExecutorIndex e = 0; e < 39; ++e) ASSERT_TRUE(head.Append(Entry({e, e + 1})).ok());
  while (head.outbox(0).HasNews()) head.Next(0);
  ASSERT_TRUE(head.Take(0, {1, 39, {{1, 39}}}).ok());
  for (ExecutorIndex e = 0; e < 40; ++e) EXPECT_EQ(head.floor(e), std::min<LogNumber>(e + 1, 39));
}

TEST(LogHeadFloorTest, OpenEntriesOfAnExecutorAreCounted) {
  LogHead head(LogLimits{.floors = true});
  ASSERT_TRUE(head.Begin({{{{0, 0}, {1, 0}}}}).ok());
  ASSERT_TRUE(head.Attach(0, 0).ok());
  for (const LogSpan span : {LogSpan::One(0), kBoth, LogSpan::One(1)})
    ASSERT_TRUE(head.Append(Entry(span)).ok());
  ASSERT_TRUE(head.Append(Entry(LogSpan::One(0))).ok());
  const size_t bytes = Entry(LogSpan::One(0)).body_bytes();
  EXPECT_EQ(head.open(0), (LogHead::Open{2, 2 * bytes}));
  EXPECT_EQ(head.open(1), (LogHead::Open{1, bytes}));
  head.Next(0);
  ASSERT_TRUE(head.Take(0, {1, 4, {{1, 1}, {3, 3}}}).ok());
  EXPECT_EQ(head.open(0), (LogHead::Open{1, bytes}));
  EXPECT_EQ(head.open(1), LogHead::Open());
  ASSERT_TRUE(head.Begin({{{{0, 4}}}}).ok());  // 0 has a successor, for which 4 was not
  EXPECT_EQ(head.open(0), LogHead::Open());
  EXPECT_EQ(head.CheckInvariants(), absl::OkStatus());
}

TEST_F(LogHeadTest, AChildMayReportAnyNumberOfEntriesThatAreConcluded) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(head_.Append(Entry(LogSpan::One(0))).ok());
  while (head_.outbox(0).HasNews()) head_.Next(0);
  ASSERT_TRUE(Ended(0, 10, {{1, 10}}).ok());
  ASSERT_TRUE(head_.Begin({{{{0, 0}}}, {{{1, 0}}}}).ok());
  ASSERT_TRUE(head_.Attach(0, 10).ok());
  EXPECT_TRUE(Ended(0, 10, {{1, 1}, {3, 10}}).ok());
  EXPECT_EQ(head_.early_ranges(), 0u);
}

TEST_F(LogHeadTest, BothChildrenOfASpanGetTheSameBytes) {
  ASSERT_TRUE(head_.Append(Entry(kBoth, 100)).ok());
  EXPECT_EQ(head_.Next(0), head_.Next(1));
}

TEST_F(LogHeadTest, WhoIsLostConcernsNobodyAndASuccessorGetsNothingOld) {
  ASSERT_TRUE(head_.Append(Entry(kBoth)).ok());
  ASSERT_TRUE(head_.Append(Entry(LogSpan::One(1))).ok());
  InNextFrame(head_, 0);
  EXPECT_TRUE(Ended(0, 1, {{1, 1}}).ok());
  // Executor 1 is lost: entry 2 was for it alone. Entry 1 waits for executor 0 to report again.
  ASSERT_TRUE(head_.Begin({{{{0, 0}}}, {{{2, 0}}}}).ok());
  EXPECT_EQ(head_.TakeConcluded(), Numbers{2});
  EXPECT_EQ(head_.Append(Entry(LogSpan::One(1))).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(head_.Attach(0, 1, 1).ok());
  EXPECT_TRUE(Ended(0, 1, {{1, 1}}).ok());
  EXPECT_EQ(head_.TakeConcluded(), Numbers{1});
  // Its successor takes its place.
  ASSERT_TRUE(head_.Append(Entry(kBoth)).ok());
  ASSERT_TRUE(head_.Begin({{{{0, 0}}}, {{{1, 3}}}, {{{2, 0}}}}).ok());
  ASSERT_TRUE(head_.Attach(1, 0).ok());
  EXPECT_EQ(InNextFrame(head_, 1), Numbers{});
  EXPECT_EQ(*head_.Append(Entry(kBoth)), 4u);
  EXPECT_EQ(InNextFrame(head_, 1), Numbers{4});
}

TEST_F(LogHeadTest, ASlowChildHoldsUpOnlyItsUsers) {
  const SessionId nobody;
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(head_.Append(Entry(LogSpan::One(1), 900, 0, nobody)).ok());
  EXPECT_EQ(head_.Append(Entry(kBoth, 900, 0, nobody)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(head_.log().last(), 2u);
  EXPECT_TRUE(head_.Append(Entry(LogSpan::One(0), 900, 0, nobody)).ok());
  EXPECT_TRUE(head_.Append(Entry(kBoth, 900, kNeverWaits, nobody)).ok());
  InNextFrame(head_, 1);
  InNextFrame(head_, 1);
  EXPECT_FALSE(head_.Append(Entry(LogSpan::One(1), 900, 0, nobody)).ok());
  EXPECT_TRUE(Ended(1, 2, {}).ok());  // they have come, and run
  EXPECT_TRUE(head_.Append(Entry(LogSpan::One(1), 900, 0, nobody)).ok());
}

TEST_F(LogHeadTest, AChildThatLiesChangesNothing) {
  ASSERT_TRUE(head_.Append(Entry(kBoth)).ok());
  InNextFrame(head_, 0);
  EXPECT_FALSE(Ended(2, 0, {{1, 1}}).ok());  // does not concern it
  EXPECT_FALSE(Ended(1, 0, {{1, 1}}).ok());  // not sent yet
  EXPECT_FALSE(Ended(0, 2, {{1, 1}}).ok());  // has more than it was sent
  EXPECT_FALSE(Ended(7, 0, {}).ok());
  EXPECT_EQ(head_.outbox(0).applied(), 0u);
  EXPECT_TRUE(head_.TakeConcluded().empty());
  EXPECT_FALSE(head_.Attach(7, 0).ok());
  EXPECT_FALSE(head_.Begin({{{{0, 0}, {0, 0}}}}).ok());
  EXPECT_FALSE(head_.Begin({{{{0, 9}}}}).ok());
  EXPECT_EQ(head_.version(), 1u);
}

}  // namespace
}  // namespace fairway
