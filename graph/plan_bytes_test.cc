// SPDX-License-Identifier: Apache-2.0
// The memory of programs of a few nodes and many values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/lowering.h"
#include "graph/program_maker_for_test.h"

namespace fairway {
namespace {

// An unrolled loop (it has a constant) over a computation with `wide` results, one of which is the
// next input. All values of the last round, or none, are results of the program.
struct Wide {
  explicit Wide(int64_t rounds, int wide) {
    const ArraySpec type{DType::kF32, Shape{{8}}, Sharding::Replicated({0})};
    Computation computation;
    computation.name = "wide";
    computation.code = std::make_shared<const std::string>("code");
    computation.parameters = {type};
    computation.results.assign(wide, type);
    program.computations = {computation};
    program.slices = {{"a", 1}};
    program.graphs.resize(2);
    program.graphs[0].nodes = {{"", "", ArgumentNode{{0, type}}},
                               {"", "", LoopNode{1, rounds, {{0, 0}}}}};
    program.graphs[0].results = {{1, 0}};
    program.graphs[1].nodes = {
        {"", "", ArgumentNode{{0, type}}},
        {"", "", ConstantNode{{0, type}, std::make_shared<const std::string>(32, 'k')}},
        {"", "", ComputeNode{0, 0, {{0, 0}}}}};
    program.graphs[1].results = {{2, 0}};
    binding.places = {0};
    binding.code[{0, 0}] = {ExecutableId(1), {}, {}, 0};
    binding.code[{0, 0}].outputs.assign(wide, {DType::kF32, Shape{{8}}, ""});
  }
  // Writes `nodes` nodes instead of the loop; all their outputs are results.
  void WriteOut(int nodes) {
    Graph& graph = program.graphs[0];
    graph.nodes.pop_back();
    graph.results.clear();
    const auto wide = static_cast<int32_t>(program.computations[0].results.size());
    for (int n = 1; n <= nodes; ++n) {
      graph.nodes.push_back({"", "", ComputeNode{0, 0, {{0, 0}}}});
      for (int32_t o = 0; o < wide; ++o) graph.results.push_back({n, o});
    }
  }
  ProgramPlan Lowered() const { return LoweredOrFail(program, binding); }

  Program program;
  ProgramBinding binding;
};

TEST(PlanBytes, APlanNamesTheValuesThatAreSeenBetweenItsStepsOnly) {
  Wide wide(1000, 200);
  const ProgramPlan plan = wide.Lowered();
  EXPECT_EQ(plan.values.size(), 3u);  // the argument, the constant and the result
  EXPECT_LE(plan.types.size(), plan.values.size());
  // 200,000 values, each an output, a type and a cleared register of an instruction.
  EXPECT_LT(PlanBytes(plan), 200'000u * 15);
  EXPECT_GT(PlanBytes(plan), 200'000u * 10);
}

TEST(PlanBytes, ValuesThatAreSeenShareTheirTypes) {
  Wide wide(1, 200);
  wide.WriteOut(100);
  const ProgramPlan plan = wide.Lowered();
  EXPECT_EQ(plan.values.size(), 20'001u);
  EXPECT_LE(plan.types.size(), 201u);
  EXPECT_EQ(plan.results.size(), 20'000u);
}

TEST(PlanBytes, NodesThatRunTheSameShareTheTypesOfTheirOutputs) {
  Wide wide(1, 200);
  wide.WriteOut(100);
  const auto types = CheckProgram(wide.program);
  ASSERT_TRUE(types.ok()) << types.status();
  EXPECT_EQ((*types)[0][1].begin(), (*types)[0][100].begin());
}

TEST(PlanBytes, WhatLoweringTakesGrowsWithWhatIsWrittenOutAndUnrolledUpToABound) {
  const auto bytes = [](int64_t rounds, int wide, int nodes) {
    Wide made(rounds, wide);
    if (nodes > 0) made.WriteOut(nodes);
    return LoweringBytes(made.program);
  };
  EXPECT_GT(bytes(100, 200, 0), 100u * 200 * 100);
  EXPECT_LT(bytes(100, 200, 0), 100u * 200 * 250);
  EXPECT_LT(bytes(int64_t{1} << 62, 200, 0), size_t{200} << 20);
  EXPECT_GT(bytes(1, 2000, 4000), 4000u * 2000 * 100);
}

}  // namespace
}  // namespace fairway
