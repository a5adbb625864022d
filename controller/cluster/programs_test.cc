// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of programs: the commands that their runs send to executors.
#include "controller/cluster/programs.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Slice 0 is device 0 on island a, slice 1 device 2 on island b; computations are f32[4] -> f32[4].
class ProgramsTest : public ClusterTest {
 protected:
  explicit ProgramsTest(ClusterOptions options = AtOnce()) : ClusterTest(std::move(options)) {}
  void SetUp() override { Begin(0); }
  void Begin(int64_t memory) {
    Start(memory);
    Define(1, {0}, {F32({4})}, {F32({4})}, 64);
    Define(2, {2}, {F32({4})}, {F32({4})}, 64);
    program.name = "p";
    program.slices = {{"a", 1}, {"b", 1}};
    for (int c = 0; c < 2; ++c) {
      Computation computation;
      computation.code = std::make_shared<const std::string>("code");
      computation.parameters = computation.results = {Type()};
      program.computations.push_back(computation);
      binding.code[{c, c}] = {ExecutableId(c + 1), {{DType::kF32, Shape{{4}}, ""}}, {}, 64};
    }
    program.graphs.resize(1);
    binding.places = {0, 1};
  }
  static ArraySpec Type() { return {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}; }
  template <typename Op>
  ValueRef Add(Op op) {
    program.graphs[0].nodes.push_back({"", "", std::move(op)});
    return {static_cast<int32_t>(program.graphs[0].nodes.size()) - 1, 0};
  }
  uint64_t Bind(bool sequential = false, int32_t second = 2) {
    const auto types = CheckProgram(program);
    EXPECT_TRUE(types.ok()) << types.status();
    const auto plan = Lower(program, *types, binding);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const auto handle =
        cluster.programs().Bind(session, 0, {"p", *plan, {{0}, {second}}, sequential});
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.value_or(0);
  }
  // x -> twice computation 0 on a -> computation 1 on b
  uint64_t TwoStages(bool donated = false, bool sequential = false) {
    const ValueRef x = Add(ArgumentNode{{0, Type()}, donated});
    const ValueRef y = Add(ComputeNode{0, 0, {Add(ComputeNode{0, 0, {x}})}});
    program.graphs[0].results = {Add(ComputeNode{1, 1, {y}})};
    return Bind(sequential);
  }
  void InstallAll() {
    for (const uint64_t x : {uint64_t{1}, kSequence}) Installed(a, x);
    for (const uint64_t x : {uint64_t{2}, kSequence + 1}) Installed(b, x);
  }
  static constexpr uint64_t kSequence = uint64_t{1} << 62;

  Program program;
  ProgramBinding binding;
};

TEST_F(ProgramsTest, ARunIsPreparedEverywhereAtOnceAndEachSequenceLaunchedByOneMessage) {
  PutReady(1, 0);
  const uint64_t p = TwoStages();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  const std::string x = std::to_string(kSequence), y = std::to_string(kSequence + 1);
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- install x1", "e1 <- install sequence x" + x + " of 3 instructions",
                          "e1 <- prepare n2 x" + x + " in [1:0] out [2] on [0]",
                          "e1 <- send t3 [#0=2:0[0]+[4]]",
                          "e2 <- receive n3 g3 from [wa:1#0 [0]+[4] to 0:[0]]", "e2 <- install x2",
                          "e2 <- install sequence x" + y + " of 2 instructions",
                          "e2 <- prepare n4 x" + y + " in [3:0] out [4] on [0]"));
  InstallAll();
  // The second island's part waits there for the transfer, and nobody asks the controller.
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [0] inline []",
                                          "e2 <- launch n4 id 1 ahead keep [] inline [4:0]"));
  End(a, 2);
  End(b, 3);
  End(b, 4);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  // The second run installs nothing. Its launch ids are above those of the first run.
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {5}).ok());
  const Lines second = actions.Take();
  EXPECT_THAT(second, Not(Contains(HasSubstr("install"))));
  EXPECT_THAT(second, Contains("e1 <- launch n5 id 3 keep [0] inline []"));
}

