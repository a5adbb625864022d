// SPDX-License-Identifier: Apache-2.0
#include "graph/transfer_sets.h"

#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(TransferSets, EqualSetsHaveTheSameNumber) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    TransferSets sets;
    std::map<std::set<int32_t>, int32_t> number = {{{}, TransferSets::kNone}};
    std::map<int32_t, std::set<int32_t>> members = {{TransferSets::kNone, {}}};
    std::vector<int32_t> made = {TransferSets::kNone};
    for (int i = 0; i < 500; ++i) {
      std::set<int32_t> want;
      int32_t set = 0;
      if (random() % 4 == 0) {
        const auto one = static_cast<int32_t>(random() % 40);
        want = {one};
        set = sets.One(one);
      } else {
        const int32_t a = made[random() % made.size()], b = made[random() % made.size()];
        want = members.at(a);
        want.insert(members.at(b).begin(), members.at(b).end());
        set = sets.Union(a, b);
      }
      EXPECT_EQ(number.try_emplace(want, set).first->second, set);
      EXPECT_EQ(members.try_emplace(set, want).first->second, want);
      made.push_back(set);
    }
  }
}

// Listed, the sets of each of these kinds have 2 million members together.
TEST(TransferSets, WhatIsGatheredInALoopTakesLittle) {
  constexpr int32_t kRounds = 2'000;
  TransferSets sets;
  int32_t even = sets.One(0), odd = sets.One(1), both = sets.Union(even, odd);
  for (int32_t i = 1; i < kRounds; ++i) {
    even = sets.Union(sets.Union(even, sets.One(2 * i)), sets.One(0));
    odd = sets.Union(odd, sets.One(2 * i + 1));
    const int32_t now = sets.Union(even, odd);
    EXPECT_NE(now, both);
    both = now;
  }
  int32_t down = TransferSets::kNone;
  for (int32_t i = 2 * kRounds; i-- > 0;) down = sets.Union(sets.One(i), down);
  EXPECT_EQ(down, both);
  EXPECT_LT(sets.size(), size_t{100} * kRounds);
}

}  // namespace
}  // namespace fairway
