// SPDX-License-Identifier: Apache-2.0
#include "graph/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/specs_for_test.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

// x -> double on slice "a" -> next on slice "b", each f32[4]; the loop body is graph 1.
class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    program.name = "test";
    program.slices = {{"a", 2}, {"b", 4}};
    for (const int devices : {2, 4}) {
      Computation next;
      next.name = devices == 2 ? "double" : "next";
      next.code = std::make_shared<const std::string>("code");
      next.parameters = next.results = {Whole(4, devices)};
      program.computations.push_back(next);
    }
    program.graphs.resize(2);
    Add(0, "x", ArgumentNode{{0, Whole(4, 2)}});
    Add(0, "y", ComputeNode{0, 0, {{0, 0}}});
    Add(0, "z", ComputeNode{1, 1, {{1, 0}}});
    program.graphs[0].results = {{2, 0}};
    Add(1, "c", ArgumentNode{{0, Whole(4, 2)}});
    Add(1, "d", ComputeNode{0, 0, {{0, 0}}});
    program.graphs[1].results = {{1, 0}};
  }
  template <typename Op>
  void Add(int graph, std::string name, Op op) {
    program.graphs[graph].nodes.push_back({name, "train.py:7", std::move(op)});
  }
  void ExpectRefused(const std::string& text) const {
    const auto types = CheckProgram(program);
    EXPECT_EQ(types.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(types.status()), HasSubstr(text));
  }
  ComputeNode& Node(int n) { return std::get<ComputeNode>(program.graphs[0].nodes[n].op); }

  Program program;
};

TEST_F(ProgramTest, TypesAreThoseOfTheComputations) {
  const auto types = CheckProgram(program);
  ASSERT_TRUE(types.ok()) << types.status();
  EXPECT_EQ((*types)[0][1][0], (SliceSpec{0, Whole(4, 2)}));
  EXPECT_EQ((*types)[0][2][0], (SliceSpec{1, Whole(4, 4)}));
}

TEST_F(ProgramTest, ItDoesNotGrowWithTheShards) {
  program.slices[0].devices = 4096;
  for (auto* values : {&program.computations[0].parameters, &program.computations[0].results})
    *values = {Whole(4, 4096)};
  for (auto& graph : program.graphs)
    std::get<ArgumentNode>(graph.nodes[0].op).type.array = Whole(4, 4096);
  EXPECT_TRUE(CheckProgram(program).ok());
  EXPECT_EQ(program.graphs[0].nodes.size(), 3u);
}

// A node of 8 bytes makes a value with 65,536 positions.
TEST_F(ProgramTest, WhatItsValuesNameHasABound) {
  constexpr int kDevices = 1 << 16;
  program.slices = {{"a", kDevices}};
  program.graphs.assign(2, {});
  program.computations.resize(1);
  program.computations[0].parameters.clear();
  program.computations[0].results = {Whole(4, kDevices)};
  for (int n = 0; n < 5000; ++n) Add(0, "", ComputeNode{0, 0, {}});
  ExpectRefused("node 256 (train.py:7): with its outputs the program's values name more than");
}

TEST_F(ProgramTest, AndSoHaveTheResultsOfBranches) {
  constexpr int kDevices = 1 << 16;
  program.slices = {{"a", kDevices}};
  program.graphs.assign(2, {});
  program.computations.resize(1);
  program.computations[0].parameters.clear();
  program.computations[0].results = {{DType::kS32, Shape{}, Whole(4, kDevices).sharding}};
  Add(1, "k", ComputeNode{0, 0, {}});
  program.graphs[1].results.assign(1000, {0, 0});
  Add(0, "i", ComputeNode{0, 0, {}});
  Add(0, "branch", BranchNode{{0, 0}, {1}, {}});
  ExpectRefused("node 1 \"branch\" (train.py:7): with its outputs the program's values name more");
}

