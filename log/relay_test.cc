// SPDX-License-Identifier: Apache-2.0
#include "log/relay.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ranges = std::vector<std::pair<LogNumber, LogNumber>>;

// A relay of version 3 with executors 1 and 2, and another relay with 3 and 4 below it.
class LogRelayTest : public ::testing::Test {
 protected:
  LogRelayTest()
      : relay_(LogRelay::Make(3, {{{{{1, 0}}}, 0}, {{{{2, 0}}}, 7}, {{{{3, 0}, {4, 0}}}, 0}},
                              {.child_bytes = 200, .frame_bytes = 256})
                   .value()) {}
  ~LogRelayTest() override { EXPECT_EQ(relay_.CheckInvariants(), absl::OkStatus()); }

  // A frame with these entries, (number, executor), whose bodies name their number.
  absl::Status Take(std::vector<std::pair<LogNumber, ExecutorIndex>> entries,
                    LogRanges concluded = {}, uint64_t version = 3) {
    LogFrameWriter writer(version, concluded);
    for (const auto& [number, executor] : entries)
      writer.Add({number, LogSpan::One(executor), EntryKind::kCommand, 0}, std::to_string(number));
    const std::string bytes = writer.Take();
    return relay_.TakeFrame(DecodeLogFrame(bytes).value());
  }
  // The bodies of what leaves for a child.
  std::vector<std::string> Sent(uint32_t child) {
    std::vector<std::string> out;
    concluded_.clear();
    while (relay_.outbox(child).HasNews()) {
      const std::string bytes = relay_.Next(child);
      const LogFrame frame = DecodeLogFrame(bytes).value();
      EXPECT_EQ(frame.version, 3u);
      for (const LogRange& range : frame.concluded)
        concluded_.emplace_back(range.first, range.last);
      for (const LogFrame::Received& entry : frame.entries) out.emplace_back(entry.body);
    }
    return out;
  }
  Ranges Reported() {
    Ranges out;
    for (const LogRange& range : relay_.Next().ended) out.emplace_back(range.first, range.last);
    return out;
  }

  LogRelay relay_;
  Ranges concluded_;  // of what Sent returned last
};

TEST_F(LogRelayTest, PassesEachEntryToWhomItConcernsAndReportsItOnceAllHaveEndedIt) {
  for (uint32_t child = 0; child < 3; ++child) ASSERT_TRUE(relay_.Attach(child, 7).ok());
  LogFrameWriter writer(3, {});
  writer.Add({8, LogSpan{2, 4}, EntryKind::kRun, 0}, "several");
  const std::string bytes = writer.Take();
  ASSERT_TRUE(relay_.TakeFrame(DecodeLogFrame(bytes).value()).ok());
  ASSERT_TRUE(Take({{9, 1}}).ok());
  EXPECT_THAT(Sent(0), ElementsAre("9"));
  EXPECT_THAT(Sent(1), ElementsAre("several"));
  EXPECT_THAT(Sent(2), ElementsAre("several"));
  EXPECT_TRUE(relay_.TakeReport(1, {3, 8, {{8, 8}}}).ok());
  EXPECT_THAT(Reported(), IsEmpty());
  EXPECT_TRUE(relay_.TakeReport(2, {3, 8, {{8, 8}}}).ok());
  EXPECT_TRUE(relay_.HasNews());
  EXPECT_THAT(Reported(), (Ranges{{8, 8}}));
  EXPECT_THAT(Reported(), IsEmpty());
  EXPECT_EQ(relay_.Next().applied, 9u);
}

TEST_F(LogRelayTest, OnlyAnEndForWhichSomebodyWaitsIsUrgent) {
  for (uint32_t child = 0; child < 3; ++child) ASSERT_TRUE(relay_.Attach(child, 7).ok());
  LogFrameWriter writer(3, {});
  writer.Add({8, LogSpan{1, 2}, EntryKind::kCommand, 0}, "taken");
  writer.Add({9, LogSpan{1, 2}, EntryKind::kCommand, kEndsLater}, "runs");
  const std::string bytes = writer.Take();
  ASSERT_TRUE(relay_.TakeFrame(DecodeLogFrame(bytes).value()).ok());
  Reported();  // the first report says that the version has begun
  for (uint32_t child = 0; child < 2; ++child) {
    Sent(child);
    EXPECT_TRUE(relay_.TakeReport(child, {3, 9, {{8, 8}}}).ok());
  }
  EXPECT_TRUE(relay_.HasNews());
  EXPECT_FALSE(relay_.Urgent());
  EXPECT_TRUE(relay_.TakeReport(0, {3, 9, {{9, 9}}}).ok());
  EXPECT_FALSE(relay_.Urgent());
  EXPECT_TRUE(relay_.TakeReport(1, {3, 9, {{9, 9}}}).ok());
  EXPECT_TRUE(relay_.Urgent());
  EXPECT_THAT(Reported(), (Ranges{{8, 9}}));
}

