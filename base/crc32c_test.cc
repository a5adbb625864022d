// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace fairway {
namespace {

// Vectors of RFC 3720, B.4.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, BothFormsAgreeAtAllLengthsAndSplits) {
  std::mt19937_64 random(7);
  std::string bytes(20000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  for (const size_t size : {1, 7, 8, 9, 1023, 1024, 3071, 3072, 3073, 6144, 9999, 20000}) {
    const std::string_view all = std::string_view(bytes).substr(0, size);
    EXPECT_EQ(Crc32c(all), ExtendCrc32cPortable(0, all)) << size;
    const size_t cut = random() % (size + 1);
    EXPECT_EQ(CombineCrc32c(Crc32c(all.substr(0, cut)), Crc32c(all.substr(cut)), all.size() - cut),
              Crc32c(all))
        << size;
    EXPECT_EQ(ExtendCrc32c(Crc32c(all.substr(0, cut)), all.substr(cut)), Crc32c(all))
        << size << " cut at " << cut;
  }
}

TEST(Crc32c, OneFlippedBitShows) {
  std::string bytes(5000, 'x');
  const uint32_t before = Crc32c(bytes);
  bytes[4321] ^= 1;
  EXPECT_NE(Crc32c(bytes), before);
}

}  // namespace
}  // namespace fairway
