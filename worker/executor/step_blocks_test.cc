// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/step_blocks.h"

#include "worker/executor/sequences_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

Sequence Of(std::vector<Instruction> instructions) {
  Sequence sequence;
  sequence.registers = 16;
  sequence.types = {{DType::kF32, Shape{{4}}, ""}};
  sequence.instructions = std::move(instructions);
  return sequence;
}
Instruction Clears(std::vector<int32_t> registers) {
  Instruction clear;
  clear.op = Op::kClear;
  clear.clears = std::move(registers);
  return clear;
}
// The whole sequence, before its first instruction.
SequencePlace Whole(const Sequence& sequence) { return {0, sequence.instructions.size(), 0, 0}; }

TEST(StepBlocksTest, StepsBehindEachOther) {
  // r1 = x1(r0); r2 = x2(r1, r0), r1 dies; r3 = x3(r2), r2 lives.
  const Sequence sequence =
      Of({Call(1, {0}, {1}), Call(2, {1, 0}, {2}, {1}), Call(3, {2}, {3}), Output(0, 3)});
  EXPECT_EQ(StepsFrom(sequence, Whole(sequence), 16), 3u);
  EXPECT_EQ(StepsFrom(sequence, Whole(sequence), 2), 2u);
  const auto block = MakeBlock(sequence, Whole(sequence), 3, 100);
  ASSERT_NE(block, nullptr);
  // Value 0 is r0, and 1, 2, 3 are what the calls make.
  EXPECT_THAT(block->step.inputs, ElementsAre(0));
  ASSERT_EQ(block->calls.size(), 3u);
  EXPECT_EQ(block->calls[1].executable, ExecutableId(2));
  EXPECT_THAT(block->calls[0].inputs, ElementsAre(0));
  EXPECT_THAT(block->calls[1].inputs, ElementsAre(1, 0));
  EXPECT_THAT(block->calls[2].inputs, ElementsAre(2));
  EXPECT_THAT(block->calls[1].ends, ElementsAre(1));
  EXPECT_THAT(block->calls[2].ends, IsEmpty());
  EXPECT_THAT(block->results, ElementsAre(2, 3));
  EXPECT_THAT(block->step.outputs, ElementsAre(2, 3));
  EXPECT_THAT(block->step.types, ElementsAre(0, 0));
  EXPECT_THAT(block->step.clears, ElementsAre(1));
  EXPECT_EQ(block->next, 3u);
  EXPECT_EQ(block->rounds, 0);
}

TEST(StepBlocksTest, RoundsOfALoop) {
  // r1 = x1(r0), r0 dies; r0 = r1, r1 dies; five times, of which two are over.
  const Sequence sequence =
      Of({Repeat(5, 2), Call(1, {0}, {1}, {0}), Set(0, 1, {1}), Output(0, 0)});
  const SequencePlace place{1, 3, 1, 2};
  EXPECT_EQ(StepsFrom(sequence, place, 16), 3u);
  EXPECT_EQ(StepsFrom(sequence, place, 2), 2u);
  const auto block = MakeBlock(sequence, place, 2, 100);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(block->step.inputs, ElementsAre(0));
  EXPECT_THAT(block->calls[1].inputs, ElementsAre(1));
  EXPECT_THAT(block->calls[1].ends, ElementsAre(1));
  EXPECT_THAT(block->results, ElementsAre(2));
  EXPECT_THAT(block->step.outputs, ElementsAre(0));
  EXPECT_THAT(block->step.clears, ElementsAre(1));
  EXPECT_EQ(block->next, 3u) << "behind what renames the last result";
  EXPECT_EQ(block->rounds, 1);
}

TEST(StepBlocksTest, NoBlockGoesThroughBranchesOutputsAndLoops) {
  for (const Instruction& between : {Branch(1, {}, {0}), Output(0, 1), Repeat(2, 1)}) {
    const Sequence sequence = Of({Call(1, {0}, {1}), between, Call(1, {1}, {2})});
    EXPECT_EQ(StepsFrom(sequence, Whole(sequence), 16), 1u);
    EXPECT_EQ(StepsFrom(sequence, {0, 3, 1, 0}, 16), 0u);
  }
}

TEST(StepBlocksTest, AStepMayMakeWhatNothingReads) {
  const Sequence sequence = Of({Call(1, {0}, {1, 2}), Call(1, {1}, {2, 1})});
  const auto block = MakeBlock(sequence, Whole(sequence), 2, 100);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(block->calls[0].ends, ElementsAre(2));
  EXPECT_THAT(block->calls[1].ends, ElementsAre(1));
  EXPECT_THAT(block->results, ElementsAre(4, 3)) << "by register";
}

TEST(StepBlocksTest, TwoRegistersMayHoldOneResult) {
  const Sequence sequence =
      Of({Call(1, {0}, {1}), Set(3, 1), Call(1, {3}, {2}), Clears({0}), Output(0, 2)});
  const auto block = MakeBlock(sequence, Whole(sequence), 2, 100);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(block->step.outputs, ElementsAre(1, 2));
  EXPECT_THAT(block->copies, ElementsAre(Pair(3, 1)));
  EXPECT_THAT(block->step.clears, ElementsAre(0));
  EXPECT_EQ(block->next, 4u);
}

TEST(StepBlocksTest, ThereIsNoBlock) {
  const Sequence renames = Of({Call(1, {0}, {1}), Set(3, 0), Call(1, {1}, {2})});
  EXPECT_EQ(MakeBlock(renames, Whole(renames), 2, 100), nullptr) << "r3 gets an argument";
  const Sequence empty = Of({Call(1, {0}, {1}, {0}), Call(1, {0}, {2})});
  EXPECT_EQ(MakeBlock(empty, Whole(empty), 2, 100), nullptr) << "r0 is empty";
  const Sequence wide = Of({Call(1, {0, 0, 0}, {1}), Call(1, {1}, {2, 3})});
  EXPECT_EQ(MakeBlock(wide, Whole(wide), 2, 6), nullptr);
  EXPECT_NE(MakeBlock(wide, Whole(wide), 2, 7), nullptr);
}

}  // namespace
}  // namespace fairway