TEST_F(LogRelayTest, AnEndThatIsReportedBeforeItsEntryComesAgainCountsOnceItComes) {
  ASSERT_TRUE(relay_.Attach(0, 12).ok());
  EXPECT_TRUE(relay_.TakeReport(0, {3, 12, {{5, 5}, {10, 12}}}).ok());
  EXPECT_THAT(Reported(), IsEmpty());
  ASSERT_TRUE(Take({{10, 1}, {11, 2}, {12, 1}, {13, 1}}, {{1, 9}}).ok());
  EXPECT_THAT(Reported(), (Ranges{{10, 10}, {12, 12}}));
  // The child has everything up to 12.
  EXPECT_THAT(Sent(0), ElementsAre("13"));
}

TEST_F(LogRelayTest, EntriesOfAChildWithoutALinkGatherAndBodiesGoOnceTheyCame) {
  ASSERT_TRUE(Take({{10, 1}, {11, 1}, {12, 2}}).ok());
  EXPECT_GT(relay_.bytes(), 60u);
  ASSERT_TRUE(relay_.Attach(0, 10).ok());
  EXPECT_THAT(Sent(0), ElementsAre("11"));
  relay_.Detach(0);
  ASSERT_TRUE(relay_.Attach(0, 10).ok());
  EXPECT_THAT(Sent(0), ElementsAre("11"));
  EXPECT_TRUE(relay_.TakeReport(0, {3, 11, {}}).ok());
  relay_.GiveUp(1);
  EXPECT_EQ(relay_.bytes(), 0u);
  EXPECT_EQ(relay_.open(), 3u);
  EXPECT_FALSE(relay_.Attach(1, 12).ok());
}

TEST_F(LogRelayTest, ANewLinkIsToldAllThatIsConcluded) {
  ASSERT_TRUE(relay_.Attach(0, 0).ok());
  ASSERT_TRUE(Take({{2, 1}, {4, 1}, {6, 1}}).ok());
  EXPECT_THAT(Sent(0), ElementsAre("2", "4", "6"));
  EXPECT_THAT(concluded_, IsEmpty());
  EXPECT_TRUE(relay_.TakeReport(0, {3, 6, {{2, 2}, {4, 4}}}).ok());
  ASSERT_TRUE(Take({}, {{1, 2}}).ok());
  EXPECT_THAT(Sent(0), IsEmpty());
  EXPECT_THAT(concluded_, (Ranges{{1, 2}}));
  relay_.Detach(0);
  ASSERT_TRUE(relay_.Attach(0, 6).ok());
  EXPECT_THAT(Sent(0), IsEmpty());
  // 3 and 5 concern nobody here. 4 has ended, but the parent has not said that it is concluded.
  EXPECT_THAT(concluded_, (Ranges{{1, 3}, {5, 5}}));
}

TEST_F(LogRelayTest, AChildHearsThatWhatItEndedInAnEarlierVersionIsConcluded) {
  ASSERT_TRUE(relay_.Attach(0, 8).ok());  // before anything came
  Sent(0);
  EXPECT_TRUE(relay_.TakeReport(0, {3, 8, {{5, 8}}}).ok());
  ASSERT_TRUE(Take({}, {{1, 7}, {9, 9}}).ok());
  EXPECT_THAT(Sent(0), IsEmpty());
  EXPECT_THAT(concluded_, (Ranges{{1, 7}, {9, 9}}));
  ASSERT_TRUE(relay_.Attach(1, 9).ok());  // 8 has yet to come
  Sent(1);
  EXPECT_THAT(concluded_, (Ranges{{1, 7}, {9, 9}}));
  ASSERT_TRUE(Take({{8, 1}, {10, 1}}).ok());
  EXPECT_THAT(Reported(), (Ranges{{8, 8}}));
  ASSERT_TRUE(Take({}, {{8, 8}}).ok());
  EXPECT_THAT(Sent(0), ElementsAre("10"));
  EXPECT_THAT(concluded_, (Ranges{{8, 8}}));
}

