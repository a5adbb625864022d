// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/check_packed_types.h"

#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;

constexpr int kS2 = 26, kS1 = 30, kS8 = 2;  // xla.PrimitiveType

// A module whose entry calls a fusion with that body. Instructions: opcode, then what it reads.
class PackedTypesTest : public testing::Test {
 protected:
  void Add(const std::string& opcode, int type, std::initializer_list<int64_t> operands = {}) {
    hlo::HloInstruction& one = *body_->add_instructions();
    one.set_opcode(opcode);
    one.set_id(next_++);
    one.mutable_shape()->set_element_type(type);
    one.mutable_operand_ids()->Add(operands.begin(), operands.end());
  }
  // Returns the error text; empty: none.
  std::string Check(int result) {
    hlo::HloComputation& entry = *module_.add_computations();
    entry.set_id(2);
    hlo::HloInstruction& fusion = *entry.add_instructions();
    fusion.set_opcode("fusion");
    fusion.set_id(100);
    fusion.mutable_shape()->set_element_type(result);
    fusion.add_called_computation_ids(1);
    return Text(CheckPackedTypes(module_));
  }

  PackedTypesTest() : body_(module_.add_computations()) { body_->set_id(1); }

  hlo::HloModule module_;
  hlo::HloComputation* const body_;
  int64_t next_ = 1;
};

TEST_F(PackedTypesTest, TwoBitsAreCounted) {
  Add("iota", kS2);
  Add("bitcast", kS2, {1});
  EXPECT_EQ(Check(kS2), "");
}

TEST_F(PackedTypesTest, NothingElseIsDoneWhereTheyAreCounted) {
  Add("iota", kS2);
  Add("concatenate", kS2, {1, 1});
  EXPECT_THAT(Check(kS2), HasSubstr("operation concatenate on s2"));
}

TEST_F(PackedTypesTest, ACopyWithinAFusionIsNotPassingOn) {
  Add("parameter", kS2);
  Add("copy", kS2, {1});
  EXPECT_THAT(Check(kS2), HasSubstr("operation fusion on s2"));
}

TEST_F(PackedTypesTest, WhatReadsThemIsRefusedWhateverItMakes) {
  Add("iota", kS2);
  Add("convert", kS8, {1});
  EXPECT_THAT(Check(kS8), HasSubstr("operation convert on s2"));
}

TEST_F(PackedTypesTest, OneBitIsNotCounted) {
  Add("iota", kS1);
  EXPECT_THAT(Check(kS1), HasSubstr("on s1"));
}

}  // namespace
}  // namespace fairway
