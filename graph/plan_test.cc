// SPDX-License-Identifier: Apache-2.0
// FailedBy: the errors of a sequence's outputs if arguments have failed.
#include "graph/plan.h"

#include <cstdlib>
#include <new>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Counts allocated bytes as a measure of work. Not inlined, because g++ would report mismatched
// pairs.
static size_t allocated = 0;
[[gnu::noinline]] void* operator new(size_t size) {
  allocated += size;
  if (void* made = std::malloc(size)) return made;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* made) noexcept { std::free(made); }
[[gnu::noinline]] void operator delete(void* made, size_t) noexcept { std::free(made); }

namespace fairway {
namespace {

using ::testing::ElementsAre;
using Op = Instruction::Op;

Instruction Make(Op op, std::vector<int32_t> in, std::vector<int32_t> out) {
  Instruction made;
  made.op = op;
  made.inputs = std::move(in);
  made.outputs = std::move(out);
  return made;
}

Instruction Repeat(int64_t count, int32_t length) {
  Instruction made = Make(Op::kRepeat, {}, {});
  made.count = count;
  made.lengths = {length};
  return made;
}

TEST(FailedByTest, ABranchAndAStepDecide) {
  // Arguments 0 to 2. Outputs: 0 = f(arg 1, arg 0); 1 = the result of the branch on argument 2,
  // which is argument 0 or argument 1; 2 = argument 1.
  Sequence sequence{"test", 5, 3, {}, {}};
  Instruction branch = Make(Op::kBranch, {2}, {4});
  branch.lengths = {1, 1};
  sequence.instructions = {
      Make(Op::kRun, {1, 0}, {3}), Make(Op::kOutput, {3}, {0}), branch,
      Make(Op::kSet, {0}, {4}),    Make(Op::kSet, {1}, {4}),    Make(Op::kOutput, {4}, {1}),
      Make(Op::kOutput, {1}, {2})};
  EXPECT_THAT(FailedBy(sequence, {false, false, false}), ElementsAre(-1, -1, -1));
  EXPECT_THAT(FailedBy(sequence, {true, false, false}), ElementsAre(0, -1, -1));
  EXPECT_THAT(FailedBy(sequence, {true, true, false}), ElementsAre(1, -1, 1));
  EXPECT_THAT(FailedBy(sequence, {true, false, true}), ElementsAre(0, 2, -1));
}

// A loop that swaps two values: after any number of rounds the answer is right, or says "not
// known".
TEST(FailedByTest, LoopsAreFollowedAsFarAsItIsCheap) {
  Sequence sequence{"test", 3, 1, {}, {}};
  sequence.instructions = {Repeat(0, 3), Make(Op::kSet, {0}, {2}), Make(Op::kSet, {1}, {0}),
                           Make(Op::kSet, {2}, {1}), Make(Op::kOutput, {0}, {0})};
  const auto after = [&](int64_t rounds) {
    sequence.instructions[0].count = rounds;
    return FailedBy(sequence, {true, false}).at(0);
  };
  EXPECT_EQ(after(0), 0);
  EXPECT_EQ(after(1), -1);
  EXPECT_EQ(after(2), 0);
  EXPECT_EQ(after(1'000'000'001), -1);
}

// Loops do not look at registers that they do not touch: 28,000 rounds with a million other
// registers.
TEST(FailedByTest, ManyShortLoopsOfALongProgramAreCheap) {
  Sequence sequence{"test", 1 << 20, 2, {}, {}};
  for (int32_t n = 1; n < 14'000; ++n) {
    sequence.instructions.push_back(Repeat(1000, 1));
    sequence.instructions.push_back(Make(Op::kSet, {n - 1}, {n}));
  }
  sequence.instructions.push_back(Make(Op::kOutput, {13'999}, {0}));
  sequence.instructions.push_back(Make(Op::kOutput, {14'000}, {1}));
  const size_t before = allocated;
  EXPECT_THAT(FailedBy(sequence, {true}), ElementsAre(0, -1));
  EXPECT_LT(allocated - before, size_t{16} << 20);  // copies of all registers would be 100 GiB
}

// A few rounds of a long block, or of a step with many inputs, are the whole budget.
TEST(FailedByTest, LongBlocksAndWideStepsCountAsWhatTheyAre) {
  constexpr int32_t kMany = 150'000, kArguments = 20;
  std::vector<Instruction> block(kMany + 1, Make(Op::kSet, {0}, {kArguments + 1}));
  block[0] = Make(Op::kBranch, {kArguments}, {});
  block[0].lengths = {kMany};
  std::vector<int32_t> inputs(kMany, kArguments);
  const std::vector<Instruction> step = {Make(Op::kRun, std::move(inputs), {kArguments + 1})};
  for (const std::vector<Instruction>& much : {block, step}) {
    Sequence sequence{"test", kArguments + 2, 1, {}, {Repeat(0, 0)}};
    auto& all = sequence.instructions;
    // Every round differs from the one before: every argument but the last becomes the next.
    for (int32_t n = 0; n < kArguments - 1; ++n) all.push_back(Make(Op::kSet, {n + 1}, {n}));
    all.insert(all.end(), much.begin(), much.end());
    all[0].lengths = {static_cast<int32_t>(all.size()) - 1};
    all.push_back(Make(Op::kOutput, {kArguments - 1}, {0}));
    const auto after = [&](int64_t rounds) {
      all[0].count = rounds;
      return FailedBy(sequence, std::vector<bool>(kArguments, true)).at(0);
    };
    EXPECT_EQ(after(2), kArguments - 1);
    EXPECT_EQ(after(16), -1);
  }
}

}  // namespace
}  // namespace fairway
