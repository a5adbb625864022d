// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(DTypeTest, NumbersAreThoseOfTheProtocol) {
  EXPECT_EQ(DTypeFromNumber(11), DType::kF32);
  EXPECT_EQ(DTypeFromNumber(16), DType::kBF16);
  EXPECT_EQ(DTypeFromNumber(13), std::nullopt);  // a hole in the protocol's numbering
  EXPECT_EQ(DTypeFromNumber(-1), std::nullopt);
}

TEST(DTypeTest, EachTypeHasNameAndBits) {
  EXPECT_EQ(Name(DType::kC64), "c64");
  EXPECT_EQ(BytesPerElement(DType::kC64), 8);
  EXPECT_EQ(BytesPerElement(DType::kPred), 1);
  EXPECT_EQ(BytesPerElement(DType::kToken), 0);
  EXPECT_EQ(Name(static_cast<DType>(1234)), "invalid");
}

}  // namespace
}  // namespace fairway
