// SPDX-License-Identifier: Apache-2.0
#include "log/outbox.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

EntryRef Entry(LogNumber number, size_t bytes = 10, uint8_t flags = 0) {
  auto entry = std::make_shared<LogEntry>();
  entry->header = {number, LogSpan::One(0), EntryKind::kCommand, flags};
  entry->body.assign(bytes, 'b');
  return entry;
}

// The numbers in the next frame, and the ranges it tells as concluded.
std::vector<LogNumber> Next(LogOutbox& outbox, size_t most = 1 << 20, LogRanges* told = nullptr) {
  const std::string bytes = outbox.Next(most);
  const auto frame = DecodeLogFrame(bytes);
  EXPECT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(outbox.CheckInvariants(), absl::OkStatus());
  std::vector<LogNumber> out;
  for (const auto& entry : frame->entries) out.push_back(entry.header.number);
  if (told != nullptr) *told = frame->concluded;
  return out;
}

using Numbers = std::vector<LogNumber>;

TEST(LogOutboxTest, TheFirstFrameOfAVersionLeavesWithoutEntriesToo) {
  LogOutbox outbox(1);
  EXPECT_FALSE(outbox.HasNews());
  ASSERT_TRUE(outbox.Replay(0, 0, 0, {}).ok());
  EXPECT_TRUE(outbox.Urgent());
  EXPECT_EQ(Next(outbox), Numbers{});
  EXPECT_FALSE(outbox.HasNews());
}

TEST(LogOutboxTest, FramesKeepTheOrderAndTheirSize) {
  LogOutbox outbox(1);
  ASSERT_TRUE(outbox.Replay(0, 0, 0, {}).ok());
  for (LogNumber n = 1; n <= 5; ++n) outbox.Append(Entry(n, 100));
  outbox.Append(Entry(6, 1000));
  outbox.Append(Entry(7, 10));
  EXPECT_EQ(Next(outbox, 250), (Numbers{1, 2}));
  EXPECT_EQ(Next(outbox, 250), (Numbers{3, 4}));
  EXPECT_EQ(Next(outbox, 250), (Numbers{5}));
  EXPECT_EQ(Next(outbox, 250), (Numbers{6}));  // larger than a frame, alone
  EXPECT_EQ(Next(outbox, 250), (Numbers{7}));
  EXPECT_FALSE(outbox.HasNews());
  EXPECT_EQ(outbox.sent(), 7u);
}

TEST(LogOutboxTest, WhatDidNotComeIsSentAgainOnTheNextLink) {
  LogOutbox outbox(1);
  ASSERT_TRUE(outbox.Replay(0, 0, 0, {}).ok());
  for (LogNumber n = 1; n <= 4; ++n) outbox.Append(Entry(n));
  EXPECT_EQ(Next(outbox), (Numbers{1, 2, 3, 4}));
  outbox.Cut();
  outbox.Append(Entry(5));
  EXPECT_FALSE(outbox.HasNews());
  LogRangeSet concluded;
  concluded.Add(1);
  ASSERT_TRUE(outbox.Replay(2, 0, 5, concluded).ok());
  LogRanges told;
  EXPECT_EQ(Next(outbox, 1 << 20, &told), (Numbers{3, 4, 5}));
  EXPECT_EQ(told, (LogRanges{{1, 1}}));
}

TEST(LogOutboxTest, ALinkThatStandsOverAVersionMayStillLoseWhatIsOnItsWay) {
  LogOutbox outbox(2);
  for (const LogNumber n : {3, 4, 5}) outbox.Append(Entry(n));
  // The child has reported 3; 4 was sent.
  ASSERT_TRUE(outbox.Replay(3, 4, 5, {}).ok());
  EXPECT_EQ(outbox.sent(), 4u);  // so a report may name it
  EXPECT_TRUE(outbox.CheckApplied(4).ok());
  outbox.Cut();
  ASSERT_TRUE(outbox.Replay(3, 0, 5, {}).ok());
  EXPECT_EQ(Next(outbox), (Numbers{4, 5}));
}

TEST(LogOutboxTest, AVersionAmidAReplaySendsTheRestOfIt) {
  LogOutbox before(1);
  ASSERT_TRUE(before.Replay(0, 0, 0, {}).ok());
  for (LogNumber n = 1; n <= 4; ++n) before.Append(Entry(n));
  EXPECT_EQ(Next(before), (Numbers{1, 2, 3, 4}));
  before.Cut();  // 1 has come, the others are lost
  ASSERT_TRUE(before.Replay(1, 0, 4, {}).ok());
  EXPECT_EQ(Next(before, 20), (Numbers{2}));

  LogOutbox after(2);
  for (LogNumber n = 1; n <= 4; ++n) after.Append(Entry(n));
  ASSERT_TRUE(after.Keep(before.standing(), 4).ok());
  EXPECT_EQ(after.sent(), 4u);  // so a report may name it
  EXPECT_EQ(Next(after), (Numbers{3, 4}));
  EXPECT_EQ(after.CheckInvariants(), absl::OkStatus());
}

