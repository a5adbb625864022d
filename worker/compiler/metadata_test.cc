// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/metadata.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

// Optimized modules as the compiler makes them: computations before their callers.
class BriefTest : public testing::Test {
 protected:
  hlo::HloComputation& Computation() {
    hlo::HloComputation& computation = *module_.add_computations();
    computation.set_id(module_.computations_size());
    module_.set_entry_computation_id(computation.id());
    return computation;
  }
  // Returns the id of the new instruction.
  int64_t Add(hlo::HloComputation& to, const std::string& opcode, std::vector<int64_t> dimensions,
              const std::vector<int64_t>& operands = {}, const std::vector<int64_t>& calls = {}) {
    hlo::HloInstruction& instruction = *to.add_instructions();
    instruction.set_opcode(opcode);
    instruction.set_id(++last_id_);
    instruction.mutable_shape()->mutable_dimensions()->Assign(dimensions.begin(), dimensions.end());
    instruction.mutable_operand_ids()->Assign(operands.begin(), operands.end());
    instruction.mutable_called_computation_ids()->Assign(calls.begin(), calls.end());
    return last_id_;
  }

  hlo::HloModule module_;
  int64_t last_id_ = 0;
};

TEST_F(BriefTest, FewElementsAreBriefAndManyAreNot) {
  hlo::HloComputation& main = Computation();
  const int64_t x = Add(main, "parameter", {30, 30});
  Add(main, "add", {30, 30}, {x, x});
  EXPECT_TRUE(Brief(module_, 900));
  EXPECT_FALSE(Brief(module_, 1000)) << "XLA gives it to another thread";
  Add(main, "broadcast", {100, 100}, {x});
  EXPECT_FALSE(Brief(module_, 0));
}

TEST_F(BriefTest, WhatIsBriefButForCollectivesMeetsBriefly) {
  hlo::HloComputation& main = Computation();
  const int64_t x = Add(main, "parameter", {30, 30});
  EXPECT_FALSE(MeetsBriefly(module_, 0)) << "nobody waits";
  Add(main, "dot", {30, 30}, {x, x});
  Add(main, "all-reduce", {30, 30}, {x});
  EXPECT_TRUE(MeetsBriefly(module_, 900));
  EXPECT_FALSE(Brief(module_, 900));
  EXPECT_FALSE(MeetsBriefly(module_, 1000)) << "XLA gives it to another thread";
  for (const char* opcode : {"while", "custom-call", "sort", "send", "a-new-one"}) {
    const hlo::HloModule before = module_;
    Add(*module_.mutable_computations(0), opcode, {});
    EXPECT_FALSE(MeetsBriefly(module_, 0)) << opcode;
    module_ = before;
  }
  Add(main, "all-gather", {100, 100}, {x});
  EXPECT_FALSE(MeetsBriefly(module_, 0)) << "too many elements";
}

TEST_F(BriefTest, HugeExtentsDoNotOverflow) {
  hlo::HloComputation& main = Computation();
  Add(main, "broadcast", {int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_FALSE(Brief(module_, 0));
}

TEST_F(BriefTest, WhatIsNotCountedByElementsIsNotBrief) {
  for (const char* opcode :
       {"while", "custom-call", "conditional", "sort", "fft", "scatter", "triangular-solve",
        "convolution", "all-reduce", "send", "a-new-one"}) {
    module_.Clear();
    Add(Computation(), opcode, {1});
    EXPECT_FALSE(Brief(module_, 0)) << opcode;
  }
}

TEST_F(BriefTest, BodiesCountAsOftenAsTheyRun) {
  hlo::HloComputation& sum = Computation();
  Add(sum, "add", {});
  hlo::HloComputation& main = Computation();
  const int64_t x = Add(main, "parameter", {1000});
  Add(main, "reduce", {}, {x}, {sum.id()});
  EXPECT_TRUE(Brief(module_, 0));
  for (int i = 0; i < 3; ++i) Add(main, "reduce", {}, {x}, {sum.id()});
  EXPECT_FALSE(Brief(module_, 0));
}

// XLA may give some of them to a pool that all programs share, and wait.
TEST_F(BriefTest, ManyThunksAreNotBrief) {
  hlo::HloComputation& fused = Computation();
  for (int i = 0; i < 20; ++i) Add(fused, "add", {});
  hlo::HloComputation& called = Computation();
  for (int i = 0; i < 8; ++i) Add(called, "fusion", {200}, {}, {fused.id()});
  hlo::HloComputation& main = Computation();
  const int64_t x = Add(main, "parameter", {200});
  for (int i = 0; i < 20; ++i) Add(main, "bitcast", {}, {x});
  Add(main, "call", {200}, {x}, {called.id()});
  EXPECT_TRUE(Brief(module_, 0));
  Add(called, "copy", {});
  EXPECT_FALSE(Brief(module_, 0));
}

TEST_F(BriefTest, CallsThatDoubleWithEachLevelAreNotBrief) {
  Add(Computation(), "add", {});
  for (int level = 0; level < 40; ++level) {
    const int64_t callee = module_.entry_computation_id();
    hlo::HloComputation& caller = Computation();
    for (int i = 0; i < 2; ++i) Add(caller, level % 2 == 0 ? "call" : "fusion", {}, {}, {callee});
    EXPECT_EQ(Brief(module_, 0), level < 10) << level;
  }
}

TEST_F(BriefTest, ACalleeThatIsNotThereIsNotBrief) {
  Add(Computation(), "call", {}, {}, {7});
  EXPECT_FALSE(Brief(module_, 0));
  module_.Clear();
  EXPECT_FALSE(Brief(module_, 0)) << "no entry";
}

}  // namespace
}  // namespace fairway
