// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/ledger.h"

#include <gtest/gtest.h>

#include "controller/cluster/session.h"

namespace fairway {
namespace {

constexpr size_t kMemory = size_t{1} << 20;

TEST(LedgerTest, ASessionMayHoldAsMuchAsIsLeft) {
  Ledger ledger(kMemory);
  Session session(&ledger.record_bytes);
  EXPECT_TRUE(ledger.CheckProgramRoom(session, "half", kMemory / 2).ok());
  EXPECT_EQ(ledger.CheckProgramRoom(session, "more", kMemory / 2 + 1).code(),
            absl::StatusCode::kResourceExhausted);
  session.program_records.Add(kMemory / 2);
  EXPECT_EQ(ledger.Room(), kMemory / 2);
  EXPECT_EQ(ledger.CheckRoom(session, 1).code(), absl::StatusCode::kResourceExhausted);
}

TEST(LedgerTest, WhatOthersHoldLeavesLessToEach) {
  Ledger ledger(kMemory);
  Session one(&ledger.record_bytes), other(&ledger.record_bytes);
  one.program_records.Add(kMemory / 2);
  EXPECT_TRUE(ledger.CheckProgramRoom(other, "quarter", kMemory / 4).ok());
  EXPECT_FALSE(ledger.CheckProgramRoom(other, "more", kMemory / 4 + 1).ok());
}

TEST(LedgerTest, WhatASessionHeldIsLeftToOthersWhenItIsGone) {
  Ledger ledger(kMemory);
  {
    Session session(&ledger.record_bytes);
    session.node_records.Add(1000);
    session.stored.Add(500);
    EXPECT_EQ(ledger.Room(), kMemory - 1500);
  }
  EXPECT_EQ(ledger.Room(), kMemory);
}

TEST(LedgerTest, CountsAboveTheMemoryLeaveNothing) {
  Ledger ledger(kMemory);
  ledger.record_bytes = kMemory + 1;
  EXPECT_EQ(ledger.Room(), 0u);
}

}  // namespace
}  // namespace fairway
