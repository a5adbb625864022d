// SPDX-License-Identifier: Apache-2.0
#include "log/island_log.h"

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr SessionId kOne(1);
constexpr SessionId kTwo(2);

NewLogEntry Entry(SessionId session, size_t bytes, uint8_t flags = 0) {
  return {session, LogSpan::One(0), EntryKind::kCommand, flags, std::string(bytes, 'b'), {}};
}

TEST(IslandLogTest, NumbersAreDenseAndBytesAreChargedUntilTheEntryIsConcluded) {
  IslandLog log;
  EXPECT_EQ((*log.Append(Entry(kOne, 10)))->header.number, 1u);
  EXPECT_EQ((*log.Append(Entry(kTwo, 20)))->header.number, 2u);
  EXPECT_EQ((*log.Append(Entry(SessionId(), 30)))->header.number, 3u);
  EXPECT_EQ(log.bytes(kOne), 10 + kMaxEntryHeaderBytes);
  EXPECT_EQ(log.bytes(), 60 + 3 * kMaxEntryHeaderBytes);
  EXPECT_TRUE(log.Conclude(2).ok());
  EXPECT_EQ(log.bytes(kTwo), 0u);
  EXPECT_EQ(log.bytes(), 40 + 2 * kMaxEntryHeaderBytes);
  EXPECT_EQ(log.Find(2), nullptr);
  ASSERT_NE(log.Find(3), nullptr);
  EXPECT_EQ(log.Find(3)->body, std::string(30, 'b'));
  EXPECT_EQ(log.concluded().ToRanges(), (LogRanges{{2, 2}}));
  EXPECT_EQ(log.CheckInvariants(), absl::OkStatus());
}

TEST(IslandLogTest, AnEntryIsConcludedOnce) {
  IslandLog log;
  ASSERT_TRUE(log.Append(Entry(kOne, 10)).ok());
  EXPECT_TRUE(log.Conclude(1).ok());
  EXPECT_EQ(Text(log.Conclude(1).status()),
            "entry 1 cannot be concluded: it is already (the newest is 1)");
  EXPECT_EQ(Text(log.Conclude(2).status()),
            "entry 2 cannot be concluded: it was never appended (the newest is 1)");
  EXPECT_EQ(log.CheckInvariants(), absl::OkStatus());
}

TEST(IslandLogTest, ASessionThatHasItsFillWaitsAndOthersDoNot) {
  IslandLog log(100);
  ASSERT_TRUE(log.Append(Entry(kOne, 100)).ok());  // too large, but alone
  const auto refused = log.Append(Entry(kOne, 1));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(log.last(), 1u);
  EXPECT_TRUE(log.Append(Entry(kOne, 1, kNeverWaits)).ok());
  EXPECT_TRUE(log.Append(Entry(kTwo, 1)).ok());
  EXPECT_TRUE(log.Append(Entry(SessionId(), 1000)).ok());
  ASSERT_TRUE(log.Conclude(1).ok());
  EXPECT_TRUE(log.Append(Entry(kOne, 1)).ok());
  EXPECT_EQ(log.CheckInvariants(), absl::OkStatus());
}

TEST(IslandLogTest, WhatNoFrameCouldCarryIsRefused) {
  IslandLog log;
  EXPECT_TRUE(log.Append(Entry(kOne, kMaxEntryBytes)).ok());
  EXPECT_EQ(log.Append(Entry(kTwo, kMaxEntryBytes + 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(log.Append(Entry(kTwo, kMaxEntryBytes + 1, kBulkEntry)).ok());
  EXPECT_EQ(log.Append(Entry(kTwo, 1, 64)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(log.last(), 2u);
}

}  // namespace
}  // namespace fairway
