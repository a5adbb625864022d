// SPDX-License-Identifier: Apache-2.0
#include "base/block_vector.h"

#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(BlockVectorTest, BlocksOfEqualElementsAreChangedAtOnce) {
  BlockVector<int> of;
  of.Grow(1000);
  const auto add = [](int& element) { element += 2; };
  EXPECT_EQ(of.Change(0, 1000, add), 1u) << "the last block has 40";
  EXPECT_EQ(of.Change(70, 2, add), 2u);
  EXPECT_EQ(of.Change(0, 1000, add), 1u + 7u + 7u + 8u) << "one is not equal";
  EXPECT_EQ(of[69], 4);
  EXPECT_EQ(of[70], 6);
  EXPECT_EQ(of.Change(70, 2, [](int& element) { element -= 2; }), 2u);
  EXPECT_EQ(of.Change(0, 1000, add), 1u + 7u + 7u + 8u);
  EXPECT_EQ(of.Change(0, 1000, add), 1u) << "they are equal again";
  size_t looks = 0;
  EXPECT_TRUE(of.AllOf(0, 1000, [&](int element) { return ++looks, element == 8; }));
  EXPECT_EQ(looks, 1u);
}

TEST(BlockVectorTest, HalvesAreEqualEachForItself) {
  BlockVector<int> of;
  of.Grow(100'000);
  const auto add = [](int& element) { ++element; };
  EXPECT_LE(of.Change(0, 50'000, add), 7u * 12);
  EXPECT_LE(of.Change(50'000, 50'000, add), 7u * 12);
  EXPECT_LE(of.Change(0, 50'000, add), 7u * 12);
  EXPECT_LE(of.Change(50'000, 50'000, add), 7u * 12);
  EXPECT_LE(of.Change(0, 100'000, add), 7u * 12);
  EXPECT_EQ(of.Change(0, 100'000, add), 1u) << "the change before made it one";
}

TEST(BlockVectorTest, NewElementsAreNotLikeTheOthersOfTheirBlock) {
  BlockVector<int> of;
  of.Grow(10);
  of.Change(0, 10, [](int& element) { element = 7; });
  of.Grow(12);
  EXPECT_EQ(of[9], 7);
  EXPECT_EQ(of[10], 0);
  of.Change(0, 12, [](int& element) { element = 7; });
  of.Grow(200);
  EXPECT_EQ(of[11], 7);
  EXPECT_EQ(of[12], 0);
  EXPECT_EQ(of[199], 0);
  of.clear();
  of.Grow(1);
  EXPECT_EQ(of[0], 0);
}

TEST(BlockVectorTest, ItIsWhatAVectorIs) {
  std::mt19937 random(1);
  const auto below = [&](size_t most) { return random() % most; };
  for (int round = 0; round < 50; ++round) {
    BlockVector<int> of;
    std::vector<int> expected;
    for (int step = 0; step < 200; ++step) {
      if (below(10) == 0) {
        expected.resize(expected.size() + below(150));
        of.Grow(expected.size());
      }
      if (expected.empty()) continue;
      const size_t first = below(3) == 0 ? below(expected.size()) : 0;
      const size_t count =
          below(3) == 0 ? below(expected.size() - first + 1) : expected.size() - first;
      const int more = static_cast<int>(below(2));
      of.Change(first, count, [&](int& element) { element += more; });
      for (size_t i = first; i < first + count; ++i) expected[i] += more;
      const int most = static_cast<int>(below(100));
      bool all = true;
      for (size_t i = first; i < first + count; ++i) all = all && expected[i] <= most;
      EXPECT_EQ(of.AllOf(first, count, [&](int element) { return element <= most; }), all);
    }
    ASSERT_EQ(of.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(of[i], expected[i]) << i;
  }
}

}  // namespace
}  // namespace fairway
