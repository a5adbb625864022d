// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/upload_buffer.h"

#include <future>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

class UploadBufferTest : public testing::Test {
 protected:
  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(4 << 20);
  Spool spool_{budget_, testing::TempDir()};
};

TEST_F(UploadBufferTest, BytesArriveInOrderAndAligned) {
  UploadBuffer buffer(6, spool_);
  buffer.Append("abc");
  buffer.Append("");
  buffer.Append("def");
  const auto blob = buffer.Finish().value();
  EXPECT_EQ(blob->view(), "abcdef");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(blob->data()) % Blob::kAlignment, 0u);
}

TEST_F(UploadBufferTest, MemoryIsGivenBackWithTheLastReference) {
  {
    UploadBuffer buffer(3, spool_);
    buffer.Append("abc");
    const auto blob = buffer.Finish().value();
    EXPECT_GT(budget_->used(), 0);
  }
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(UploadBufferTest, AHugeAnnouncementAllocatesNothing) {
  UploadBuffer buffer(std::numeric_limits<int64_t>::max(), spool_);
  buffer.Append("abc");
  EXPECT_LE(budget_->used(), 1 << 20);
  EXPECT_EQ(buffer.Finish().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(UploadBufferTest, MoreOrFewerBytesThanAnnouncedAreDataLoss) {
  UploadBuffer more(2, spool_);
  more.Append("abc");
  EXPECT_EQ(more.Finish().status().code(), absl::StatusCode::kDataLoss);
  UploadBuffer negative(-5, spool_);
  EXPECT_EQ(negative.Finish().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(UploadBufferTest, AboveTheBudgetBytesGoToAFile) {
  const std::string chunk(1 << 20, 'x');
  UploadBuffer buffer(6 << 20, spool_);
  for (int i = 0; i < 5; ++i) buffer.Append(chunk);
  buffer.Append(std::string(1 << 20, 'y'));
  EXPECT_TRUE(buffer.spooled());
  EXPECT_EQ(budget_->used(), 0);
  const auto blob = buffer.Finish().value();
  ASSERT_EQ(blob->size(), 6u << 20);
  EXPECT_EQ(blob->data()[(5 << 20) - 1], 'x');
  EXPECT_EQ(blob->data()[5 << 20], 'y');
}

TEST_F(UploadBufferTest, WhatWillNotFitGoesToItsFileAtOnce) {
  UploadBuffer buffer((4 << 20) + 1, spool_);
  buffer.Append("x");
  EXPECT_TRUE(buffer.spooled());
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(UploadBufferTest, WhatHasComeIsMovedWhenOthersTakeTheRoomMeanwhile) {
  UploadBuffer buffer(3 << 20, spool_);
  buffer.Append(std::string(1 << 19, 'x'));
  EXPECT_FALSE(buffer.spooled());
  ASSERT_TRUE(budget_->Reserve((4 << 20) - budget_->used()));
  buffer.Append(std::string(5 << 19, 'y'));
  EXPECT_TRUE(buffer.spooled());
  const auto blob = buffer.Finish().value();
  EXPECT_EQ(blob->data()[0], 'x');
  EXPECT_EQ(blob->data()[(3 << 20) - 1], 'y');
}

TEST_F(UploadBufferTest, WithoutMemoryAndDiskTheUploadIsDrained) {
  UploadBuffer buffer(8 << 20, Spool{std::make_shared<MemoryBudget>(0), "/nonexistent"});
  for (int i = 0; i < 8; ++i) buffer.Append(std::string(1 << 20, 'x'));
  EXPECT_EQ(buffer.Finish().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(UploadBufferTest, WhatIsMoreThanAnnouncedIsNotKept) {
  UploadBuffer buffer(1, spool_);
  for (int i = 0; i < 8; ++i) buffer.Append(std::string(1 << 20, 'x'));
  EXPECT_TRUE(buffer.overrun());
  EXPECT_FALSE(buffer.spooled());
  EXPECT_EQ(budget_->used(), 0);
  EXPECT_EQ(buffer.Finish().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(UploadBufferTest, OneClientLeavesMemoryToOthers) {
  const Spool one = spool_.Share(), other = spool_.Share();
  UploadBuffer first(8 << 20, one);
  for (int i = 0; i < 8; ++i) first.Append(std::string(1 << 20, 'x'));
  EXPECT_TRUE(first.spooled());  // half of the budget did not hold it
  UploadBuffer second(1 << 20, one), third(1 << 20, one), of_other(1 << 20, other);
  for (UploadBuffer* buffer : {&second, &third, &of_other})
    buffer->Append(std::string(1 << 20, 'y'));
  EXPECT_FALSE(second.spooled());
  EXPECT_FALSE(third.spooled());
  EXPECT_FALSE(of_other.spooled());
  UploadBuffer fourth(1 << 20, one);
  EXPECT_TRUE(fourth.GoesToFile(std::string(1 << 20, 'z')));
  EXPECT_EQ(*one.in_files, 8 << 20);
  EXPECT_EQ(*other.in_files, 0);
  {
    const auto blob = first.Finish().value();
    EXPECT_EQ(*one.in_files, 8 << 20);
  }
  EXPECT_EQ(*one.in_files, 0);
}

TEST_F(UploadBufferTest, OneClientLeavesMappingsToOthers) {
  spool_.mappings = std::make_shared<MemoryBudget>(4);
  const Spool one = spool_.Share(), other = spool_.Share();
  one.budget->Take(4 << 20);  // from now on its uploads go to files, however small
  const auto upload = [](const Spool& spool) {
    UploadBuffer buffer(4, spool);
    buffer.Append("abcd");
    return buffer.Finish();
  };
  const auto first = upload(one), second = upload(one);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(upload(one).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(upload(other).ok());
}

TEST_F(UploadBufferTest, FilesAreGivenUpByAThreadOfTheirOwn) {
  spool_.files = std::make_shared<BlockingPool>("files", 1);
  const Spool one = spool_.Share();
  UploadBuffer buffer(8 << 20, one);
  for (int i = 0; i < 8; ++i) buffer.Append(std::string(1 << 20, 'x'));
  ASSERT_TRUE(buffer.spooled());
  auto blob = buffer.Finish().value();
  std::promise<void> goes_on;
  spool_.files->Run([gate = goes_on.get_future()] { gate.wait(); });
  blob.reset();
  EXPECT_EQ(*one.in_files, 8 << 20) << "this thread has given it up";
  EXPECT_EQ(spool_.files->pending(), 2u);
  goes_on.set_value();
  while (spool_.files->pending() > 0) std::this_thread::yield();
  EXPECT_EQ(*one.in_files, 0);
}

TEST_F(UploadBufferTest, OneClientLeavesDiskToOthers) {
  const Spool one = spool_.Share();
  UploadBuffer buffer(8 << 20, one);
  *one.in_files = int64_t{1} << 60;
  for (int i = 0; i < 8; ++i) buffer.Append(std::string(1 << 20, 'x'));
  const absl::Status status = buffer.Finish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("as much there as it leaves to others"));
  EXPECT_EQ(*one.in_files, int64_t{1} << 60);
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(UploadBufferTest, AnEmptyBufferIsFine) {
  UploadBuffer buffer(0, spool_);
  EXPECT_EQ(buffer.Finish().value()->size(), 0u);
}

}  // namespace
}  // namespace fairway
