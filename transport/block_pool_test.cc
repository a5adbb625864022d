// SPDX-License-Identifier: Apache-2.0
#include "transport/block_pool.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(BlockPool, ABlockOfTheSameSizeIsUsedAgain) {
  auto pool = BlockPool::Make(8 * kMiB);
  auto first = pool->Take(2 * kMiB);
  const char* const at = first->data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % Blob::kAlignment, 0u);
  EXPECT_EQ(pool->kept(), 0u);
  auto second = pool->Take(2 * kMiB);
  EXPECT_NE(second->data(), at);
  first = nullptr;
  EXPECT_EQ(pool->kept(), 2 * kMiB);
  EXPECT_NE(pool->Take(2 * kMiB + 64)->data(), at);
  EXPECT_EQ(pool->Take(2 * kMiB)->data(), at);
}

TEST(BlockPool, KeepsNoMoreThanItsLimitAndNothingSmall) {
  auto pool = BlockPool::Make(3 * kMiB);
  auto a = pool->Take(2 * kMiB), b = pool->Take(kMiB), c = pool->Take(kMiB), d = pool->Take(1000);
  a = nullptr;
  b = nullptr;
  EXPECT_EQ(pool->kept(), 3 * kMiB);
  c = nullptr;  // the oldest goes
  EXPECT_EQ(pool->kept(), 2 * kMiB);
  d = nullptr;
  EXPECT_EQ(pool->kept(), 2 * kMiB);
  EXPECT_EQ(pool->Take(8 * kMiB)->size(), 8 * kMiB);
  EXPECT_EQ(pool->kept(), 2 * kMiB);
}

TEST(BlockPool, BlocksMayOutliveIt) {
  auto pool = BlockPool::Make(8 * kMiB);
  auto block = pool->Take(kMiB);
  pool = nullptr;
  block->data()[kMiB - 1] = 1;
  block = nullptr;
}

}  // namespace
}  // namespace fairway
