// SPDX-License-Identifier: Apache-2.0
// Lowering: which nodes become one sequence, and that plans compute the values of their programs.
// A value is a text: computation "f" of "x" and "y" makes "f(x,y)"; an error begins with "!".
#include "graph/lowering.h"

#include <algorithm>
#include <functional>
#include <random>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/program_maker_for_test.h"
#include "graph/sequence_builder.h"
#include "graph/specs_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Op = Instruction::Op;
using Texts = std::vector<std::string>;

ArraySpec Split(int64_t size, int devices) {
  const auto tile_of = Positions(devices);
  return {DType::kF32, Shape{{size}},
          *Sharding::Tiled(Positions(devices), {devices}, {tile_of.begin(), tile_of.end()})};
}

bool Failed(const std::string& value) { return value.starts_with('!'); }

// The error of the first failed input, or empty.
std::string Poison(const Texts& inputs) {
  const auto first = std::find_if(inputs.begin(), inputs.end(), Failed);
  return first == inputs.end() ? "" : *first;
}

// With failed inputs a computation does not run. Computations named e... fail by themselves on some
// inputs.
std::string Call(const std::string& name, const Texts& inputs, size_t output) {
  if (std::string poison = Poison(inputs); !poison.empty()) return poison;
  const size_t hash = std::hash<std::string>()(fmt::format("{}", fmt::join(inputs, ",")));
  if (name[0] == 'e' && hash % 2 > 0) return fmt::format("!{}({:x})", name, hash);
  std::string text = fmt::format("{}{}({})", name, output == 0 ? "" : std::to_string(output),
                                 fmt::join(inputs, ","));
  if (text.size() < 60) return text;
  return fmt::format("#{:x}", std::hash<std::string>()(text));
}

// Runs a sequence like an executor; the length of a scalar's text chooses a branch.
class Machine {
 public:
  Machine(const Maker& maker, const Sequence& sequence, const Texts& inputs)
      : maker_(maker), sequence_(sequence), registers_(sequence.registers) {
    std::copy(inputs.begin(), inputs.end(), registers_.begin());
    outputs.resize(sequence.outputs);
    Run(0, sequence.instructions.size());
    for (const std::string& left : registers_) EXPECT_EQ(left, "") << "not cleared";
  }
  Texts outputs;
  int steps = 0;

 private:
  std::string Read(int32_t reg) {
    EXPECT_NE(registers_[reg], "") << "register " << reg << " is empty";
    return registers_[reg];
  }
  void SkipBlocks(size_t branch, const std::string& error) {
    const Instruction& in = sequence_.instructions[branch];
    const size_t end = std::accumulate(in.lengths.begin(), in.lengths.end(), branch + 1);
    for (size_t i = branch + 1; i < end; ++i) {
      for (const int32_t reg : sequence_.instructions[i].clears) registers_[reg] = "";
    }
    for (const int32_t o : in.outputs) registers_[o] = error;
  }
  void Run(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Instruction& in = sequence_.instructions[i];
      Texts read;
      for (const int32_t reg : in.inputs) read.push_back(Read(reg));
      for (const int32_t reg : in.clears) registers_[reg] = "";
      size_t next = i + 1;
      for (size_t o = 0; o < in.outputs.size() && in.op == Op::kRun; ++o)
        registers_[in.outputs[o]] = Call(maker_.names.at(in.executable), read, o);
      if (in.op == Op::kRun) ++steps;
      if (in.op == Op::kSet) registers_[in.outputs[0]] = read[0];
      if (in.op == Op::kOutput) outputs[in.outputs[0]] = read[0];
      const bool poisoned = in.op == Op::kBranch && Failed(read[0]);
      if (poisoned) SkipBlocks(i, read[0]);
      for (size_t b = 0; b < in.lengths.size(); ++b) {
        const size_t after = next + in.lengths[b];
        const bool taken =
            in.op == Op::kBranch && !poisoned && read[0].size() % in.lengths.size() == b;
        const int64_t times = in.op == Op::kRepeat ? in.count : taken ? 1 : 0;
        for (int64_t t = 0; t < times; ++t) Run(next, after);
        next = after;
      }
      i = next - 1;
    }
  }

  const Maker& maker_;
  const Sequence& sequence_;
  Texts registers_;
};

