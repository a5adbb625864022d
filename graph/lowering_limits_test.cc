// SPDX-License-Identifier: Apache-2.0
// Lowering of programs as large as they may be, and larger.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sanitized_for_test.h"
#include "graph/lowering.h"
#include "graph/program_maker_for_test.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

// Instructions before a loop do not make it look at fewer rounds.
TEST(LoweringLimits, MemoryOfALoopBehindALongProgram) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  Maker m;
  const int f = m.Computation("f", 1), wide = m.Computation("wide", 1, 4);
  m.program.graphs.resize(2);
  m.program.graphs[1].results = {m.Compute(wide, 0, {m.Argument(0, 1)}, 1)};
  ValueRef x = m.Argument(0);
  for (int i = 0; i < 100'000; ++i) x = m.Compute(f, 0, {x});
  m.program.graphs[0].results = {m.Add(LoopNode{1, 1000, {x}})};
  const ProgramPlan plan = m.Lowered();
  EXPECT_GE(std::get<ProgramPlan::RunSequence>(plan.steps[0]).temp_bytes, 4 * 64 * kSequenceWindow);
}

// A loop that computes nothing takes as long to walk through as others.
TEST(LoweringLimits, LoopsThatOnlySwapAreBoundedToo) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  for (const int second : {0, 1}) {  // on one slice; over two
    Maker m;
    m.program.graphs.resize(2);
    const ValueRef a = m.Argument(0, 1), b = m.Argument(second, 1);
    m.program.graphs[1].results =
        second == 0 ? std::vector<ValueRef>{b, a} : std::vector<ValueRef>{a, b};
    const ValueRef loop = m.Add(LoopNode{1, int64_t{1} << 62, {m.Argument(0), m.Argument(second)}});
    m.program.graphs[0].results = {loop};
    const auto plan = Lower(m.program, *CheckProgram(m.program), m.binding);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
    EXPECT_THAT(Text(plan.status()), HasSubstr("have more than"));
  }
}

// Few steps with many results each: the values count, not only the steps.
TEST(LoweringLimits, LoopsThatMakeManyValuesAreBoundedToo) {
  for (const int64_t rounds : {64, 2000}) {
    Maker m;
    const int wide = m.Computation("wide", 1, 2000);
    m.program.graphs.resize(2);
    const ValueRef made = m.Compute(wide, 0, {m.Argument(0, 1)}, 1);
    const ValueRef there = m.Add(TransferNode{made, {1, Whole(4, 2)}}, 1);
    m.program.graphs[1].results = {m.Add(TransferNode{there, {0, Whole(4, 2)}}, 1)};
    m.program.graphs[0].results = {m.Add(LoopNode{1, rounds, {m.Argument(0)}})};
    const auto plan = Lower(m.program, *CheckProgram(m.program), m.binding);
    if (rounds == 64) {
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_LE(plan->values.size(), kMaxUnrolledValues);
    } else {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(Text(plan.status()), HasSubstr("take and make more than 262144 values"));
    }
  }
}

// Shared bodies double a program with each level.
TEST(LoweringLimits, WhatIsSmallAsWrittenMayNotBeLargeWrittenOut) {
  for (const int levels : {16, 17}) {
    Maker m;
    const int f = m.Computation("f", 1);
    m.program.graphs.resize(static_cast<size_t>(levels) + 1);
    for (int g = 0; g < levels; ++g) {
      ValueRef x = m.Argument(0, g);
      for (int twice = 0; twice < 3; ++twice) x = m.Add(LoopNode{g + 1, 1, {x}}, g);
      m.program.graphs[g].results = {x};
    }
    m.program.graphs[levels].results = {m.Compute(f, 0, {m.Argument(0, levels)}, levels)};
    EXPECT_THAT(Text(CheckProgram(m.program).status()), HasSubstr("at most 1048576 in 16"));
  }
}

// Finding the memory of a loop takes at least two walks through it, at each level of nesting.
TEST(LoweringLimits, LoopsWithinLoopsAreWalkedOnlySoFar) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  for (const int steps : {10, 2000}) {
    Maker m;
    const int f = m.Computation("f", 1);
    constexpr int kLevels = 16;
    m.program.graphs.resize(kLevels + 1);
    for (int g = 0; g <= kLevels; ++g) {
      ValueRef x = m.Argument(0, g);
      if (g < kLevels) x = m.Add(LoopNode{g + 1, 2, {x}}, g);
      for (int s = 0; g == kLevels && s < steps; ++s) x = m.Compute(f, 0, {x}, g);
      m.program.graphs[g].results = {x};
    }
    const auto plan = Lower(m.program, *CheckProgram(m.program), m.binding);
    EXPECT_EQ(plan.ok(), steps == 10) << plan.status();
    EXPECT_THAT(Text(plan.status()), HasSubstr(steps == 10 ? "" : "in loops within loops"));
  }
}

// acc = g(acc, transfer(f(x))): each round waits for one more transfer than the round before.
TEST(LoweringLimits, ALongLoopMayGatherTransfers) {
  Maker m;
  const int f = m.Computation("f", 1), g = m.Computation("g", 2);
  m.program.graphs.resize(2);
  const ValueRef acc = m.Argument(1, 1), x = m.Argument(0, 1);
  const ValueRef there = m.Compute(f, 0, {x}, 1);
  m.program.graphs[1].results = {m.Compute(g, 1, {acc, there}, 1), x};
  m.program.graphs[0].results = {m.Add(LoopNode{1, 10'000, {m.Argument(1), m.Argument(0)}})};
  const ProgramPlan plan = m.Lowered();
  EXPECT_EQ(plan.steps.size(), 20'001u);
}

}  // namespace
}  // namespace fairway
