// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/assembly.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using Shards = Assemblies<int>;

constexpr ShardRef kShard{GroupId(1), 0};

PrepareReceive TwoShards() {
  PrepareReceive node;
  node.pieces.resize(3);
  node.pieces[0].out = node.pieces[2].out = 0;
  node.pieces[1].out = 1;
  return node;
}

TEST(AssemblyTest, AShardIsMadeOnceAllItsPiecesHaveCome) {
  Shards shards;
  const auto [first, made] = shards.Of(kShard, TwoShards(), 0);
  EXPECT_TRUE(made);
  EXPECT_EQ(first->open, 2u) << "the piece of the other shard does not count";
  const auto [second, again] = shards.Of(kShard, TwoShards(), 2);
  EXPECT_FALSE(again);
  EXPECT_EQ(first, second);
  EXPECT_EQ(shards.PieceEnded(kShard, first, true), Shards::End::kNothing);
  EXPECT_EQ(shards.PieceEnded(kShard, second, true), Shards::End::kMake);
  EXPECT_EQ(shards.size(), 0u);
}

TEST(AssemblyTest, AShardFailsOnceAllItsPiecesHaveEnded) {
  Shards shards;
  const auto shard = shards.Of(kShard, TwoShards(), 0).first;
  EXPECT_EQ(shards.PieceEnded(kShard, shard, false), Shards::End::kNothing);
  EXPECT_EQ(shards.PieceEnded(kShard, shard, true), Shards::End::kFail);
}

TEST(AssemblyTest, PiecesOfADroppedShardDoNotCountForItsSuccessor) {
  Shards shards;
  const auto old = shards.Of(kShard, TwoShards(), 0).first;
  EXPECT_EQ(shards.Drop(kShard), old);
  EXPECT_EQ(shards.Drop(kShard), nullptr);
  const auto [fresh, made] = shards.Of(kShard, TwoShards(), 0);
  EXPECT_TRUE(made);
  EXPECT_EQ(shards.PieceEnded(kShard, old, true), Shards::End::kNothing);
  EXPECT_EQ(shards.PieceEnded(kShard, old, true), Shards::End::kNothing);
  EXPECT_EQ(fresh->open, 2u);
}

}  // namespace
}  // namespace fairway