Texts RunPlan(const Maker& maker, const ProgramPlan& plan, const Texts& arguments) {
  Texts values(plan.values.size());
  std::copy(arguments.begin(), arguments.end(), values.begin());
  for (const auto& constant : plan.constants) values[constant.value] = "k";
  for (const ProgramPlan::Step& step : plan.steps) {
    if (const auto* transfer = std::get_if<ProgramPlan::Transfer>(&step)) {
      EXPECT_NE(values[transfer->input], "");
      values[transfer->output] = values[transfer->input];
      continue;
    }
    const auto& run = std::get<ProgramPlan::RunSequence>(step);
    Texts inputs;
    for (const int32_t value : run.inputs) {
      EXPECT_NE(values[value], "") << "taken before it is made";
      inputs.push_back(values[value]);
    }
    const Machine machine(maker, *run.sequence, inputs);
    EXPECT_LE(machine.steps, run.max_steps);
    std::vector<bool> failed;
    for (const std::string& input : inputs) failed.push_back(Failed(input));
    const std::vector<int32_t> by = FailedBy(*run.sequence, failed);
    for (size_t o = 0; o < by.size(); ++o) {
      if (by[o] >= 0) {
        EXPECT_EQ(machine.outputs[o], inputs[by[o]]);
      }
      if (Failed(machine.outputs[o])) ++(by[o] >= 0 ? maker.foreseen : maker.seen);
    }
    for (size_t o = 0; o < run.outputs.size(); ++o) values[run.outputs[o]] = machine.outputs[o];
  }
  Texts out;
  for (const int32_t value : plan.results) out.push_back(values[value]);
  return out;
}

// Computes the program node by node.
Texts RunProgram(const Maker& maker, size_t graph, const Texts& arguments) {
  const Graph& in = maker.program.graphs[graph];
  std::vector<Texts> made;
  size_t next = 0;
  for (const ProgramNode& node : in.nodes) {
    Texts inputs;
    for (const ValueRef ref : InputsOf(node)) inputs.push_back(made[ref.node][ref.output]);
    Texts& out = made.emplace_back();
    if (std::holds_alternative<ArgumentNode>(node.op)) out = {arguments[next++]};
    if (std::holds_alternative<ConstantNode>(node.op)) out = {"k"};
    if (std::holds_alternative<TransferNode>(node.op)) out = inputs;
    if (const auto* compute = std::get_if<ComputeNode>(&node.op)) {
      const Computation& computation = maker.program.computations[compute->computation];
      for (size_t o = 0; o < computation.results.size(); ++o)
        out.push_back(Call(computation.name, inputs, o));
    }
    if (const auto* loop = std::get_if<LoopNode>(&node.op)) {
      out = inputs;
      for (int64_t i = 0; i < loop->count; ++i) out = RunProgram(maker, loop->body, out);
    }
    if (const auto* branch = std::get_if<BranchNode>(&node.op)) {
      const size_t taken = inputs[0].size() % branch->bodies.size();
      const Graph& body = maker.program.graphs[branch->bodies[taken]];
      out = Failed(inputs[0])
                ? Texts(body.results.size(), inputs[0])
                : RunProgram(maker, branch->bodies[taken], {inputs.begin() + 1, inputs.end()});
    }
  }
  Texts out;
  for (const ValueRef ref : in.results) out.push_back(made[ref.node][ref.output]);
  return out;
}

std::string Kinds(const ProgramPlan& plan) {
  std::string out;
  for (const ProgramPlan::Step& step : plan.steps) {
    if (const auto* run = std::get_if<ProgramPlan::RunSequence>(&step)) {
      out += fmt::format("{}{} ",
                         plan.values.empty() ? ""
                         : run->slice == 0   ? "a"
                                             : "b",
                         MaxSteps(*run->sequence));
    } else {
      out += "> ";
    }
  }
  return out;
}

TEST(Lowering, WhatLiesTogetherIsOneSequence) {
  Maker m;
  const int f = m.Computation("f", 1), g = m.Computation("g", 2);
  const ValueRef x = m.Argument(0);
  const ValueRef y = m.Compute(f, 0, {x});
  const ValueRef z = m.Compute(g, 2, {x, y});  // slice c has the devices of a
  m.program.graphs[0].results = {z, y};
  const ProgramPlan plan = m.Lowered();
  EXPECT_EQ(Kinds(plan), "a2 ");
  EXPECT_THAT(RunPlan(m, plan, {"x"}), ElementsAre("g(x,f(x))", "f(x)"));
}

