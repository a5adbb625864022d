// SPDX-License-Identifier: Apache-2.0
#include "transport/block_pool.h"

#include <cstdint>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(BlockPool, ABlockOfTheSameSizeIsUsedAgain) {
  auto pool = BlockPool::Make(8 * kMiB);
  auto first = *pool->Take(2 * kMiB);
  const char* const at = first->data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % Blob::kAlignment, 0u);
  EXPECT_EQ(pool->kept(), 0u);
  auto second = *pool->Take(2 * kMiB);
  EXPECT_NE(second->data(), at);
  first = nullptr;
  EXPECT_EQ(pool->kept(), 2 * kMiB);
  EXPECT_NE((*pool->Take(2 * kMiB + 64))->data(), at);
  EXPECT_EQ((*pool->Take(2 * kMiB))->data(), at);
}

TEST(BlockPool, BeyondTheBudgetBlocksAreFilesAndTheBudgetComesBack) {
  const auto budget = std::make_shared<MemoryBudget>(5 * kMiB);
  auto pool = BlockPool::Make(2 * kMiB, {budget, "/tmp"});
  auto large = *pool->Take(4 * kMiB), kept = *pool->Take(kMiB);
  EXPECT_EQ(budget->used(), static_cast<int64_t>(5 * kMiB));
  auto file = *pool->Take(3 * kMiB + 5);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->size(), 3 * kMiB + 5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->data()) % Blob::kAlignment, 0u);
  std::memset(file->data(), 7, file->size());
  EXPECT_EQ(file->data()[file->size() - 1], 7);
  EXPECT_EQ(budget->used(), static_cast<int64_t>(5 * kMiB));
  large = nullptr;
  kept = nullptr;
  file = nullptr;
  EXPECT_EQ(budget->used(), 0);
  EXPECT_EQ(pool->kept(), kMiB);
}

TEST(BlockPool, WithoutASpoolDirectoryThereIsNoBlock) {
  auto pool = BlockPool::Make(2 * kMiB, {std::make_shared<MemoryBudget>(0), "/nowhere"});
  const absl::Status status = pool->Take(kMiB).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status),
              testing::HasSubstr("a file of 1048576 bytes cannot be made in /nowhere: "
                                 "No such file or directory"));
}

TEST(BlockPool, KeepsNoMoreThanItsLimitAndNothingSmall) {
  auto pool = BlockPool::Make(3 * kMiB);
  auto a = *pool->Take(2 * kMiB), b = *pool->Take(kMiB), c = *pool->Take(kMiB),
       d = *pool->Take(1000);
  a = nullptr;
  b = nullptr;
  EXPECT_EQ(pool->kept(), 3 * kMiB);
  c = nullptr;  // the pool drops the oldest block
  EXPECT_EQ(pool->kept(), 2 * kMiB);
  d = nullptr;
  EXPECT_EQ(pool->kept(), 2 * kMiB);
  EXPECT_EQ((*pool->Take(8 * kMiB))->size(), 8 * kMiB);
  EXPECT_EQ(pool->kept(), 2 * kMiB);
}

TEST(BlockPool, BlocksMayOutliveIt) {
  auto pool = BlockPool::Make(8 * kMiB);
  auto block = *pool->Take(kMiB);
  pool = nullptr;
  block->data()[kMiB - 1] = 1;
  block = nullptr;
}

}  // namespace
}  // namespace fairway