// A body counts as often as it is named, with all values that it takes and makes.
TEST_F(ProgramTest, WideBodiesCountAsWhatTheyAre) {
  const ArraySpec scalar{DType::kS32, Shape{}, Sharding::Replicated(Positions(2))};
  Add(0, "i", ArgumentNode{{0, scalar}});
  program.graphs[1].results.assign(10'000, {1, 0});
  Add(0, "branch", BranchNode{{3, 0}, std::vector<int32_t>(1000, 1), {{1, 0}}});
  ExpectRefused("program test: the nodes of graph 0, with its bodies, take and make more than");
}

TEST_F(ProgramTest, ACycleIsNamed) {
  Node(1).inputs = {{2, 0}};
  ExpectRefused("node 1 \"y\" (train.py:7): it takes an output of node 2, which does not come");
  Node(1).inputs = {{1, 0}};
  ExpectRefused("the graph has a cycle");
}

TEST_F(ProgramTest, WrongInputsAreNamed) {
  Node(1).inputs = {{0, 0}, {0, 0}};
  ExpectRefused("computation \"double\" takes 1 inputs, but 2 were given");
  Node(1).inputs = {{0, 3}};
  ExpectRefused("output 3 of node 0 \"x\" (train.py:7), which has 1");
  Node(1).inputs = {{17, 0}};
  ExpectRefused("node 17, which does not exist");
  Node(1).inputs = {{0, 0}};
  std::get<ArgumentNode>(program.graphs[0].nodes[0].op).type.array.shape = Shape{{5}};
  ExpectRefused("input 0 is f32[5], expected f32[4]");
}

TEST_F(ProgramTest, WhatDoesNotExistIsNamed) {
  Node(1).slice = 2;
  ExpectRefused("slice 2 does not exist");
  Node(1).slice = 1;
  ExpectRefused("its sharding is over positions [0,1], but slice \"b\" has 4 devices");
  Node(1).slice = 0;
  Node(1).computation = -1;
  ExpectRefused("computation -1 does not exist");
  Node(1).computation = 0;
  program.graphs[0].results = {{9, 0}};
  ExpectRefused("result 0 of graph 0");
  program.slices[0].devices = 0;
  ExpectRefused("slice \"a\" has 0 devices");
}

TEST_F(ProgramTest, LoopsAndTheirBodies) {
  Add(0, "loop", LoopNode{1, 128, {{1, 0}}});
  ASSERT_TRUE(CheckProgram(program).ok()) << CheckProgram(program).status();
  auto& loop = std::get<LoopNode>(program.graphs[0].nodes[3].op);
  loop.inputs.clear();
  ExpectRefused("takes 1 inputs, but 0 were given");
  loop.inputs = {{1, 0}};
  loop.count = -1;
  ExpectRefused("-1 times");
  loop.count = 1;
  loop.body = 0;
  ExpectRefused("its body is graph 0; expected one of 1 to 1");
  loop.body = 1;
  program.graphs[1].results.push_back({0, 0});
  ExpectRefused("has 2 results, but takes 1 inputs");
}

TEST_F(ProgramTest, Branches) {
  ArraySpec scalar{DType::kS32, Shape{}, Sharding::Replicated(Positions(2))};
  Add(0, "i", ArgumentNode{{0, scalar}});
  Add(0, "branch", BranchNode{{3, 0}, {1, 1}, {{1, 0}}});
  ASSERT_TRUE(CheckProgram(program).ok()) << CheckProgram(program).status();
  auto& branch = std::get<BranchNode>(program.graphs[0].nodes[4].op);
  branch.index = {1, 0};
  ExpectRefused("its index is f32[4], expected a scalar");
  branch.index = {3, 0};
  branch.bodies.clear();
  ExpectRefused("it has no body");
}

TEST_F(ProgramTest, ConstantsHaveTheirBytes) {
  Add(0, "k", ConstantNode{{0, Whole(4, 2)}, std::make_shared<const std::string>(16, '\0')});
  EXPECT_TRUE(CheckProgram(program).ok());
  std::get<ConstantNode>(program.graphs[0].nodes[3].op).bytes = nullptr;
  ExpectRefused("f32[4] takes 16 bytes, but 0 were given");
  const int64_t many = kMaxConstantBytes / 4 + 1;
  program.graphs[0].nodes[3].op =
      ConstantNode{{0, Whole(many, 2)}, std::make_shared<const std::string>(many * 4, '\0')};
  ExpectRefused("give large values as arguments");
}

}  // namespace
}  // namespace fairway
