// SPDX-License-Identifier: Apache-2.0
// Calls of many arguments and results begin and end in several turns, and neighbours are served
// meanwhile. (Their commands are not bounded.)
#include <algorithm>
#include <numeric>
#include <utility>

#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

constexpr size_t kEach = 6000;  // arguments, and results
constexpr uint64_t kFirst = 2, kNext = kFirst + kEach;

class CallsTest : public TurnsTest {
 protected:
  static std::vector<uint64_t> Handles(uint64_t first) {
    std::vector<uint64_t> out(kEach);
    std::iota(out.begin(), out.end(), first);
    return out;
  }
  static std::vector<ValueType> Values(bool donated) {
    ValueType type = F32({4});
    type.donated = donated;
    return std::vector<ValueType>(kEach, type);
  }
  // Makes the arrays from kFirst on, in groups of their own.
  void MakeMany() {
    PutReady(1, 0);
    const uint64_t makes = Define(7, {0}, {F32({4})}, Values(false));
    const auto run = cluster.executables().Execute(session, makes, {1}, {}, Handles(kFirst));
    ASSERT_TRUE(run.ok()) << run.status();
    while (Turn()) {
    }
    Installed(a, 7);
    made_ = run->node.value;
  }
  void ReportEnd(uint64_t node) {
    Report report;
    report.finished = {actions.seq.at({a, NodeId(node)})};
    Bounded([&] {
      cluster.fleet().OnReport(a, Incarnation(7), report);
      return true;
    });
  }
  void BeginCall(uint64_t executable, std::vector<uint64_t> args, ExecuteOptions options = {}) {
    Bounded([&] {
      return cluster.executables().Execute(session, executable, std::move(args), options,
                                           Handles(kNext), Answer());
    });
  }
  // A program that computes once with as many arguments.
  uint64_t BindWide() {
    Program program;
    program.name = "wide";
    program.slices = {{"a", 1}};
    ProgramBinding binding;
    binding.places = {0};
    const ArraySpec type{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
    Computation computation;
    computation.code = std::make_shared<const std::string>("code");
    computation.parameters = computation.results = std::vector<ArraySpec>(kEach, type);
    program.computations.push_back(computation);
    binding.code[{0, 0}] = {
        ExecutableId(8), std::vector<Sequence::Type>(kEach, {DType::kF32, Shape{{4}}, ""}), {}, 64};
    program.graphs.resize(1);
    auto& nodes = program.graphs[0].nodes;
    ComputeNode compute{0, 0, {}};
    for (size_t i = 0; i < kEach; ++i) {
      nodes.push_back({"", "", ArgumentNode{{0, type}, true}});
      compute.inputs.push_back({static_cast<int32_t>(i), 0});
      program.graphs[0].results.push_back({static_cast<int32_t>(kEach), static_cast<int32_t>(i)});
    }
    nodes.push_back({"", "", compute});
    const auto types = CheckProgram(program);
    EXPECT_TRUE(types.ok()) << types.status();
    const auto plan = Lower(program, *types, binding);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const auto bound = cluster.programs().Bind(session, 0, {"wide", *plan, {{0}}, false});
    EXPECT_TRUE(bound.ok()) << bound.status();
    while (Turn()) {
    }
    return bound.value_or(0);
  }

  uint64_t made_ = 0;  // the node that makes the arrays
};

TEST_F(CallsTest, ACallOfManyArraysBeginsInSeveralTurns) {
  MakeMany();
  const uint64_t wide = Define(8, {0}, Values(true), Values(false));
  ExecuteOptions options;
  options.watch = 9;
  BeginCall(wide, Handles(kFirst), options);
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "OK");
  EXPECT_EQ(results_, kEach);
  EXPECT_NE(cluster.arrays().Spec(session, kNext + kEach - 1), nullptr);
  EXPECT_TRUE(cluster.arrays().IsDeleted(session, kFirst + kEach - 1).value_or(false));
}

