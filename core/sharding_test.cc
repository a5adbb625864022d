// SPDX-License-Identifier: Apache-2.0
#include "core/sharding.h"

#include <limits>

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(ShardingTest, TilesCutAnArrayRowMajor) {
  const auto s = Sharding::Tiled({0, 1, 2, 3}, {2, 2}, {0, 1, 2, 3}).value();
  const Shape global{{8, 6}};
  EXPECT_EQ(s.Domain(global, 3).value(), (IndexDomain{{4, 3}, Shape{{4, 3}}}));
  EXPECT_EQ(s.ShardShape(global, 1).value(), (Shape{{4, 3}}));
  EXPECT_FALSE(s.fully_replicated());
}

TEST(ShardingTest, TheLastTilesOfAnUnevenCutAreSmallerOrEmpty) {
  const auto s = Sharding::Tiled({0, 1, 2, 3}, {4}, {0, 1, 2, 3}).value();
  EXPECT_EQ(s.ShardShape(Shape{{5}}, 2).value(), (Shape{{1}}));
  EXPECT_EQ(s.ShardShape(Shape{{5}}, 3).value(), (Shape{{0}}));
}

TEST(ShardingTest, ReplicatedShardsAreTheWholeArrayAtAnyRank) {
  const auto s = Sharding::Replicated({4, 5});
  EXPECT_EQ(s.ShardShape(Shape{{3, 3, 3}}, 1).value(), (Shape{{3, 3, 3}}));
  EXPECT_TRUE(s.fully_replicated());
}

TEST(ShardingTest, WrongRankAndWrongDeviceCountAreErrors) {
  const auto s = Sharding::Tiled({0, 1}, {2}, {0, 1}).value();
  EXPECT_EQ(s.ShardShape(Shape{{2, 2}}, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(s.WithDevices({1}, "").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Sharding::Tiled({0, 1}, {2}, {0, 2}).ok());
}

TEST(ShapeTest, ExtentsAreBoundedAlsoWhereThereAreNoBytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(ByteSize(DType::kF32, Shape{{0, kMost}}).ok());
  EXPECT_FALSE(ByteSize(DType::kToken, Shape{{kMost}}).ok());
  EXPECT_FALSE(ByteSize(DType::kToken, Shape{{int64_t{1} << 40, int64_t{1} << 40}}).ok());
  EXPECT_EQ(ByteSize(DType::kToken, Shape{{8}}).value(), 0);
  EXPECT_EQ(ByteSize(DType::kF32, Shape{{0, int64_t{1} << 62}}).value(), 0);
}

}  // namespace
}  // namespace fairway
