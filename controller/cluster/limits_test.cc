// SPDX-License-Identifier: Apache-2.0
// Reshards at the limit of what one request may cost.
#include <numeric>

#include "base/sanitized_for_test.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

// With n shards made from n, n in the thousands, the pieces' records would take gigabytes.
TEST_F(ClusterTest, AReshardOfTooManyPiecesIsRefusedAndItsTwoHalvesAreNot) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  constexpr int kDevices = 1025;
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", kDevices)).ok());
  session = actions.Open(cluster);
  std::vector<int32_t> all(kDevices);
  std::iota(all.begin(), all.end(), 0);
  const auto spec = [](Sharding sharding) {
    return ArraySpec{DType::kF32, Shape{{kDevices}}, std::move(sharding)};
  };
  const Sharding cut = Sharding::Tiled(all, {kDevices}, {all.begin(), all.end()}).value();
  ASSERT_TRUE(cluster.arrays().Put(session, 1, spec(cut), all).ok());
  const auto reshard = [&](uint64_t in, Sharding sharding, uint64_t out) {
    return cluster.arrays()
        .Reshard(session, {in}, {spec(std::move(sharding))}, CopySemantics::kReuseInput, {out})
        .status();
  };
  EXPECT_EQ(Describe(reshard(1, Sharding::Replicated(all), 2)),
            "INVALID_ARGUMENT: reshard of f32[1025]: 1024 of its 1025 shards are made of 1049600 "
            "pieces of the array's 1025 shards, and at most 1048576 are allowed; reshard it onto "
            "one device or a few first, and from there");
  EXPECT_EQ(Describe(reshard(1, Sharding::SingleDevice(0), 2)), "OK");
  EXPECT_EQ(Describe(reshard(2, Sharding::Replicated(all), 3)), "OK");
}

// Each of n shards is made from n, in several arrays.
TEST_F(ClusterTest, AReshardOfManyArraysOfManyPiecesIsRefusedWholeAndHoldsNothing) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  constexpr int kDevices = 800;
  constexpr int kFew = 50;
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", kDevices)).ok());
  session = actions.Open(cluster);
  std::vector<int32_t> all(kDevices);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int32_t> few(all.begin(), all.begin() + kFew);
  const auto spec = [](Sharding sharding) {
    return ArraySpec{DType::kF32, Shape{{kDevices}}, std::move(sharding)};
  };
  const auto cut = [](const std::vector<int32_t>& devices) {
    return Sharding::Tiled(devices, {static_cast<int64_t>(devices.size())},
                           {devices.begin(), devices.end()})
        .value();
  };
  ASSERT_TRUE(cluster.arrays().Put(session, 1, spec(cut(all)), all).ok());
  ASSERT_TRUE(cluster.arrays().Put(session, 2, spec(cut(few)), few).ok());
  const ArraySpec copies = spec(Sharding::Replicated(all));
  const size_t before = cluster.sessions().BacklogOf(session).record_bytes;
  EXPECT_EQ(
      Describe(cluster.arrays()
                   .Reshard(session, {1, 1}, {copies, copies}, CopySemantics::kAlwaysCopy, {3, 4})
                   .status()),
      "INVALID_ARGUMENT: reshard of f32[800]: it and the arrays before it in the same request "
      "are made of more than 1048576 pieces; reshard fewer arrays at once");
  EXPECT_EQ(cluster.sessions().BacklogOf(session).record_bytes, before);
  EXPECT_TRUE(
      cluster.arrays()
          .Reshard(session, {2}, {spec(Sharding::Replicated(few))}, CopySemantics::kAlwaysCopy, {3})
          .ok());
  const size_t bytes = cluster.sessions().BacklogOf(session).record_bytes;
  EXPECT_GE(bytes, before + kFew * kFew * 336);
  EXPECT_LE(bytes, before + kFew * kFew * 400);
}

}  // namespace
}  // namespace fairway