TEST(LogOutboxTest, AChildCannotHaveMoreThanItWasSentOrLessThanItSaid) {
  LogOutbox outbox(1);
  EXPECT_EQ(outbox.Replay(3, 0, 2, {}).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(outbox.Replay(0, 0, 2, {}).ok());
  outbox.Append(Entry(1));
  outbox.Append(Entry(2));
  EXPECT_EQ(Next(outbox, 20), (Numbers{1}));
  EXPECT_FALSE(outbox.CheckApplied(2).ok());
  outbox.Applied(1);
  EXPECT_EQ(Text(outbox.CheckApplied(0)), "a child has entries up to 0, expected 1 to 1");
  EXPECT_FALSE(outbox.Replay(0, 0, 2, {}).ok());
  EXPECT_EQ(outbox.CheckInvariants(), absl::OkStatus());
}

TEST(LogOutboxTest, BytesCountUntilTheChildHasTheEntry) {
  LogOutbox outbox(1);
  ASSERT_TRUE(outbox.Replay(0, 0, 0, {}).ok());
  outbox.Append(Entry(1, 100));
  outbox.Append(Entry(2, 100));
  const size_t one = 100 + kMaxEntryHeaderBytes;
  EXPECT_EQ(outbox.bytes(), 2 * one);
  EXPECT_EQ(outbox.unsent_bytes(), 2 * one);
  Next(outbox);
  EXPECT_EQ(outbox.bytes(), 2 * one);
  EXPECT_EQ(outbox.unsent_bytes(), 0u);
  outbox.Applied(1);
  EXPECT_EQ(outbox.bytes(), one);
}

TEST(LogOutboxTest, OneEntryAndWhatThereWasAtFirstMayExceedTheLimit) {
  LogOutbox outbox(1);
  ASSERT_TRUE(outbox.Replay(0, 0, 0, {}).ok());
  outbox.Append(Entry(1, 5000));
  EXPECT_FALSE(outbox.Crowded(1000));
  outbox.Append(Entry(2, 500));
  EXPECT_FALSE(outbox.Crowded(1000));
  outbox.Append(Entry(3, 501));
  EXPECT_TRUE(outbox.Crowded(1000));
  Next(outbox);
  outbox.Applied(2);
  EXPECT_FALSE(outbox.Crowded(1000));

  LogOutbox late(2);
  for (LogNumber n = 1; n <= 4; ++n) late.Append(Entry(n, 1000));
  EXPECT_TRUE(late.Crowded(1000));
  ASSERT_TRUE(late.Replay(0, 0, 4, {}).ok());
  EXPECT_FALSE(late.Crowded(1000));
  late.Append(Entry(5, 1));
  EXPECT_TRUE(late.Crowded(1000));
  late.Cut();
  ASSERT_TRUE(late.Replay(0, 0, 5, {}).ok());
  EXPECT_TRUE(late.Crowded(1000)) << "it came before";
}

TEST(LogOutboxTest, WhatMayLingerGoesWithWhatMayNot) {
  LogOutbox outbox(1);
  ASSERT_TRUE(outbox.Replay(0, 0, 0, {}).ok());
  Next(outbox);
  outbox.Append(Entry(1, 10, kMayLinger));
  EXPECT_FALSE(outbox.Urgent());
  EXPECT_TRUE(outbox.HasNews());
  outbox.Append(Entry(2));
  EXPECT_TRUE(outbox.Urgent());
  EXPECT_EQ(Next(outbox), (Numbers{1, 2}));
  outbox.Conclude(1);
  EXPECT_FALSE(outbox.Urgent());
  EXPECT_TRUE(outbox.HasNews());
}

TEST(LogOutboxTest, ManyConcludedRangesAreToldInSeveralFrames) {
  LogOutbox outbox(1);
  LogRangeSet concluded;
  for (LogNumber n = 1; n < 200; n += 2) concluded.Add(n);
  ASSERT_TRUE(outbox.Replay(0, 0, 200, concluded).ok());
  LogRanges all;
  int frames = 0;
  for (; outbox.HasNews(); ++frames) {
    LogRanges told;
    Next(outbox, 400, &told);
    all.insert(all.end(), told.begin(), told.end());
  }
  EXPECT_EQ(frames, 10);
  EXPECT_EQ(all, concluded.ToRanges());
}

}  // namespace
}  // namespace fairway
