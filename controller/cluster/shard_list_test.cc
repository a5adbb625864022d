// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/shard_list.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

std::vector<ShardRef> AllOf(const ShardList& list) { return {list.begin(), list.end()}; }

TEST(ShardListTest, AllShardsOfAGroupAreOneRun) {
  const ShardList list = ShardList::AllOf(GroupId(7), 2048);
  EXPECT_EQ(list.runs().size(), 1u);
  EXPECT_EQ(list.size(), 2048u);
  EXPECT_EQ(list[2047], (ShardRef{GroupId(7), 2047}));
  std::vector<ShardRef> each;
  for (int32_t i = 0; i < 2048; ++i) each.push_back({GroupId(7), i});
  EXPECT_EQ(AllOf(list), each);
  EXPECT_EQ(ShardList(each).runs().size(), 1u);
  EXPECT_TRUE(ShardList::AllOf(GroupId(7), 0).empty());
}

TEST(ShardListTest, ARunEndsWhereAShardDoesNotFollow) {
  const ShardList list{
      {GroupId(1), 3}, {GroupId(1), 4}, {GroupId(2), 5}, {GroupId(2), 5}, {GroupId(2), 4}};
  EXPECT_EQ(list.runs().size(), 4u);
  EXPECT_EQ(list.runs()[0].end, 2u);
  EXPECT_EQ(list[1], (ShardRef{GroupId(1), 4}));
  EXPECT_EQ(list[3], (ShardRef{GroupId(2), 5}));
}

TEST(ShardListTest, OtherGroupsTakeThePlaceOfThose) {
  ShardList list{{GroupId(1), 0}, {GroupId(1), 1}, {GroupId(2), 0}};
  list.Replace([](GroupId group) { return group == GroupId(1) ? GroupId(9) : group; });
  EXPECT_EQ(AllOf(list),
            (std::vector<ShardRef>{{GroupId(9), 0}, {GroupId(9), 1}, {GroupId(2), 0}}));
  list.clear();
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.begin(), list.end());
}

TEST(ShardListTest, AnyListIsTheListThatItWasMadeOf) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same lists each time
  for (int round = 0; round < 500; ++round) {
    std::vector<ShardRef> shards(random() % 12);
    for (size_t i = 0; i < shards.size(); ++i) {
      const bool follows = i > 0 && random() % 2 == 0;
      shards[i] = follows ? ShardRef{shards[i - 1].group, shards[i - 1].shard + 1}
                          : ShardRef{GroupId(1 + random() % 2), static_cast<int32_t>(random() % 4)};
    }
    const ShardList list(shards);
    ASSERT_EQ(AllOf(list), shards);
    for (size_t i = 0; i < shards.size(); ++i) ASSERT_EQ(list[i], shards[i]);
  }
}

}  // namespace
}  // namespace fairway