TEST_F(ProgramsTest, ASequentialRunPreparesAStepWhenWhatItTakesIsThere) {
  PutReady(1, 0);
  const uint64_t p = TwoStages(/*donated=*/false, /*sequential=*/true);
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  const std::string x = std::to_string(kSequence), y = std::to_string(kSequence + 1);
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- install x1", "e1 <- install sequence x" + x + " of 3 instructions",
                          "e1 <- prepare n2 x" + x + " in [1:0] out [2] on [0]"));
  for (const uint64_t code : {uint64_t{1}, kSequence}) Installed(a, code);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [0] inline []"));
  End(a, 2);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- send t3 [#0=2:0[0]+[4]]",
                                          "e2 <- receive n3 g3 from [wa:1#0 [0]+[4] to 0:[0]]"));
  End(b, 3);
  EXPECT_THAT(actions.Take(),
              testing::AllOf(Contains("e2 <- prepare n4 x" + y + " in [3:0] out [4] on [0]"),
                             Not(Contains(HasSubstr("launch n4")))));
  for (const uint64_t code : {uint64_t{2}, kSequence + 1}) Installed(b, code);
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- launch n4 id 1 keep [] inline [4:0]"));
  // The second run takes what the first one makes, so none of its commands is sent yet.
  ASSERT_TRUE(cluster.programs().Run(session, p, {2}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), IsEmpty());
  End(b, 4);
  EXPECT_THAT(actions.Take(), Contains("e1 <- receive n5 g5 from [wb:1#0 [0]+[4] to 0:[0]]"));
}

TEST_F(ProgramsTest, WhatASequentialRunHoldsBackFailsWithWhatItTakes) {
  PutReady(1, 0);
  const uint64_t p = TwoStages(/*donated=*/false, /*sequential=*/true);
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  for (const uint64_t code : {uint64_t{1}, kSequence}) Installed(a, code);
  cluster.arrays().Watch(session, 5, {2});
  actions.Take();
  End(a, 2, absl::InternalError("step"));
  EXPECT_THAT(actions.Take(), Contains("s1 watched 5: INTERNAL: p on island ia (worker wa): step"));
  // A node that is held back ends with its session, or with its island.
  for (const uint64_t out : {7, 8})
    ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {out}).ok());
  cluster.fleet().ExecutorLost(b, absl::UnavailableError("killed"));
  cluster.fleet().IslandGivenUp(IslandId(2), absl::UnavailableError("gone"));
  cluster.arrays().Watch(session, 6, {7});
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 6: UNAVAILABLE: island ib: gone")));
  cluster.sessions().Close(session);
  for (const uint64_t node : {5, 8}) End(a, node);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
}

TEST_F(ProgramsTest, AWatchedRunFailsWithAnyOfItsSteps) {
  PutReady(1, 0);
  const ValueRef x = Add(ArgumentNode{{0, Type()}});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {x}}), Add(ComputeNode{1, 1, {x}})};
  const uint64_t p = Bind();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {{}, 9}, {2, 3}).ok());
  InstallAll();
  const Lines sent = actions.Take();
  ASSERT_THAT(sent, Contains(HasSubstr("e1 <- prepare n2")));
  ASSERT_THAT(sent, Contains(HasSubstr("e2 <- prepare n4")));
  Report report;
  report.finished = {actions.seq.at({a, NodeId(2)})};
  report.failures = {{report.finished[0], absl::InternalError("step"), 0}};
  cluster.fleet().OnReport(a, Incarnation(7), report);
  End(b, 3);
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("watched"))));
  End(b, 4);
  EXPECT_THAT(actions.Take(), Contains("s1 watched 9: INTERNAL: p on island ia (worker wa): step"));
  // If the run is refused, the answer alone says so: the watch gets nothing.
  ASSERT_FALSE(cluster.programs().Run(session, p, {}, {{}, 10}, {4, 5}).ok());
  EXPECT_THAT(actions.Take(), IsEmpty());
}