TEST(Lowering, EdgesBetweenSlicesAndCutsBecomeTransfersOnce) {
  Maker m;
  const int f = m.Computation("f", 1), g = m.Computation("g", 2);
  const ValueRef x = m.Argument(0);
  const ValueRef there = m.Compute(g, 1, {x, x});
  const ValueRef split = m.Add(TransferNode{there, {1, Split(4, 2)}});
  const ValueRef back = m.Compute(f, 0, {split});
  m.program.graphs[0].results = {back};
  const ProgramPlan plan = m.Lowered();
  EXPECT_EQ(Kinds(plan), "> b1 > > a1 ");
  EXPECT_THAT(RunPlan(m, plan, {"x"}), ElementsAre("f(g(x,x))"));
}

TEST(Lowering, NothingWaitsForATransferThatItDoesNotNeed) {
  // Two microbatches through stages a and b, and back: no stage of one waits for the other's.
  Maker m;
  const int f = m.Computation("f", 1), sum = m.Computation("sum", 2);
  std::vector<ValueRef> backs;
  for (int i = 0; i < 2; ++i) {
    const ValueRef x = m.Argument(0);
    backs.push_back(m.Compute(f, 0, {m.Compute(f, 1, {m.Compute(f, 0, {x})})}));
  }
  m.program.graphs[0].results = {m.Compute(sum, 0, {backs[0], backs[1]})};
  const ProgramPlan plan = m.Lowered();
  EXPECT_EQ(Kinds(plan), "a2 > b1 > a1 > b1 > a1 a1 ");
  EXPECT_THAT(RunPlan(m, plan, {"x", "y"}), ElementsAre("sum(f(f(f(x))),f(f(f(y))))"));
}

TEST(Lowering, AChainIsAsLargeAsItsBody) {
  Maker m;
  const int f = m.Computation("f", 1, 1, {0});
  m.program.graphs.resize(2);
  const ValueRef x = m.Argument(0, 0, true);
  m.program.graphs[1].results = {m.Compute(f, 0, {m.Argument(0, 1)}, 1)};
  m.program.graphs[0].results = {m.Add(LoopNode{1, 128, {x}})};
  const ProgramPlan plan = m.Lowered();
  EXPECT_EQ(Kinds(plan), "a128 ");
  const auto& run = std::get<ProgramPlan::RunSequence>(plan.steps[0]);
  EXPECT_THAT(run.donated, ElementsAre(0));
  EXPECT_LE(run.sequence->instructions.size(), 6u);
  // Each step may take over the result of the step before.
  EXPECT_EQ(run.sequence->instructions[2].donates, std::vector<int32_t>{0});
  EXPECT_EQ(run.sequence->instructions[2].clears, run.sequence->instructions[2].inputs);
}

TEST(Lowering, MemoryIsThatOfTheWindow) {
  Maker m;
  const int f = m.Computation("f", 1);
  m.program.graphs.resize(2);
  m.program.graphs[1].results = {m.Compute(f, 0, {m.Argument(0, 1)}, 1)};
  m.program.graphs[0].results = {m.Add(LoopNode{1, 1000, {m.Argument(0)}})};
  const ProgramPlan plan = m.Lowered();
  const auto& run = std::get<ProgramPlan::RunSequence>(plan.steps[0]);
  // 64 bytes for each value and each step's own needs.
  EXPECT_GE(run.temp_bytes, 64 * kBlocksWindow);
  EXPECT_LE(run.temp_bytes, 64 * (kBlocksWindow + 4));
  EXPECT_EQ(WindowOf(*run.sequence).steps, kBlocksWindow);
  Sequence large = *run.sequence;
  large.types = {{DType::kF32, Shape{{500}}, ""}};
  EXPECT_EQ(WindowOf(large).steps, kWideWindow);
  large.types = {{DType::kF32, Shape{{1000}}, ""}};
  EXPECT_EQ(WindowOf(large).steps, kSequenceWindow);
  EXPECT_EQ(WindowOf(large).more_bytes, 0);
  Maker one;
  one.program.graphs[0].results = {one.Compute(one.Computation("f", 1), 0, {one.Argument(0)})};
  EXPECT_EQ(std::get<ProgramPlan::RunSequence>(one.Lowered().steps[0]).temp_bytes, 64);
  m.binding.code[{f, 0}].temp_bytes = INT64_MAX;
  EXPECT_EQ(std::get<ProgramPlan::RunSequence>(m.Lowered().steps[0]).temp_bytes, INT64_MAX);
}

