// SPDX-License-Identifier: Apache-2.0
#include "core/reshard.h"

#include <cstring>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> Devices(int64_t count) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(i);
  return out;
}

// Any cut of that rank over up to 12 devices, uneven ones and replicas included.
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

// The part of `array` in a domain, by counting: element by element.
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

TEST(ReshardingTest, PiecesOfRandomCutsFillTheShardsWithTheirPartOfTheArray) {
  std::mt19937 random(1);
  const DType kinds[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kC128};
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
    const auto plan = Resharding::Plan(dtype, shape, from, to);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (int out = 0; out < to.num_shards(); ++out) {
      const std::string want = Cut(array, element, shape, to.Domain(shape, out).value());
      std::string got(want.size(), '?');
      int64_t filled = 0;
      for (const ShardPiece& piece : plan->PiecesOf(out, [](int32_t) { return 0; })) {
        ASSERT_TRUE(CheckBox(piece.from).ok() && CheckBox(piece.to).ok());
        ASSERT_EQ(piece.from.extents, piece.to.extents);
        const std::string source =
            Cut(array, element, shape, from.Domain(shape, piece.source).value());
        ASSERT_EQ(piece.from.array_bytes(), static_cast<int64_t>(source.size()));
        ASSERT_EQ(piece.to.array_bytes(), static_cast<int64_t>(want.size()));
        // By way of the piece alone, as it travels.
        std::string alone(piece.from.bytes(), '!');
        CopyBox(piece.from, source.data(), piece.from.Alone(), alone.data());
        CopyBox(piece.from.Alone(), alone.data(), piece.to, got.data());
        filled += piece.to.bytes();
      }
      ASSERT_EQ(got, want) << "round " << round << " shard " << out;
      ASSERT_EQ(filled, static_cast<int64_t>(want.size()));  // nothing twice
    }
  }
}

TEST(ReshardingTest, TheCheapestReplicaIsTakenAndEqualOnesInTurn) {
  const auto plan = Resharding::Plan(DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1, 2}),
                                     Sharding::Tiled({3, 4}, {2}, {0, 1}).value());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->PiecesOf(1, [](int32_t s) { return s == 2 ? 0 : 1; })[0].source, 2);
  EXPECT_EQ(plan->PiecesOf(0, [](int32_t) { return 0; })[0].source, 0);
  EXPECT_EQ(plan->PiecesOf(1, [](int32_t) { return 0; })[0].source, 1);
}

TEST(ReshardingTest, WhatCannotBeCutIsRefused) {
  const Sharding whole = Sharding::Replicated({0, 1});
  const auto text = [&](DType dtype, const Sharding& from, const Sharding& to) {
    return std::string(Resharding::Plan(dtype, Shape{{4}}, from, to).status().message());
  };
  EXPECT_THAT(text(DType::kToken, whole, whole), HasSubstr("token cannot be cut"));
  EXPECT_THAT(text(DType::kF32, Sharding::ConcreteEven({0, 1}, Shape{{2}}, false), whole),
              HasSubstr("the array's sharding: the sharding does not tell where"));
  EXPECT_THAT(text(DType::kF32, whole, Sharding::Opaque({0, 1})),
              HasSubstr("the sharding asked for: the sharding does not tell where"));
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
