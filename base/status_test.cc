// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(Bounded, AShortErrorStaysAsItIs) {
  absl::Status status = absl::NotFoundError("text");
  status.SetPayload("url", absl::Cord("value"));
  EXPECT_EQ(Bounded(status), status);
  EXPECT_TRUE(Bounded(absl::OkStatus()).ok());
}

TEST(Bounded, ALongTextIsCutAndSaysSo) {
  const absl::Status cut = Bounded(absl::NotFoundError(std::string(10'000'000, 'x')));
  EXPECT_EQ(cut.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Text(cut), std::string(3072, 'x') + "\n... (10000000 bytes in all) ...\n" +
                           std::string(1024, 'x'));
  EXPECT_EQ(Bounded(cut), cut);
}

TEST(Bounded, NoCharacterIsCutInTheMiddle) {
  for (size_t before = 0; before < 4; ++before) {
    std::string text(before, 'x');
    while (text.size() <= 2 * kMaxErrorText) text += "\u20ac";  // three bytes
    const std::string cut = Text(Bounded(absl::NotFoundError(text)));
    EXPECT_EQ((cut.find('\n') - before) % 3, 0u);
    EXPECT_EQ((cut.size() - cut.rfind('\n') - 1) % 3, 0u);
  }
}

TEST(Bounded, LargePayloadsAreDropped) {
  absl::Status status = absl::NotFoundError("text");
  status.SetPayload("url", absl::Cord(std::string(kMaxErrorText + 1, 'x')));
  EXPECT_EQ(Bounded(status), absl::NotFoundError("text"));
}

TEST(Bounded, ATextByItselfIsCutAlike) {
  for (const size_t size : {0, 100, 4096, 4160, 4161, 1 << 20}) {
    const std::string text(size, 'x');
    EXPECT_EQ(BoundedText(text), Text(Bounded(absl::InternalError(text)))) << size;
    EXPECT_LE(BoundedText(text).size(), kMaxErrorText + 64) << size;
  }
}

}  // namespace
}  // namespace fairway