TEST(Lowering, OnlyWhatNobodyElseReadsIsDonated) {
  Maker m;
  const int f = m.Computation("f", 2);
  const ValueRef kept = m.Argument(0), given = m.Argument(0, 0, true),
                 also = m.Argument(0, 0, true);
  m.program.graphs[0].results = {m.Compute(f, 0, {kept, given}), m.Compute(f, 1, {also, also}),
                                 m.Compute(f, 0, {also, also})};
  const ProgramPlan plan = m.Lowered();
  std::vector<int> donated;
  for (const auto& step : plan.steps) {
    if (const auto* run = std::get_if<ProgramPlan::RunSequence>(&step)) {
      for (const int32_t i : run->donated) donated.push_back(run->inputs[i]);
    }
  }
  // The second argument, and the value that was moved to slice b.
  EXPECT_THAT(donated, ElementsAre(given.node, ::testing::Gt(2)));
}

TEST(Lowering, LoopsOverSlicesAreUnrolled) {
  Maker m;
  const int f = m.Computation("f", 1);
  m.program.graphs.resize(2);
  m.program.graphs[1].results = {m.Compute(f, 1, {m.Compute(f, 0, {m.Argument(0, 1)}, 1)}, 1)};
  const ValueRef loop = m.Add(LoopNode{1, 3, {m.Argument(0)}});
  m.program.graphs[0].results = {{1, 0}};
  (void)loop;
  const ProgramPlan plan = m.Lowered();
  EXPECT_EQ(Kinds(plan), "a1 > b1 > a1 > b1 > a1 > b1 > ");
  EXPECT_THAT(RunPlan(m, plan, {"x"}), ElementsAre("f(f(f(f(f(f(x))))))"));
  std::get<LoopNode>(m.program.graphs[0].nodes[1].op).count = 1'000'000;
  const auto long_one = Lower(m.program, *CheckProgram(m.program), m.binding);
  EXPECT_THAT(Text(long_one.status()), HasSubstr("have more than 100000 steps"));
}

TEST(Lowering, ALoopThatLeavesAllAsItIsIsNotThere) {
  Maker m;
  m.program.graphs.resize(2);
  m.program.graphs[1].results = {m.Argument(0, 1)};
  const ValueRef loop = m.Add(LoopNode{1, int64_t{1} << 62, {m.Argument(0)}});
  m.program.graphs[0].results = {m.Compute(m.Computation("f", 1), 0, {loop})};
  EXPECT_THAT(RunPlan(m, m.Lowered(), {"x"}), ElementsAre("f(x)"));
}

TEST(Lowering, ABranchOverSlicesIsRefused) {
  Maker m;
  const int f = m.Computation("f", 1);
  m.program.graphs.resize(2);
  m.program.graphs[1].results = {m.Compute(f, 1, {m.Compute(f, 0, {m.Argument(0, 1)}, 1)}, 1)};
  const ArraySpec scalar{DType::kS32, Shape{}, Sharding::Replicated(Positions(2))};
  const ValueRef i = m.Add(ArgumentNode{{0, scalar}});
  m.program.graphs[0].results = {m.Add(BranchNode{i, {1}, {m.Argument(0)}})};
  const auto plan = Lower(m.program, *CheckProgram(m.program), m.binding);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(plan.status()), HasSubstr("node 2: its bodies lie on several slices"));
}