TEST_F(ProgramsTest, RunsOverlap) {
  PutReady(1, 0);
  const uint64_t p = TwoStages();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {3}).ok());
  actions.Take();
  InstallAll();
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [0] inline []",
                                          "e1 <- launch n5 id 3 keep [0] inline []",
                                          "e2 <- launch n4 id 1 ahead keep [] inline [4:0]",
                                          "e2 <- launch n7 id 2 ahead keep [] inline [7:0]"));
}

TEST_F(ProgramsTest, WhatFailedInTheMiddleFailsWhatDependsOnItAlone) {
  PutReady(1, 0);
  const ValueRef x = Add(ArgumentNode{{0, Type()}});
  const ValueRef y = Add(ComputeNode{0, 0, {x}}), z = Add(ComputeNode{0, 0, {x}});
  program.graphs[0].results = {y, z, Add(ComputeNode{1, 1, {z}})};
  const uint64_t p = Bind();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2, 3, 4}).ok());
  InstallAll();
  Report report;
  report.finished = {actions.seq.at({a, NodeId(2)})};
  report.failures = {{report.finished[0], absl::InternalError("step"), 1}};
  cluster.fleet().OnReport(a, Incarnation(7), report);
  actions.Take();
  for (const uint64_t handle : {2, 3, 4}) cluster.arrays().Watch(session, handle, {handle});
  End(b, 3, absl::InternalError("the source failed"));
  End(b, 4, absl::InternalError("the source failed"));
  EXPECT_THAT(actions.Take(),
              testing::AllOf(Contains("s1 watched 2: OK"),
                             Contains("s1 watched 3: INTERNAL: p on island ia (worker wa): step"),
                             Contains("s1 watched 4: INTERNAL: p on island ia (worker wa): step")));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(ProgramsTest, WhatReadsAnOutputBeforeTheSequenceHasEndedIsToldToHaveEndedAfterIt) {
  PutReady(1, 0);
  const uint64_t f = Define(5, {0}, {F32({4})}, {F32({4})});
  const ValueRef x = Add(ArgumentNode{{0, Type()}});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {x}})};
  const uint64_t p = Bind();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {3}).ok());
  for (const uint64_t x : {uint64_t{1}, kSequence, uint64_t{5}}) Installed(a, x);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n3 id 2 ahead")));
  cluster.arrays().Watch(session, 8, {3});
  End(a, 3);
  EXPECT_THAT(actions.Take(), IsEmpty());
  End(a, 2);
  EXPECT_THAT(actions.Take(), Contains("s1 watched 8: OK"));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

// x and y lie on a. One sequence makes f(x) and f(y); if an input fails, only its output does.
class PoisonTest : public ProgramsTest {
 protected:
  uint64_t TwoChains() {
    for (int i = 0; i < 2; ++i)
      program.graphs[0].results.push_back(Add(ComputeNode{0, 0, {Add(ArgumentNode{{0, Type()}})}}));
    return Bind();
  }
  void Watch() {
    actions.Take();
    for (const uint64_t handle : {3, 4}) cluster.arrays().Watch(session, handle, {handle});
  }
};

