// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/strided.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace fairway {
namespace {

std::string Transposed(const std::string& bytes, std::vector<int64_t> dims,
                       std::vector<int64_t> strides) {
  const auto layout = CheckStrides(DType::kU8, Shape{std::move(dims)}, strides).value();
  return std::string(ToDense(layout, Blob::Copy(bytes), *BlockPool::Make(0)).value()->view());
}

TEST(StridedTest, TransposedBytesBecomeDense) {
  EXPECT_EQ(Transposed("adbecf", {2, 3}, {1, 2}), "abcdef");
  EXPECT_EQ(Transposed("abcdef", {2, 3}, {3, 1}), "abcdef");
}

TEST(StridedTest, GapsAreSkippedAndTheBlockEndsWithTheLastElement) {
  EXPECT_EQ(Transposed("ab--cd", {2, 2}, {4, 1}), "abcd");
}

TEST(StridedTest, DenseBytesAreNotCopied) {
  const auto layout =
      CheckStrides(DType::kF32, Shape{{2, 1, 3}}, std::vector<int64_t>{12, -7, 4}).value();
  EXPECT_TRUE(layout.dense);
  const std::shared_ptr<const Blob> blob = Blob::Copy(std::string(24, 'x'));
  EXPECT_EQ(ToDense(layout, blob, *BlockPool::Make(0)).value(), blob);
}

TEST(StridedTest, TheWayBackUndoesIt) {
  const auto layout = CheckStrides(DType::kU8, Shape{{2, 3}}, std::vector<int64_t>{1, 3}).value();
  const auto block = FromDense(layout, Blob::Copy("abcdef"), *BlockPool::Make(0)).value();
  EXPECT_EQ(block->size(), 8u);
  EXPECT_EQ(ToDense(layout, block, *BlockPool::Make(0)).value()->view(), "abcdef");
}

TEST(StridedTest, ScalarsAndEmptyArrays) {
  const auto scalar = CheckStrides(DType::kF32, Shape{}, std::vector<int64_t>{}).value();
  EXPECT_EQ(scalar.block_bytes, 4);
  EXPECT_TRUE(ToDense(scalar, Blob::Copy("abcd"), *BlockPool::Make(0)).ok());
  const auto empty = CheckStrides(DType::kF32, Shape{{0, 3}}, std::vector<int64_t>{12, 4}).value();
  EXPECT_EQ(empty.block_bytes, 0);
  EXPECT_TRUE(ToDense(empty, Blob::Make(0), *BlockPool::Make(0)).ok());
}

TEST(StridedTest, WrongSizesAndStridesAreRefused) {
  const auto layout = CheckStrides(DType::kF32, Shape{{2}}, std::nullopt).value();
  EXPECT_EQ(ToDense(layout, Blob::Copy("abc"), *BlockPool::Make(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto code = [](std::vector<int64_t> dims, std::vector<int64_t> strides) {
    return CheckStrides(DType::kF32, Shape{std::move(dims)}, strides).status().code();
  };
  EXPECT_EQ(code({2, 2}, {4}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({2}, {-4}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({2}, {0}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({2}, {3}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({1 << 20, 2}, {std::numeric_limits<int64_t>::max() / 8 * 4, 4}),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fairway