TEST_F(CallsTest, ACallOfManyArraysIsRefusedInSeveralTurns) {
  MakeMany();
  const uint64_t wide = Define(8, {0}, Values(true), Values(false));
  std::vector<uint64_t> args = Handles(kFirst);
  args.back() = kNext;
  ExecuteOptions options;
  options.watch = 9;
  BeginCall(wide, args, options);
  ExpectItGoesOnInTurns([] {});
  EXPECT_THAT(answered_, HasSubstr("there is no array"));
  // The results hold the error, and nothing was donated.
  const auto used = cluster.executables().Execute(session, step_, {kNext + kEach - 1}, {}, {1});
  EXPECT_FALSE(used.ok());
  EXPECT_NE(cluster.arrays().Spec(session, kNext + kEach - 1), nullptr);
  EXPECT_FALSE(cluster.arrays().IsDeleted(session, kFirst).value_or(true));
}

TEST_F(CallsTest, ASessionThatEndsInTheMiddleOfACallLeavesNothing) {
  for (const int turns : {1, 15, 30, 45, 60, 75}) {
    session = actions.Open(cluster);
    MakeMany();
    BeginCall(Define(8, {0}, Values(true), Values(false)), Handles(kFirst));
    for (int i = 0; i < turns; ++i) Turn();
    cluster.sessions().Close(session);
    RunTurns();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    End(a, made_);
    RunTurns();
  }
  cluster.sessions().Close(other_);
  EXPECT_EQ(cluster.inspection().counts().arrays, 0u);
}

// The arguments settle while the launch is being made.
TEST_F(CallsTest, TheInputsOfACallMayBeLostWhileItBegins) {
  for (const int turns : {1, 15, 30, 45, 60, 75}) {
    session = actions.Open(cluster);
    MakeMany();
    BeginCall(Define(8, {0}, Values(false), Values(false)), Handles(kFirst));
    for (int i = 0; i < turns; ++i) Turn();
    End(a, made_);
    for (int i = 0; i < turns / 2 && std::exchange(actions.turn_wanted, false); ++i) cluster.Turn();
    cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
    RunTurns();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    EXPECT_EQ(answered_, "OK");
    cluster.arrays().Watch(session, 5, {kNext + kEach - 1});
    RunTurns();
    EXPECT_EQ(std::ranges::count_if(actions.Take(),
                                    [](const std::string& line) {
                                      return std::string::npos !=
                                             line.find(" watched 5: DATA_LOSS");
                                    }),
              1);
    a = cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).value();
    cluster.sessions().Close(session);
    RunTurns();
  }
}