TEST_F(PoisonTest, AnErrorArrayFailsOnlyWhatNeedsIt) {
  ASSERT_TRUE(cluster.arrays().MakeError(session, 1, Type(), absl::AbortedError("mine")).ok());
  PutReady(2, 0);
  const uint64_t p = TwoChains();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1, 2}, {}, {3, 4}).ok());
  Installed(a, 1);
  Installed(a, kSequence);
  EXPECT_THAT(actions.Take(),
              Contains("e1 <- launch n2 id 1 keep [1] inline [3:0 4:0] failed 0: ABORTED: mine"));
  Report report;
  report.finished = {actions.seq.at({a, NodeId(2)})};
  report.failures = {{report.finished[0], absl::AbortedError("mine"), 0, 0}};
  cluster.fleet().OnReport(a, Incarnation(7), report);
  Watch();
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 3: ABORTED: mine", "s1 watched 4: OK"));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(PoisonTest, AnInputThatFailsLaterFailsOnlyWhatNeedsItWithTheFirstCause) {
  PutReady(1, 0);
  PutReady(2, 0);
  const uint64_t f = Define(5, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {7}).ok());
  const uint64_t p = TwoChains();
  ASSERT_TRUE(cluster.programs().Run(session, p, {7, 2}, {}, {3, 4}).ok());
  for (const uint64_t x : {uint64_t{5}, uint64_t{1}, kSequence}) Installed(a, x);
  // The sequence was launched ahead, so the executor knows of the failure first.
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n4 id 2 ahead")));
  Report report;
  report.finished = {actions.seq.at({a, NodeId(3)}), actions.seq.at({a, NodeId(4)})};
  report.failures = {{report.finished[0], absl::DataLossError("boom")},
                     {report.finished[1], absl::DataLossError("boom"), 0, 0}};
  cluster.fleet().OnReport(a, Incarnation(7), report);
  Watch();
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 watched 3: DATA_LOSS: f5 on island ia (worker wa): boom",
                          "s1 watched 4: OK"));
}

TEST_F(PoisonTest, TheFirstCauseIsToldWhereAStepFailedByItselfAheadOfIt) {
  PutReady(1, 0);
  PutReady(2, 0);
  const uint64_t f = Define(5, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {7}).ok());
  const uint64_t p = TwoChains();
  ASSERT_TRUE(cluster.programs().Run(session, p, {7, 2}, {}, {3, 4}).ok());
  for (const uint64_t x : {uint64_t{5}, uint64_t{1}, kSequence}) Installed(a, x);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n4 id 2 ahead")));
  Report report;
  report.finished = {actions.seq.at({a, NodeId(3)}), actions.seq.at({a, NodeId(4)})};
  // On its own executor the sequence's input was good; the launch before it failed elsewhere.
  report.failures = {{report.finished[0], absl::DataLossError("boom")},
                     {report.finished[1], absl::InternalError("mine"), 0}};
  cluster.fleet().OnReport(a, Incarnation(7), report);
  Watch();
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 watched 3: DATA_LOSS: f5 on island ia (worker wa): boom",
                          "s1 watched 4: OK"));
}

TEST_F(PoisonTest, WhatCanMakeNothingIsNotLaunched) {
  for (const uint64_t handle : {1, 2})
    ASSERT_TRUE(cluster.arrays()
                    .MakeError(session, handle, Type(), absl::AbortedError(std::to_string(handle)))
                    .ok());
  const uint64_t p = TwoChains();
  actions.Take();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1, 2}, {{}, 9}, {3, 4}).ok());
  EXPECT_THAT(actions.Take(), Contains("s1 watched 9: ABORTED: 1"));
  Watch();
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 3: ABORTED: 1", "s1 watched 4: ABORTED: 2"));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_TRUE(cluster.arrays().Destruct(session, {3, 4}).ok());
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
}

TEST_F(PoisonTest, WhenItsExecutorIsLostWhatWouldHaveFailedAnywayKeepsItsCause) {
  ASSERT_TRUE(cluster.arrays().MakeError(session, 1, Type(), absl::AbortedError("mine")).ok());
  PutReady(2, 0);
  const uint64_t p = TwoChains();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1, 2}, {}, {3, 4}).ok());
  Installed(a, 1);
  Installed(a, kSequence);
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  Watch();
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 3: ABORTED: mine",
                                          HasSubstr("s1 watched 4: DATA_LOSS: island ia")));
}

TEST_F(ProgramsTest, ArgumentsThatLieElsewhereAreMoved) {
  PutReady(1, 2);
  const uint64_t p = TwoStages();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  EXPECT_THAT(actions.Take(), Contains("e1 <- receive n2 g2 from [wb:1#0 [0]+[4] to 0:[0]]"));
}

