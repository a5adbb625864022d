// SPDX-License-Identifier: Apache-2.0
#include "base/memory_budget.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(MemoryBudgetTest, AShareGivesAsMuchAsItLeavesToOthers) {
  const auto whole = std::make_shared<MemoryBudget>(100);
  MemoryBudget one(whole), other(whole);
  EXPECT_TRUE(one.Reserve(50));
  EXPECT_FALSE(one.Reserve(1));
  EXPECT_TRUE(other.HasRoom(25));
  EXPECT_FALSE(other.HasRoom(26));
  other.Take(30);
  EXPECT_TRUE(other.over());
  EXPECT_EQ(whole->room(), 20);
}

TEST(MemoryBudgetTest, APartHasNoMoreThanItsWhole) {
  const auto all = std::make_shared<MemoryBudget>(100);
  const auto part = std::make_shared<MemoryBudget>(80, all);
  const auto neighbour = std::make_shared<MemoryBudget>(80, all);
  MemoryBudget share(part);
  EXPECT_TRUE(neighbour->Reserve(60));
  EXPECT_FALSE(neighbour->Reserve(30));
  EXPECT_FALSE(part->HasRoom(41));
  EXPECT_FALSE(share.Reserve(21));
  EXPECT_TRUE(share.Reserve(20));
  EXPECT_EQ(all->used(), 80);
  EXPECT_EQ(part->room(), 20);
}

TEST(MemoryBudgetTest, WhatAShareHadWhenItWasDestroyedIsLeftToOthers) {
  const auto all = std::make_shared<MemoryBudget>(100);
  const auto part = std::make_shared<MemoryBudget>(80, all);
  { MemoryBudget(part).Take(40); }
  EXPECT_EQ(part->used(), 0);
  EXPECT_EQ(all->used(), 0);
}

TEST(MemoryBudgetTest, AChargeTakesBytesUntilItIsGone) {
  const auto all = std::make_shared<MemoryBudget>(100);
  auto share = std::make_shared<MemoryBudget>(all);
  MemoryCharge one(share, 90);
  EXPECT_TRUE(share->over()) << "it takes them in any case";
  MemoryCharge other = std::move(one);
  EXPECT_EQ(all->used(), 90);
  EXPECT_EQ(one.bytes(), 0);  // NOLINT(bugprone-use-after-move)
  other = MemoryCharge(share, 20);
  EXPECT_EQ(all->used(), 20);
  share.reset();  // the charge holds it
  EXPECT_EQ(all->used(), 20);
  other = MemoryCharge(nullptr, 5);
  EXPECT_EQ(all->used(), 0);
  EXPECT_EQ(other.bytes(), 0);
}

}  // namespace
}  // namespace fairway
