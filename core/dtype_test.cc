// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <utility>

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

TEST(DTypeTest, EachNumberOfAnotherProtocolLeadsBack) {
  int types = 0, with_bytes = 0;
  for (int32_t number = -1; number <= 128; ++number) {
    const std::optional<DType> dtype = DTypeFromNumber(number);
    if (!dtype.has_value()) continue;
    ++types;
    if (PrimitiveTypeOf(*dtype) != 0) {
      EXPECT_EQ(DTypeFromPrimitiveType(PrimitiveTypeOf(*dtype)), *dtype) << Name(*dtype);
    }
    if (!PjrtTypeOf(*dtype).has_value()) continue;
    ++with_bytes;
    EXPECT_EQ(DTypeFromPjrtType(*PjrtTypeOf(*dtype)), *dtype) << Name(*dtype);
    EXPECT_GE(BytesPerElement(*dtype), 1) << Name(*dtype);
  }
  EXPECT_EQ(types, 33);
  EXPECT_EQ(with_bytes, 28);
  EXPECT_EQ(DTypeFromPrimitiveType(13), std::nullopt);  // a tuple
  EXPECT_EQ(DTypeFromPrimitiveType(0), std::nullopt);
  EXPECT_EQ(DTypeFromPjrtType(0), std::nullopt);
  EXPECT_EQ(PjrtTypeOf(DType::kToken), std::nullopt);  // the plugin would abort
  EXPECT_EQ(PrimitiveTypeOf(DType::kString), 0);
}

TEST(DTypeTest, SubByteTypesTakeAByteOnHostsAndTheirBitsOnDevices) {
  for (const auto& [dtype, bits] :
       {std::pair{DType::kS1, 1}, {DType::kU2, 2}, {DType::kS4, 4}, {DType::kF4E2M1FN, 4}}) {
    EXPECT_EQ(BytesPerElement(dtype), 1) << Name(dtype);
    EXPECT_EQ(PackedBits(dtype), bits) << Name(dtype);
  }
  EXPECT_EQ(PackedBits(DType::kPred), 0);
  EXPECT_EQ(PackedBits(DType::kToken), 0);
  EXPECT_EQ(PackedBits(DType::kF8E8M0FNU), 0);
}

}  // namespace
}  // namespace fairway