TEST_F(ProgramsTest, DonatedArgumentsAreTakenOver) {
  PutReady(1, 0);
  PutReady(2, 0);
  const uint64_t p = TwoStages(/*donated=*/true);
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {3}).ok());
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 1));
  ASSERT_TRUE(cluster.programs().Run(session, p, {2}, {{0}}, {4}).ok());
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 2));
  actions.Take();
  InstallAll();
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n3 id 1 keep [] inline []",
                                          "e1 <- launch n6 id 3 keep [0] inline []",
                                          "e2 <- launch n5 id 1 ahead keep [] inline [5:0]",
                                          "e2 <- launch n8 id 2 ahead keep [] inline [8:0]"));
}

// Little memory, and every launch ends in turns.
class TightProgramsTest : public ProgramsTest {
 protected:
  TightProgramsTest() : ProgramsTest(InTurns()) {}
  static ClusterOptions InTurns() {
    ClusterOptions options = AtOnce();
    options.ends_at_once = 0;
    options.turn_units = 1;
    return options;
  }
  void SetUp() override { Begin(512); }
};

// A sequence takes a donated argument over only where one of its steps does. So others get the
// argument's memory behind the command that frees it.
TEST_F(TightProgramsTest, TheMemoryOfADonatedArgumentIsGivenToOthersWithItsFree) {
  const auto put = cluster.arrays().Put(session, 1, Type(), {0});
  ASSERT_TRUE(put.ok()) << put.status();
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
  RunTurns();
  End(a, put->upload.value);
  const uint64_t p = TwoStages(/*donated=*/true);
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  RunTurns();
  InstallAll();
  RunTurns();
  // Fits beside the result of the first stage alone.
  const uint64_t large = Define(3, {0}, {}, {F32({112})});
  ASSERT_TRUE(cluster.executables().Execute(session, large, {}, {}, {3}).ok());
  RunTurns();
  actions.Take();
  End(a, 2);
  RunTurns();
  const std::vector<std::string> lines = actions.Take();
  const auto at = [&](const char* command) {
    return std::ranges::find_if(
        lines, [&](const std::string& line) { return line.find(command) != std::string::npos; });
  };
  ASSERT_NE(at("e1 <- free [1]"), lines.end()) << ::testing::PrintToString(lines);
  ASSERT_NE(at("e1 <- prepare n"), lines.end()) << ::testing::PrintToString(lines);
  EXPECT_LT(at("e1 <- free [1]"), at("e1 <- prepare n")) << ::testing::PrintToString(lines);
}

TEST_F(ProgramsTest, ADonatedArgumentThatIsAResultLivesOnAsThat) {
  PutReady(1, 0);
  PutReady(2, 0);
  const ValueRef x = Add(ArgumentNode{{0, Type()}, true});
  const ValueRef frozen = Add(ArgumentNode{{0, Type()}, true});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {x}}), frozen};
  const uint64_t p = Bind();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1, 2}, {}, {3, 4}).ok());
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 1));
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 2));
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 4));
  actions.Take();
  cluster.arrays().Watch(session, 1, {4});
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 1: OK"));
}

// Two arguments share the bytes: one may be a result, or another step may read it later.
TEST_F(ProgramsTest, WhatComesForTwoArgumentsIsTakenOverByNoStep) {
  PutReady(1, 0);
  const ValueRef given = Add(ArgumentNode{{0, Type()}, true});
  const ValueRef kept = Add(ArgumentNode{{0, Type()}, false});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {given}}), kept};
  const uint64_t p = Bind();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1, 1}, {}, {2, 3}).ok());
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 1));
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 3));
  actions.Take();
  InstallAll();
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("keep [0]")));
  cluster.arrays().Watch(session, 1, {3});
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 1: OK"));
}

TEST_F(ProgramsTest, AnErrorThatIsHandedOnIsAResultOfItsType) {
  const ArraySpec other{DType::kF32, Shape{{8}}, Sharding::SingleDevice(0)};
  ASSERT_TRUE(cluster.arrays().MakeError(session, 1, other, absl::UnknownError("boom")).ok());
  ASSERT_TRUE(cluster.arrays().Delete(session, {1}).ok());
  const ValueRef x = Add(ArgumentNode{{0, Type()}, false});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {x}}), x};
  ASSERT_TRUE(cluster.programs().Run(session, Bind(), {1}, {}, {2, 3}).ok());
  EXPECT_EQ(cluster.arrays().Spec(session, 3)->shape, (Shape{{4}}));
  cluster.arrays().Watch(session, 1, {3});
  EXPECT_THAT(actions.Take(), Contains("s1 watched 1: UNKNOWN: boom"));
}