TEST_F(LogRelayTest, WhoLacksConcludedEntriesIsRefused) {
  EXPECT_EQ(relay_.Attach(1, 6).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(relay_.Attach(1, 7).ok());
  ASSERT_TRUE(Take({{9, 2}}).ok());
  Sent(1);
  EXPECT_TRUE(relay_.TakeReport(1, {3, 9, {{9, 9}}}).ok());
  relay_.Detach(1);
  ASSERT_TRUE(Take({}, {{9, 9}}).ok());
  EXPECT_EQ(relay_.Attach(1, 8).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(relay_.Attach(1, 9).ok());
}

TEST_F(LogRelayTest, RefusesWhatItsParentAndItsChildrenCannotMean) {
  EXPECT_FALSE(Take({{9, 1}}, {}, 2).ok());
  EXPECT_FALSE(Take({{9, 1}}, {}, 4).ok());
  EXPECT_FALSE(Take({{9, 5}}).ok());  // concerns nobody here
  ASSERT_TRUE(Take({{9, 1}}).ok());
  EXPECT_FALSE(Take({}, {{9, 9}}).ok());  // has not ended
  ASSERT_TRUE(relay_.Attach(0, 0).ok());
  EXPECT_FALSE(relay_.TakeReport(0, {3, 9, {}}).ok());  // it was not sent
  ASSERT_TRUE(relay_.Attach(1, 9).ok());
  EXPECT_FALSE(relay_.TakeReport(1, {3, 9, {{9, 9}}}).ok());  // it does not concern it
  EXPECT_FALSE(relay_.TakeReport(1, {4, 9, {}}).ok());
  EXPECT_TRUE(relay_.TakeReport(1, {2, 9, {{9, 9}}}).ok());  // counts for nothing
  EXPECT_FALSE(relay_.TakeReport(3, {3, 0, {}}).ok());
  EXPECT_FALSE(relay_.Attach(3, 0).ok());
  EXPECT_THAT(Reported(), IsEmpty());
}

TEST_F(LogRelayTest, EarlyEndsAreLimited) {
  ASSERT_TRUE(relay_.Attach(0, kMaxLogNumber).ok());
  LogRanges many;
  for (LogNumber n = 1; many.size() < kMaxEarlyRanges; n += 2) many.push_back({n, n});
  EXPECT_TRUE(relay_.TakeReport(0, {3, kMaxLogNumber, many}).ok());
  const LogNumber next = many.back().last + 2;
  EXPECT_FALSE(relay_.TakeReport(0, {3, kMaxLogNumber, {{next, next}}}).ok());
  // One range may stand for any amount.
  ASSERT_TRUE(relay_.Attach(2, kMaxLogNumber).ok());
  EXPECT_TRUE(relay_.TakeReport(2, {3, kMaxLogNumber, {{1, kMaxLogNumber}}}).ok());
}

TEST_F(LogRelayTest, AChildThatTakesNothingIsCrowded) {
  for (LogNumber n = 10; !relay_.Crowded(0); ++n) {
    ASSERT_LT(n, 30u);
    ASSERT_TRUE(Take({{n, 1}}).ok());
  }
  EXPECT_FALSE(relay_.Crowded(1));
  relay_.GiveUp(0);
  EXPECT_FALSE(relay_.Crowded(0));
}

TEST_F(LogRelayTest, ReportsAgainOnANewLinkToItsParent) {
  ASSERT_TRUE(relay_.Attach(0, 0).ok());
  ASSERT_TRUE(Take({{9, 1}}).ok());
  Sent(0);
  EXPECT_TRUE(relay_.TakeReport(0, {3, 9, {{9, 9}}}).ok());
  EXPECT_THAT(Reported(), (Ranges{{9, 9}}));
  EXPECT_EQ(relay_.Ask(), 9u);
  EXPECT_THAT(Reported(), (Ranges{{9, 9}}));
  ASSERT_TRUE(Take({{9, 1}}, {{9, 9}}).ok());  // sent again, and concluded
  EXPECT_EQ(relay_.open(), 0u);
}

}  // namespace
}  // namespace fairway
