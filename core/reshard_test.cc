// SPDX-License-Identifier: Apache-2.0
#include "core/reshard.h"

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sanitized_for_test.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> Devices(int64_t count) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(i);
  return out;
}

// Returns any cut of that rank over up to 12 devices, including uneven ones and replicas.
Sharding RandomSharding(std::mt19937& random, int rank) {
  std::vector<int64_t> tiles;
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    tiles.push_back(1 + random() % 3);
    count *= tiles.back();
  }
  std::vector<int64_t> tile_of;
  for (int64_t copies = 1 + random() % 2; copies > 0; --copies) {
    for (int64_t t = 0; t < count; ++t) tile_of.push_back(t);
  }
  std::shuffle(tile_of.begin(), tile_of.end(), random);
  return Sharding::Tiled(Devices(static_cast<int64_t>(tile_of.size())), tiles, tile_of).value();
}

// Several devices on an executor.
std::vector<Resharding::Place> RandomPlaces(std::mt19937& random, size_t count) {
  std::vector<Resharding::Place> out;
  for (size_t i = 0; i < count; ++i) {
    const auto executor = static_cast<uint32_t>(1 + random() % 4);
    out.push_back({ExecutorId(executor), DeviceId(executor * 100 + random() % 4)});
  }
  return out;
}

// Each on an executor of its own.
std::vector<Resharding::Place> Apart(size_t count, uint32_t first) {
  std::vector<Resharding::Place> out;
  for (uint32_t i = first; out.size() < count; ++i) out.push_back({ExecutorId(i), DeviceId(i)});
  return out;
}

// Returns the part of `array` in a domain, element by element.
std::string Cut(const std::string& array, int64_t element, const Shape& shape,
                const IndexDomain& domain) {
  std::string out;
  std::vector<int64_t> index(shape.dims.size(), 0);
  for (int64_t n = 0; n < shape.num_elements(); ++n) {
    int64_t rest = n;
    bool inside = true;
    for (size_t d = shape.dims.size(); d-- > 0;) {
      const int64_t at = rest % shape.dims[d] - domain.origin[d];
      rest /= shape.dims[d];
      inside = inside && at >= 0 && at < domain.shape.dims[d];
    }
    if (inside) out += array.substr(n * element, element);
  }
  return out;
}

TEST(ReshardingTest, PiecesOfRandomCutsFillTheShardsAndGoToAnExecutorOnce) {
  std::mt19937 random(1);
  const DType kinds[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kC128};
  int followers = 0;
  for (int round = 0; round < 2000; ++round) {
    Shape shape;
    for (int d = random() % 4; d > 0; --d) shape.dims.push_back(random() % 8);
    const DType dtype = kinds[random() % 4];
    const int64_t element = BytesPerElement(dtype);
    std::string array;
    for (int64_t i = 0; i < shape.num_elements() * element; ++i)
      array += static_cast<char>(random());
    const Sharding from = RandomSharding(random, shape.rank());
    const Sharding to = RandomSharding(random, shape.rank());
    const auto sources = RandomPlaces(random, from.num_shards());
    const auto targets = RandomPlaces(random, to.num_shards());
    auto plan = Resharding::Plan(dtype, shape, from, to, sources, targets);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<std::string> made;
    // bytes that came from other executors
    std::map<ExecutorId, int64_t> came;
    // the most that may come, by part
    std::map<ExecutorId, std::map<std::vector<int64_t>, int64_t>> wanted;
    for (int out = 0; out < to.num_shards(); ++out) {
      const IndexDomain domain = to.Domain(shape, out).value();
      const std::string want = Cut(array, element, shape, domain);
      std::string got(want.size(), '?');
      int64_t filled = 0;
      for (const ShardPiece& piece : plan->PiecesOf(out)) {
        ASSERT_TRUE(CheckBox(piece.from).ok() && CheckBox(piece.to).ok());
        ASSERT_EQ(piece.from.extents, piece.to.extents);
        followers += piece.made ? 1 : 0;
        if (piece.made) {
          ASSERT_LT(piece.source, out);
          ASSERT_EQ(targets[piece.source].executor, targets[out].executor);
        } else if (sources[piece.source].executor != targets[out].executor) {
          came[targets[out].executor] += piece.from.bytes();
        }
        const std::string source =
            piece.made ? made[piece.source]
                       : Cut(array, element, shape, from.Domain(shape, piece.source).value());
        ASSERT_EQ(piece.from.array_bytes(), static_cast<int64_t>(source.size()));
        ASSERT_EQ(piece.to.array_bytes(), static_cast<int64_t>(want.size()));
        // Goes through the piece alone, as it travels.
        std::string alone(piece.from.bytes(), '!');
        CopyBox(piece.from, source.data(), piece.from.Alone(), alone.data());
        CopyBox(piece.from.Alone(), alone.data(), piece.to, got.data());
        filled += piece.to.bytes();
      }
      ASSERT_EQ(got, want) << "round " << round << " shard " << out;
      ASSERT_EQ(filled, static_cast<int64_t>(want.size()));  // nothing twice
      made.push_back(got);
      wanted[targets[out].executor][domain.origin] = filled;
    }
    for (const auto& [executor, bytes] : came) {
      int64_t most = 0;
      for (const auto& [origin, part] : wanted[executor]) most += part;
      ASSERT_LE(bytes, most) << "round " << round;
    }
  }
  EXPECT_GT(followers, 300);
}

