// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/cut_out.h"

#include <memory>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "base/blob.h"

namespace fairway {
namespace {

std::string Bytes(int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += static_cast<char>(i * 7 + i / 256);
  return out;
}

TEST(CutOutTest, BoxesOfAnyPlaceAreTheirBytesAndThoseThatLieTogetherAreNotCopied) {
  std::mt19937 random(1);
  int views = 0, copies = 0;
  for (int round = 0; round < 5000; ++round) {
    Box box{int64_t{1} << random() % 3, {}, {}, {}};
    for (int d = random() % 5; d > 0; --d) {
      box.dims.push_back(1 + random() % 4);
      box.extents.push_back(random() % 2 == 0 ? box.dims.back() : random() % (box.dims.back() + 1));
      box.origin.push_back(random() % (box.dims.back() - box.extents.back() + 1));
    }
    const std::string bytes = Bytes(box.array_bytes());
    const auto shard = Blob::Copy(bytes);
    const auto cut = CutOut(box, HostView{shard->view(), shard});
    ASSERT_TRUE(cut.ok()) << cut.status();
    std::string want(box.bytes(), '?');
    CopyBox(box, bytes.data(), box.Alone(), want.data());
    ASSERT_EQ(std::string(cut->bytes), want) << "round " << round;
    ++(cut->owner == shard ? views : copies);
  }
  EXPECT_GT(views, 1000);
  EXPECT_GT(copies, 500);
}

TEST(CutOutTest, RowsAreAViewAndColumnsACopyAndAShardOfAnotherSizeIsRefused) {
  const auto shard = Blob::Copy(Bytes(64));
  const HostView view{shard->view(), shard};
  const auto rows = CutOut({4, {4, 4}, {1, 0}, {2, 4}}, view);
  EXPECT_EQ(rows->bytes.data(), shard->data() + 16);
  EXPECT_EQ(rows->bytes.size(), 32U);
  EXPECT_EQ(CutOut({4, {4, 4}, {2, 1}, {1, 2}}, view)->owner, shard);  // a box within one row
  EXPECT_NE(CutOut({4, {4, 4}, {0, 1}, {4, 1}}, view)->owner, shard);
  EXPECT_EQ(CutOut({4, {4, 5}, {0, 1}, {4, 1}}, view).status().message(),
            "a box of 80 bytes in a shard of 64");
}

}  // namespace
}  // namespace fairway
