// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/native/native_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/executor/runtime/native/test_native_programs.h"

namespace fairway {
namespace {

using test::NativeFromText;
using test::Parameter;
using test::Result;
using test::Step;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<NativeProgram> Make(const std::string& text, int num_devices = 1) {
  return NativeProgram::Make(NativeFromText(text), num_devices);
}

TEST(NativeProgramTest, TypesAreThoseOfOneDevicesShard) {
  auto program =
      Make(Parameter(DType::kF32, "8, 6", "4, 1", true) + Parameter(DType::kF32, "6, 3") +
               Step("matmul", "0, 1") + Step("all_reduce", "2") + Step("scale", "2") + Result(3) +
               Result(4, "4, 1"),
           4);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->name, "native");
  EXPECT_THAT(program->donated, ElementsAre(true, false));
  EXPECT_EQ(program->values[0].shape, (Shape{{2, 6}}));
  EXPECT_EQ(program->values[1].shape, (Shape{{6, 3}}));
  EXPECT_EQ(program->values[2].shape, (Shape{{2, 3}}));
  EXPECT_EQ(program->values[4].shape, (Shape{{2, 3}}));
  EXPECT_EQ(program->repeat, 1u);
}

TEST(NativeProgramTest, TheLastReaderOfAValueIsKnown) {
  const std::string body = Parameter(DType::kF32, "2") + Parameter(DType::kF32, "2") +
                           Step("add", "0, 1") + Step("scale", "2") + Result(3);
  auto once = Make(body);
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(once->values[0].last_reader, 0);
  EXPECT_EQ(once->values[1].last_reader, 0);
  EXPECT_EQ(once->values[2].last_reader, 1);
  EXPECT_EQ(once->values[3].last_reader, -1) << "a result";
  auto often = Make(body + "repeat: 3");
  ASSERT_TRUE(often.ok()) << often.status();
  EXPECT_EQ(often->values[0].last_reader, 0) << "replaced by result 0";
  EXPECT_EQ(often->values[1].last_reader, -1) << "read in every round";
}

struct Refused {
  std::string text;
  std::string why;
};

TEST(NativeProgramTest, WhatDoesNotFitIsRefusedByPlaceAndReason) {
  const std::string x = Parameter(DType::kF32, "4"), n = Parameter(DType::kS32, "4");
  const Refused cases[] = {
      {"parameters { dtype: 98 }", "parameter 0: 98 is not an element type"},
      {"parameters { dtype: 17 }", "parameter 0: 17 is not an element type"},  // token
      {Parameter(DType::kF32, "-1"), "parameter 0"},
      {Parameter(DType::kF32, "4", "3"), "3 tiles do not divide dimension 0 of [4]"},
      {Parameter(DType::kF32, "4", "1, 1"), "2 tile counts for 1 dimensions"},
      {Parameter(DType::kF32, "8", "4"), "parameter 0: 4 tiles"},
      {x + Step("add", "1"), "step 0 (add): operand 1 is not made before it; values 0 to 0 are"},
      {x + Step("frobnicate", "0"), "step 0 (frobnicate): not one of add, scale, matmul"},
      {x + Step("add", ""), "takes at least one operand"},
      {x + n + Step("add", "0, 1"), "takes operands of one type, got f32[4] and s32[4]"},
      {x + Step("scale", "0, 0"), "takes 1 operands, got 2"},
      {n + Step("scale", "0", "factor: 0.5"), "by 0.5: s32[4] takes a whole number"},
      {n + Step("scale", "0", "factor: nan"), "takes a whole number"},
      {Parameter(DType::kBF16, "4") + Step("add", "0"), "computes with f32, f64, s32 and s64"},
      {x + Step("matmul", "0, 0"), "takes [m,k] and [k,n] of f32 or f64, got f32[4] and f32[4]"},
      {x + Step("sleep", "0", "nanoseconds: -1"), "for -1 ns, not 0 to an hour"},
      {x + Step("busy_wait", "0", "nanoseconds: 3600000000001"), "not 0 to an hour"},
      {x + Result(1), "result 0: value 1 does not exist; 0 to 0 do"},
      {x + Result(0, "2"), "result 0: 2 tiles in dimension 0"},
      {x + Result(0, "1, 1"), "2 tile counts for f32[4]"},
      {x + Result(0) + Result(0) + "repeat: 2", "2 results of a repeated program of 1 parameters"},
      {x + n + Result(1) + "repeat: 2", "result 0 is s32[4], parameter 0, which it becomes"},
  };
  for (const Refused& refused : cases) {
    const absl::Status status = Make("name: 'mine' " + refused.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << refused.text;
    EXPECT_THAT(Text(status), HasSubstr("native program 'mine'")) << refused.text;
    EXPECT_THAT(Text(status), HasSubstr(refused.why)) << refused.text;
  }
}

TEST(NativeProgramTest, TilesMakeUpAllDevicesOrNone) {
  EXPECT_TRUE(Make(Parameter(DType::kF32, "8, 4", "2, 2"), 4).ok());
  EXPECT_TRUE(Make(Parameter(DType::kF32, "8, 4", "1, 1"), 4).ok());
  EXPECT_THAT(Text(Make(Parameter(DType::kF32, "8, 4", "2, 1"), 4).status()),
              HasSubstr("tiles [2,1] for 4 devices"));
}

}  // namespace
}  // namespace fairway