// Random programs: a plan computes the values of its program.
class Random {
 public:
  // `failing`: some of its computations fail with some inputs.
  Random(uint32_t seed, bool failing) : random_(seed) {
    for (int inputs = 0; inputs <= 3; ++inputs) {
      const char* kind = failing && Below(4) == 0 ? "e" : "f";
      m.Computation(fmt::format("{}{}", kind, inputs), inputs, 1 + Below(2), {});
    }
    scalar_ = m.Computation("s", 1);
    m.program.computations.back().results[0] = Scalar();
    m.program.graphs[0].results = Body(0, 0, -1);
  }
  Maker m;
  int arguments = 0;

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  static ArraySpec Scalar() { return {DType::kS32, Shape{}, Sharding::Replicated(Positions(2))}; }
  // Fills the graph; `slice`: the slice of all its nodes, or -1. Returns its results.
  std::vector<ValueRef> Body(int graph, int depth, int slice, int given = 0) {
    std::vector<ValueRef> values;
    const auto any = [&] { return slice >= 0 ? slice : Below(3); };
    const int count = depth == 0 ? (arguments = 1 + Below(3)) : given;
    for (int a = 0; a < count; ++a)
      values.push_back(m.Argument(any(), graph, Below(2) == 0 && graph == 0));
    const auto pick = [&] { return values[Below(static_cast<int>(values.size()))]; };
    const int nodes = 1 + Below(6);
    for (int n = 0; n < nodes; ++n) {
      const int kind = Below(10);
      if (depth < 3 && kind < 2) {
        const int body = NewGraph();
        const int inputs = 1 + Below(3);
        const int there = slice >= 0 || Below(2) == 0 ? any() : -1;
        auto results = Body(body, depth + 1, there, inputs);
        m.program.graphs[body].results.clear();
        for (int i = 0; i < inputs; ++i)
          m.program.graphs[body].results.push_back(
              results[Below(static_cast<int>(results.size()))]);
        LoopNode loop{body, Below(4), {}};
        for (int i = 0; i < inputs; ++i) loop.inputs.push_back(pick());
        const ValueRef made = m.Add(loop, graph);
        for (int i = 0; i < inputs; ++i) values.push_back({made.node, i});
      } else if (depth < 3 && kind < 4) {
        const int there = any();
        BranchNode branch;
        const int inputs = 1 + Below(2);
        for (int b = 0; b < 2; ++b) {
          branch.bodies.push_back(NewGraph());
          auto results = Body(branch.bodies[b], depth + 1, there, inputs);
          m.program.graphs[branch.bodies[b]].results = {
              results[Below(static_cast<int>(results.size()))]};
        }
        branch.index = m.Compute(scalar_, there, {pick()}, graph);
        for (int i = 0; i < inputs; ++i) branch.inputs.push_back(pick());
        values.push_back(m.Add(branch, graph));
      } else if (kind == 4 && slice < 0) {
        values.push_back(
            m.Add(TransferNode{pick(), {any(), Below(2) == 0 ? Whole(4, 2) : Split(4, 2)}}, graph));
      } else if (kind == 5 && slice < 0) {
        values.push_back(
            m.Add(ConstantNode{{any(), Whole(4, 2)}, std::make_shared<const std::string>(16, '\0')},
                  graph));
      } else {
        const int f = Below(4);
        std::vector<ValueRef> inputs;
        for (int i = 0; i < f; ++i) inputs.push_back(pick());
        const ValueRef made = m.Compute(f, any(), inputs, graph);
        for (size_t o = 0; o < m.program.computations[f].results.size(); ++o)
          values.push_back({made.node, static_cast<int32_t>(o)});
      }
    }
    std::vector<ValueRef> results;
    for (int i = 0; i < 1 + Below(3); ++i) results.push_back(pick());
    return results;
  }
  int NewGraph() {
    m.program.graphs.emplace_back();
    return static_cast<int>(m.program.graphs.size()) - 1;
  }

  std::mt19937 random_;
  int scalar_ = 0;
};

TEST(Lowering, PlansOfRandomProgramsComputeWhatTheySay) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed, /*failing=*/false);
    const Maker& m = random.m;
    const auto types = CheckProgram(m.program);
    ASSERT_TRUE(types.ok()) << types.status();
    const auto plan = Lower(m.program, *types, m.binding);
    ASSERT_TRUE(plan.ok()) << plan.status();
    Texts arguments;
    for (int a = 0; a < random.arguments; ++a) arguments.push_back(std::string(1, 'x' + a));
    ASSERT_EQ(RunPlan(m, *plan, arguments), RunProgram(m, 0, arguments));
    if (HasFailure()) return;
  }
}

// With failed arguments, and computations that fail: each result is good or has the error that the
// program gives it.
TEST(Lowering, PlansOfRandomProgramsFailWhereTheySay) {
  int foreseen = 0, seen = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed, /*failing=*/true);
    const Maker& m = random.m;
    const auto types = CheckProgram(m.program);
    ASSERT_TRUE(types.ok()) << types.status();
    const auto plan = Lower(m.program, *types, m.binding);
    ASSERT_TRUE(plan.ok()) << plan.status();
    Texts arguments;
    for (int a = 0; a < random.arguments; ++a)
      arguments.push_back(fmt::format("{}{}", (seed + a) % 3 == 0 ? "!" : "", 'x' + a));
    ASSERT_EQ(RunPlan(m, *plan, arguments), RunProgram(m, 0, arguments));
    if (HasFailure()) return;
    foreseen += m.foreseen;
    seen += m.seen;
  }
  EXPECT_GT(foreseen, 40);
  EXPECT_GT(seen, 40);
}

}  // namespace
}  // namespace fairway