TEST(ReshardingTest, TheNearestReplicaIsTakenAndOthersInTurn) {
  const std::vector<Resharding::Place> sources = {
      {ExecutorId(1), DeviceId(10)}, {ExecutorId(1), DeviceId(11)}, {ExecutorId(2), DeviceId(20)}};
  const std::vector<Resharding::Place> targets = {
      {ExecutorId(1), DeviceId(11)}, {ExecutorId(2), DeviceId(21)}, {ExecutorId(3), DeviceId(30)},
      {ExecutorId(4), DeviceId(40)}, {ExecutorId(5), DeviceId(50)}, {ExecutorId(6), DeviceId(60)}};
  auto plan = Resharding::Plan(DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1, 2}),
                               Sharding::Replicated({0, 1, 2, 3, 4, 5}), sources, targets);
  ASSERT_TRUE(plan.ok());
  std::vector<int32_t> taken;
  for (int out = 0; out < 6; ++out) taken.push_back(plan->PiecesOf(out)[0].source);
  EXPECT_THAT(taken, ::testing::ElementsAre(1, 2, 0, 1, 2, 0));
}

TEST(ReshardingTest, DevicesOfOneExecutorCopyWhatCameThereOnceAndReadWhatIsThere) {
  const std::vector<Resharding::Place> sources = {{ExecutorId(1), DeviceId(1)},
                                                  {ExecutorId(2), DeviceId(2)}};
  std::vector<Resharding::Place> targets;
  for (uint32_t i = 0; i < 3; ++i) targets.push_back({ExecutorId(1), DeviceId(1 + i * 10)});
  const Sharding cut = Sharding::Tiled({0, 1}, {2}, {0, 1}).value();
  const Sharding whole = Sharding::Replicated({0, 1, 2});
  const auto read = [](Resharding& plan) {
    std::vector<std::string> out;
    for (int i = 0; i < 3; ++i) {
      out.emplace_back();
      for (const ShardPiece& piece : plan.PiecesOf(i))
        out.back() += fmt::format("{}{} ", piece.made ? "made " : "", piece.source);
    }
    return out;
  };
  auto plan = Resharding::Plan(DType::kF32, Shape{{4}}, cut, whole, sources, targets);
  EXPECT_THAT(read(*plan), ::testing::ElementsAre("0 1 ", "made 0 ", "made 0 "));
  // All shards are there: none waits for another.
  plan = Resharding::Plan(DType::kF32, Shape{{4}}, cut, whole, {targets[0], targets[1]}, targets);
  EXPECT_THAT(read(*plan), ::testing::ElementsAre("0 1 ", "0 1 ", "0 1 "));
}

// Measures no seconds: comparing each of n shards with each other one would make 4 billion boxes.
TEST(ReshardingTest, AsManyShardsAsThereMayBeAreCutInNoTimeWhenTheirPiecesAreFew) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  constexpr int64_t kShards = 1 << 16;
  const std::vector<int32_t> devices = Devices(kShards);
  const std::vector<int64_t> tiles(devices.begin(), devices.end());
  std::vector<int64_t> turned(tiles.rbegin(), tiles.rend());
  const Sharding rows = Sharding::Tiled(devices, {kShards, 1}, tiles).value();
  const Sharding cells = Sharding::Tiled(devices, {256, 256}, turned).value();
  const Sharding copies = Sharding::Replicated(devices);
  const Shape shape{{kShards, 256}};
  for (const auto& [from, to] : {std::pair{rows, rows}, {copies, cells}, {copies, copies}}) {
    auto plan =
        Resharding::Plan(DType::kF32, shape, from, to, Apart(kShards, 1), Apart(kShards, 1 << 20));
    ASSERT_TRUE(plan.ok());
    for (int32_t out = 0; out < kShards; ++out) ASSERT_EQ(plan->PiecesOf(out).size(), 1U);
  }
}

TEST(ReshardingTest, WhatCannotBeCutIsRefused) {
  const Sharding whole = Sharding::Replicated({0, 1});
  const auto text = [&](DType dtype, const Sharding& from, const Sharding& to) {
    return std::string(Resharding::Plan(dtype, Shape{{4}}, from, to, Apart(from.num_shards(), 1),
                                        Apart(to.num_shards(), 1))
                           .status()
                           .message());
  };
  EXPECT_THAT(text(DType::kToken, whole, whole), HasSubstr("token cannot be cut"));
  EXPECT_THAT(text(DType::kF32, Sharding::ConcreteEven({0, 1}, Shape{{2}}, false), whole),
              HasSubstr("the array's sharding: the sharding does not tell where"));
  EXPECT_THAT(text(DType::kF32, whole, Sharding::Opaque({0, 1})),
              HasSubstr("the sharding asked for: the sharding does not tell where"));
  EXPECT_EQ(text(DType::kF32, Sharding::Tiled({0, 1}, {4}, {0, 3}).value(), whole),
            "the array's shards have 2 of its 4 elements");
}

TEST(BoxTest, WhatReachesOutIsRefused) {
  const auto text = [](Box box) { return std::string(CheckBox(box).message()); };
  EXPECT_EQ(text(Box::Whole(4, {2, 3})), "");
  EXPECT_EQ(text({4, {4}, {2}, {2}}), "");
  EXPECT_THAT(text({4, {4}, {2}, {3}}), HasSubstr("a box from 2 of 3 in dimension 0 of 4"));
  EXPECT_THAT(text({4, {4}, {INT64_MAX}, {1}}), HasSubstr("a box from"));
  EXPECT_THAT(text({4, {4}, {-1}, {1}}), HasSubstr("a box from -1"));
  EXPECT_THAT(text({4, {4}, {}, {1}}), HasSubstr("ranks 1, 0 and 1"));
  EXPECT_THAT(text({0, {4}, {0}, {1}}), HasSubstr("elements of 0 bytes"));
  EXPECT_THAT(text({8, {0, INT64_MAX}, {0, 0}, {0, 1}}), HasSubstr("more than 2^62"));
}

}  // namespace
}  // namespace fairway