TEST_F(CallsTest, ACallOfManyArraysEndsInSeveralTurns) {
  MakeMany();
  BeginCall(Define(8, {0}, Values(true), Values(false)), Handles(kFirst));
  RunTurns();
  Installed(a, 8);
  const uint64_t wide = actions.seq.rbegin()->first.second.value;
  for (const uint64_t node : {made_, wide}) {
    ReportEnd(node);
    ASSERT_TRUE(actions.turn_wanted);
    EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    ExpectTheNeighbourIsServed();
    while (Turn()) ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  cluster.arrays().Watch(session, 5, {kNext + kEach - 1});
  RunTurns();
  EXPECT_THAT(actions.Take(), ::testing::Contains(HasSubstr(" watched 5: OK")));
}

// Its inputs and results may take long. The next launch of its device does not wait for them.
TEST_F(CallsTest, ALaunchBeginsAsSoonAsACallOfManyArraysHasRun) {
  MakeMany();
  ReportEnd(made_);
  RunTurns();
  BeginCall(Define(8, {0}, Values(true), Values(false)), Handles(kFirst));
  RunTurns();
  Installed(a, 8);
  const uint64_t wide = actions.seq.rbegin()->first.second.value;
  for (int i = 0; i < AtOnce().max_singles_per_device; ++i) {
    ASSERT_TRUE(cluster.executables().Execute(session, step_, {1}, {}, {2 * kNext + i}).ok());
    RunTurns();
    if (i == 0) Installed(a, 1);
  }
  const uint64_t last = actions.seq.rbegin()->first.second.value;
  const auto launched = [&] {
    return actions.seq.contains({a, NodeId(last)}) &&
           std::ranges::any_of(actions.Take(), [&](const std::string& line) {
             return line.find(fmt::format("launch n{} ", last)) != std::string::npos;
           });
  };
  ASSERT_FALSE(launched());
  ReportEnd(wide);
  EXPECT_TRUE(launched());
  EXPECT_TRUE(actions.turn_wanted);
}

// The client gives its results up, or goes away, while the call ends.
TEST_F(CallsTest, ResultsMayBeGivenUpWhileACallEnds) {
  for (const bool closes : {false, true}) {
    session = actions.Open(cluster);
    MakeMany();
    ReportEnd(made_);
    for (int i = 0; i < 3; ++i) Turn();
    ASSERT_TRUE(actions.turn_wanted);
    if (closes) {
      cluster.sessions().Close(session);
    } else {
      cluster.arrays().Destruct(session, Handles(kFirst), [](absl::Status) {});
    }
    while (std::exchange(actions.turn_wanted, false)) {
      cluster.Turn();
      ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    }
    if (!closes) cluster.sessions().Close(session);
    RunTurns();
  }
  cluster.sessions().Close(other_);
  RunTurns();
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
}

// Results that the call has not told yet are lost as well.
TEST_F(CallsTest, TheExecutorMayBeLostWhileACallEnds) {
  MakeMany();
  ReportEnd(made_);
  for (int i = 0; i < 3; ++i) Turn();
  ASSERT_TRUE(actions.turn_wanted);
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  while (std::exchange(actions.turn_wanted, false)) {
    cluster.Turn();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  cluster.arrays().Watch(session, 5, {kFirst + kEach - 1});
  RunTurns();
  EXPECT_THAT(actions.Take(), ::testing::Contains(HasSubstr(" watched 5: DATA_LOSS")));
}

TEST_F(CallsTest, ARunOfManyArraysBeginsInSeveralTurns) {
  MakeMany();
  Define(8, {0}, Values(true), Values(false));
  const uint64_t program = BindWide();
  Bounded([&] {
    return cluster.programs().Run(session, program, Handles(kFirst), {}, Handles(kNext), Answer());
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "OK");
  EXPECT_EQ(results_, kEach);
  EXPECT_TRUE(cluster.arrays().IsDeleted(session, kFirst + kEach - 1).value_or(false));
  std::vector<uint64_t> args = Handles(kNext);
  args.back() = kFirst;  // it was given away
  answered_ = "";
  Bounded([&] {
    return cluster.programs().Run(session, program, args, {}, Handles(kNext + kEach), Answer());
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_THAT(answered_, HasSubstr("has been deleted or donated"));
  EXPECT_NE(cluster.arrays().Spec(session, kNext + 2 * kEach - 1), nullptr);
  EXPECT_FALSE(cluster.arrays().IsDeleted(session, kNext).value_or(true));
}

TEST_F(CallsTest, ASessionThatEndsInTheMiddleOfARunLeavesNothing) {
  for (const int turns : {1, 15, 30, 45, 60, 75}) {
    session = actions.Open(cluster);
    MakeMany();
    Define(8, {0}, Values(true), Values(false));
    const uint64_t program = BindWide();
    cluster.programs().Run(session, program, Handles(kFirst), {}, Handles(kNext), Answer());
    for (int i = 0; i < turns; ++i) Turn();
    cluster.sessions().Close(session);
    RunTurns();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    End(a, made_);
    RunTurns();
  }
}

}  // namespace
}  // namespace fairway