TEST_F(ProgramsTest, AHandleIsBoundOnce) {
  const ValueRef k = Add(ConstantNode{{0, Type()}, std::make_shared<const std::string>(16, 'k')});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {k}})};
  const auto plan = Lower(program, *CheckProgram(program), binding);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const ProgramSource source{"p", *plan, {{0}, {2}}, false};
  ASSERT_TRUE(cluster.programs().Bind(session, 7, source).ok());
  EXPECT_EQ(cluster.programs().Bind(session, 7, source).status().code(),
            absl::StatusCode::kAlreadyExists);
}

// A call of it would hold up everybody.
TEST_F(ProgramsTest, AProgramThatTakesAndMakesTooManyArraysIsRefused) {
  const ValueRef x = Add(ArgumentNode{{0, Type()}});
  program.graphs[0].results = {x};
  const auto plan = Lower(program, *CheckProgram(program), binding);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ProgramSource source{"p", *plan, {{0}, {2}}, false};
  source.plan.results.assign(kMaxCallValues - 1, 0);
  EXPECT_TRUE(cluster.programs().Bind(session, 7, source).ok());
  source.plan.results.push_back(0);
  const absl::Status refused = cluster.programs().Bind(session, 8, source).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(refused), HasSubstr("program p takes 1 arrays and makes 65536: one call may"));
  // What goes from one part to the next counts as well.
  source.plan.results = {0};
  ProgramPlan::RunSequence part;
  part.outputs.assign(kMaxCallValues + 1, 0);
  source.plan.steps.emplace_back(part);
  EXPECT_THAT(Text(cluster.programs().Bind(session, 8, source).status()),
              HasSubstr("program p: a part of it, between moves of arrays, takes 0 arrays"));
}

TEST_F(ProgramsTest, WhatATransferDidNotCopyIsNotTakenOver) {
  PutReady(1, 0);
  const ValueRef x = Add(ArgumentNode{{0, Type()}});
  program.graphs[0].results = {Add(ComputeNode{0, 1, {x}})};
  binding.code[{0, 1}] = {ExecutableId(1), {{DType::kF32, Shape{{4}}, ""}}, {0}, 64};
  const uint64_t p = Bind(/*sequential=*/false, /*second=*/0);
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 1));
  actions.Take();
  for (const uint64_t executable : {uint64_t{1}, kSequence}) Installed(a, executable);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [0] inline [2:0]"));
}

TEST_F(ProgramsTest, WrongArgumentsAreNamed) {
  PutReady(1, 0, 8);
  const uint64_t p = TwoStages();
  EXPECT_THAT(Text(cluster.programs().Run(session, p, {1}, {}, {2}).status()),
              HasSubstr("p: argument 0 is f32[8], expected f32[4]"));
  EXPECT_THAT(Text(cluster.programs().Run(session, p, {9}, {}, {3}).status()),
              HasSubstr("p: argument 0: "));
  EXPECT_THAT(Text(cluster.programs().Run(session, p, {}, {}, {4}).status()),
              HasSubstr("p takes 1 arguments, but 0 were given"));
  EXPECT_EQ(cluster.programs().Run(session, 77, {1}, {}, {5}).status().code(),
            absl::StatusCode::kNotFound);
  // The client need not wait for the answer: the result arrays hold the error.
  actions.Take();
  cluster.arrays().Watch(session, 6, {2});
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("expected f32[4]")));
}

