// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/upload_buffer.h"

#include <limits>

#include <gtest/gtest.h>

namespace fairway {
namespace {

class UploadBufferTest : public testing::Test {
 protected:
  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(4 << 20);
};

TEST_F(UploadBufferTest, BytesArriveInOrderAndAligned) {
  UploadBuffer buffer(6, budget_, testing::TempDir());
  buffer.Append("abc");
  buffer.Append("");
  buffer.Append("def");
  const auto blob = buffer.Finish().value();
  EXPECT_EQ(blob->view(), "abcdef");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(blob->data()) % Blob::kAlignment, 0u);
}

TEST_F(UploadBufferTest, MemoryIsGivenBackWithTheLastReference) {
  {
    UploadBuffer buffer(3, budget_, testing::TempDir());
    buffer.Append("abc");
    const auto blob = buffer.Finish().value();
    EXPECT_GT(budget_->used(), 0);
  }
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(UploadBufferTest, AHugeAnnouncementAllocatesNothing) {
  UploadBuffer buffer(std::numeric_limits<int64_t>::max(), budget_, testing::TempDir());
  buffer.Append("abc");
  EXPECT_LE(budget_->used(), 1 << 20);
  EXPECT_EQ(buffer.Finish().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(UploadBufferTest, MoreOrFewerBytesThanAnnouncedAreDataLoss) {
  UploadBuffer more(2, budget_, testing::TempDir());
  more.Append("abc");
  EXPECT_EQ(more.Finish().status().code(), absl::StatusCode::kDataLoss);
  UploadBuffer negative(-5, budget_, testing::TempDir());
  EXPECT_EQ(negative.Finish().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(UploadBufferTest, AboveTheBudgetBytesGoToAFile) {
  const std::string chunk(1 << 20, 'x');
  UploadBuffer buffer(6 << 20, budget_, testing::TempDir());
  for (int i = 0; i < 5; ++i) buffer.Append(chunk);
  buffer.Append(std::string(1 << 20, 'y'));
  EXPECT_TRUE(buffer.spooled());
  EXPECT_EQ(budget_->used(), 0);
  const auto blob = buffer.Finish().value();
  ASSERT_EQ(blob->size(), 6u << 20);
  EXPECT_EQ(blob->data()[(5 << 20) - 1], 'x');
  EXPECT_EQ(blob->data()[5 << 20], 'y');
}

TEST_F(UploadBufferTest, WithoutMemoryAndDiskTheUploadIsDrained) {
  UploadBuffer buffer(8 << 20, std::make_shared<MemoryBudget>(0), "/nonexistent");
  for (int i = 0; i < 8; ++i) buffer.Append(std::string(1 << 20, 'x'));
  EXPECT_EQ(buffer.Finish().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(UploadBufferTest, AnEmptyBufferIsFine) {
  UploadBuffer buffer(0, budget_, testing::TempDir());
  EXPECT_EQ(buffer.Finish().value()->size(), 0u);
}

}  // namespace
}  // namespace fairway
