// SPDX-License-Identifier: Apache-2.0
#include "client/cli/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using client::DType;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(ValuesTest, ANumberIsTheValueEverywhere) {
  EXPECT_THAT(Filled(DType::kF32, {2, 3}, "1.5")->values<float>(),
              ::testing::AllOf(SizeIs(6), Each(1.5f)));
  EXPECT_THAT(Filled(DType::kS8, {300}, "-128")->values<int8_t>(), Each(-128));
  EXPECT_THAT(Filled(DType::kU64, {}, "4294967296")->values<uint64_t>(), Each(4294967296u));
  EXPECT_EQ(FirstValues(*Filled(DType::kS32, {1}, "-1e3")), "[-1000]");
  EXPECT_EQ(FirstValues(*Filled(DType::kPred, {2}, "1")), "[1, 1]");
  EXPECT_EQ(FirstValues(*Filled(DType::kBF16, {1}, "0")), "[0x00, 0x00]");
  EXPECT_EQ(FirstValues(*Filled(DType::kF64, {0}, "1")), "[]");
}

TEST(ValuesTest, IntegersAreExact) {
  const auto shown = [](DType dtype, const std::string& value) {
    const auto array = Filled(dtype, {}, value);
    return array.ok() ? FirstValues(*array) : Text(array.status());
  };
  EXPECT_EQ(shown(DType::kS64, "9007199254740993"), "[9007199254740993]");  // not a double
  EXPECT_EQ(shown(DType::kS64, "-9223372036854775808"), "[-9223372036854775808]");
  EXPECT_EQ(shown(DType::kS64, "-9223372036854775809"), "s64 cannot be -9223372036854775809");
  EXPECT_EQ(shown(DType::kU64, "18446744073709551615"), "[18446744073709551615]");
  EXPECT_EQ(shown(DType::kU64, "18446744073709551616"), "u64 cannot be 18446744073709551616");
  EXPECT_EQ(shown(DType::kU64, "1e300"), "u64 cannot be 1e300");
}

TEST(ValuesTest, OnlyTheFirstAreShown) {
  EXPECT_EQ(FirstValues(*Filled(DType::kS32, {8}, "7")), "[7, 7, 7, 7, 7, 7, 7, 7]");
  EXPECT_EQ(FirstValues(*Filled(DType::kF32, {9}, "0.5")),
            "[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...]");
}

TEST(ValuesTest, WhatATypeCannotHoldIsRefused) {
  const auto error = [](DType dtype, const std::string& value) {
    return Text(Filled(dtype, {2}, value).status());
  };
  EXPECT_THAT(error(DType::kS8, "128"), HasSubstr("s8 cannot be 128"));
  EXPECT_THAT(error(DType::kS32, "0.5"), HasSubstr("s32 cannot be 0.5"));
  EXPECT_THAT(error(DType::kU8, "-1"), HasSubstr("u8 cannot be -1"));
  EXPECT_THAT(error(DType::kPred, "2"), HasSubstr("pred cannot be 2"));
  EXPECT_THAT(error(DType::kS64, "nan"), HasSubstr("s64 cannot be nan"));
  EXPECT_THAT(error(DType::kBF16, "1"), HasSubstr("give it 0 or a .npy file"));
  EXPECT_THAT(error(DType::kF32, "x.np"), HasSubstr("'x.np' is neither a number nor"));
}

}  // namespace
}  // namespace fairway