TEST_F(ProgramsTest, AReleasedProgramIsForgottenWhenItsRunsHaveEnded) {
  PutReady(1, 0);
  const uint64_t p = TwoStages();
  ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {2}).ok());
  InstallAll();
  EXPECT_TRUE(cluster.programs().Release(session, p).ok());
  EXPECT_TRUE(cluster.executables().Has(ExecutableId(kSequence)));
  EXPECT_TRUE(cluster.executables().InUse().contains(ExecutableId(1)));
  End(a, 2);
  End(b, 3);
  End(b, 4);
  EXPECT_FALSE(cluster.executables().Has(ExecutableId(kSequence)));
  EXPECT_FALSE(cluster.executables().Has(ExecutableId(kSequence + 1)));
  EXPECT_THAT(actions.Take(), Contains("e1 <- drop x" + std::to_string(kSequence)));
}

TEST_F(ProgramsTest, ConstantsArePutOnceAndFreedWithTheProgram) {
  const ValueRef k = Add(ConstantNode{{0, Type()}, std::make_shared<const std::string>(16, 'k')});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {k}})};
  const uint64_t p = Bind();
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- receive n1 g1 from [inline 16B]"));
  End(a, 1);
  for (const uint64_t out : {2, 3})
    ASSERT_TRUE(cluster.programs().Run(session, p, {}, {}, {out}).ok());
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("receive"))));
  InstallAll();
  End(a, 2);
  End(a, 3);
  EXPECT_TRUE(cluster.programs().Release(session, p).ok());
  EXPECT_THAT(actions.Take(), Contains("e1 <- free [1]"));
}

TEST_F(ProgramsTest, ConstantsThatAnExecutorTookWithItArePutAnew) {
  const ValueRef k = Add(ConstantNode{{0, Type()}, std::make_shared<const std::string>(16, 'k')});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {k}})};
  const uint64_t p = Bind();
  End(a, 1);
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).ok());
  actions.Take();
  ASSERT_TRUE(cluster.programs().Run(session, p, {}, {}, {2}).ok());
  EXPECT_THAT(actions.Take(), Contains("e1 <- receive n2 g2 from [inline 16B]"));
}

// A constant that is also a result is the client's as well, who may delete it or give it away.
TEST_F(ProgramsTest, AConstantThatIsAResultIsPutAnewWhenTheClientHasDeletedIt) {
  const ValueRef k = Add(ConstantNode{{0, Type()}, std::make_shared<const std::string>(16, 'k')});
  program.graphs[0].results = {Add(ComputeNode{0, 0, {k}}), k};
  const uint64_t p = Bind();
  End(a, 1);
  ASSERT_TRUE(cluster.programs().Run(session, p, {}, {}, {2, 3}).ok());
  InstallAll();
  End(a, 2);
  ASSERT_TRUE(cluster.arrays().Delete(session, {3}).ok());
  RunTurns();
  actions.Take();
  ASSERT_TRUE(cluster.programs().Run(session, p, {}, {}, {4, 5}).ok());
  EXPECT_THAT(actions.Take(), Contains("e1 <- receive n3 g3 from [inline 16B]"));
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 3));
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 5));
}

TEST_F(ProgramsTest, LosingAnExecutorFailsTheRunsThatWereThereAndTheNextRunIsWell) {
  PutReady(1, 2);
  const uint64_t p = TwoStages();
  std::vector<uint64_t> out;
  for (uint64_t run = 0; run < 100; ++run) {
    out.push_back(10 + run);
    ASSERT_TRUE(cluster.programs().Run(session, p, {1}, {}, {out.back()}).ok());
  }
  InstallAll();
  actions.Take();
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed by SIGKILL"));
  RunTurns();
  EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).ok());
  cluster.Tick(0);
  // None of its work had begun, so it is prepared anew, and its code installed again.
  EXPECT_THAT(actions.Take(), testing::AllOf(Contains("e1 <- install x1"),
                                             Contains(HasSubstr("e1 <- install sequence"))));
  cluster.sessions().Close(session);
  RunTurns();
  // What was launched ends by itself.
  Report all;
  all.finished_through = 1000;
  cluster.fleet().OnReport(a, Incarnation(7), all);
  cluster.fleet().OnReport(b, Incarnation(7), all);
  RunTurns();
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
}

}  // namespace
}  // namespace fairway
