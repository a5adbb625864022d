// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the controller's core for islands of two executors.
#include <algorithm>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "graph/specs_for_test.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Island ia has a second executor; its device is the third one of a new session.
class TwoExecutorsTest : public ClusterTest {
 protected:
  static ExecutorSpec OfTwo(const std::string& worker, int devices, int64_t memory = 0) {
    ExecutorSpec spec = Worker(worker, "ia", devices, memory);
    spec.island_workers = 2;
    return spec;
  }
  void StartTwo(int64_t memory = 0) {
    a = cluster.fleet().ExecutorUp(OfTwo("wa", 2, memory)).value();
    EXPECT_EQ(cluster.sessions().Open("t").status().code(), absl::StatusCode::kUnavailable)
        << "half an island";
    c = cluster.fleet().ExecutorUp(OfTwo("wc", 1, memory)).value();
    b = cluster.fleet().ExecutorUp(Worker("wd", "ib", 1, memory)).value();
    session = actions.Open(cluster);
    actions.Take();
  }
  void PutOnTwo(uint64_t handle) {
    const auto put = cluster.arrays().Put(
        session, handle, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 2})}, {0, 0});
    cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
    actions.Take();
  }
  void Return(const std::string& worker, const std::string& island, int devices,
              int64_t memory = 0) {
    ExecutorSpec again = Worker(worker, island, devices, memory);
    again.incarnation = Incarnation(7);
    if (island == "ia") again.island_workers = 2;
    ASSERT_TRUE(cluster.fleet().ExecutorUp(again).ok());
    cluster.Tick(0);
  }
  // Launches node 2, a gang of both executors, on array 1; it makes array 2.
  void GangOfTwo() {
    StartTwo();
    PutOnTwo(1);
    End(a, 1);
    End(c, 1);
    const uint64_t f = Define(1, {0, 2}, {F32({4})}, {F32({4})});
    ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
    Installed(a, 1);
    Installed(c, 1);
  }
  // Reports the end of node 2 as of a sequence: output 0 failed on this executor.
  void OutputFails(ExecutorId executor, absl::Status why) {
    Report report;
    report.finished = {actions.seq.at({executor, NodeId(2)})};
    report.failures = {{report.finished[0], std::move(why), 0}};
    cluster.fleet().OnReport(executor, Incarnation(7), report);
  }
  explicit TwoExecutorsTest(ClusterOptions options = AtOnce()) : ClusterTest(std::move(options)) {}

  ExecutorId c;
};

TEST_F(TwoExecutorsTest, AGangThatLostAnExecutorKeepsItsInputsOnTheOthersUntilItEndsThere) {
  ASSERT_NO_FATAL_FAILURE(GangOfTwo());
  actions.Take();
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  // The other executor may wait for the lost one. The code of both is loaded anew.
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- abandon 1 to 1: DATA_LOSS: island ia: the executor of worker wc "
                          "was lost: killed",
                          "e1 <- drop x1"));
  End(a, 2, absl::UnknownError("a peer is gone"));
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [2, 1]"));
}

TEST_F(TwoExecutorsTest, CodeOfBothIsInstalledWithTheirEndpointsAndAnewForASuccessor) {
  StartTwo();
  PutOnTwo(1);
  End(a, 1);
  End(c, 1);
  const uint64_t f = Define(1, {0, 2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  const Lines sent = actions.Take();
  EXPECT_THAT(sent, testing::Contains("e1 <- install x1 as 0 of [wa:1 wc:1]"));
  EXPECT_THAT(sent, testing::Contains("e2 <- install x1 as 1 of [wa:1 wc:1]"));
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  actions.Take();
  Return("wc", "ia", 1);
  PutOnTwo(3);
  ASSERT_TRUE(cluster.executables().Execute(session, f, {3}, {}, {4}).ok());
  EXPECT_THAT(actions.Take(), testing::Contains("e1 <- install x1 as 0 of [wa:1 wc:1]"));
}

TEST_F(TwoExecutorsTest, AGangWhoseMemberIsGoneWaitsForTheLossToTellTheCause) {
  ASSERT_NO_FATAL_FAILURE(GangOfTwo());
  cluster.arrays().Watch(session, 1, {2});
  End(c, 2);
  actions.Take();
  End(a, 2, absl::UnavailableError("lost wc:1 while pulling"));
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  EXPECT_THAT(actions.Take(),
              testing::Contains("s1 watched 1: DATA_LOSS: island ia: the executor of worker wc was "
                                "lost: killed"));
}

TEST_F(TwoExecutorsTest, OneThatIsLostAfterItsPartEndsTheWaitOfTheOther) {
  ASSERT_NO_FATAL_FAILURE(GangOfTwo());
  End(c, 2);
  actions.Take();
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- abandon 1 to 1: DATA_LOSS: island ia")));
  End(a, 2, absl::UnknownError("a peer is gone"));
}

// If a step of a sequence fails on one executor, that executor answers for it. Of several failures
// of an output the first executor's counts, not the first to come.
TEST_F(TwoExecutorsTest, AStepThatFailedOnOneAbandonsNothingAndTheFirstExecutorsFailureIsTold) {
  ASSERT_NO_FATAL_FAILURE(GangOfTwo());
  cluster.arrays().Watch(session, 1, {2});
  actions.Take();
  OutputFails(c, absl::InternalError("second"));
  EXPECT_THAT(actions.Take(), IsEmpty());
  OutputFails(a, absl::InternalError("first"));
  EXPECT_THAT(actions.Take(),
              Contains(AllOf(HasSubstr("s1 watched 1: INTERNAL"), HasSubstr("first"))));
}

TEST_F(TwoExecutorsTest, AStepWhosePeerIsGoneWaitsForTheLossToTellTheCause) {
  ASSERT_NO_FATAL_FAILURE(GangOfTwo());
  cluster.arrays().Watch(session, 1, {2});
  End(c, 2);
  actions.Take();
  OutputFails(a, absl::UnavailableError("lost wc:1 while pulling"));
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  EXPECT_THAT(actions.Take(), Contains(AllOf(HasSubstr("s1 watched 1: DATA_LOSS"),
                                             HasSubstr("worker wc was lost"))));
}

TEST_F(TwoExecutorsTest, AStepWhosePeerIsGoneFailsWithThatWhenNobodyIsLost) {
  ASSERT_NO_FATAL_FAILURE(GangOfTwo());
  cluster.arrays().Watch(session, 1, {2});
  End(c, 2);
  OutputFails(a, absl::UnavailableError("lost wc:1 while pulling"));
  actions.Take();
  cluster.Tick(1000);
  cluster.Tick(1000 + 15000);
  EXPECT_THAT(actions.Take(),
              Contains(AllOf(HasSubstr("s1 watched 1: UNAVAILABLE"), HasSubstr("lost wc:1"))));
}

// y = f(x), z = f(y) over both executors of an island.
class ChainOnTwoTest : public TwoExecutorsTest {
 protected:
  void Start() {
    StartTwo();
    PutOnTwo(1);
    End(a, 1);
    End(c, 1);
    f = Define(1, {0, 2}, {F32({4})}, {F32({4})});
    ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
    Installed(a, 1);
    Installed(c, 1);
    actions.Take();
    ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {3}).ok());
    cluster.arrays().Watch(session, 1, {3});
  }
  uint64_t BindSequence(const std::vector<int32_t>& devices);
  uint64_t f = 0;
};

TEST_F(ChainOnTwoTest, TheSecondIsLaunchedBeforeTheFirstHasEnded) {
  Start();
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- prepare n3 x1 in [2:0] out [3] on [0]",
                                          "e2 <- prepare n3 x1 in [2:1] out [3] on [0]",
                                          "e1 <- launch n3 id 2 gang ahead keep [] inline [3:0]",
                                          "e2 <- launch n3 id 2 gang ahead keep [] inline []"));
  for (const ExecutorId e : {a, c}) {
    End(e, 2);
    EXPECT_THAT(actions.Take(), IsEmpty());
    End(e, 3);
  }
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 1: OK"));
}

TEST_F(ChainOnTwoTest, WhatTheFirstMadeIsCountedUntilTheSecondHasEndedThoughItFailedElsewhere) {
  Start();
  End(a, 2);
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 192);  // the upload included
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 128);
  End(a, 3, absl::UnknownError("a peer is gone"));
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 0);
}

TEST_F(ChainOnTwoTest, AFailureOfTheFirstOnOneExecutorIsThatOfTheSecond) {
  Start();
  actions.Take();
  End(a, 2, absl::InternalError("boom"));
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- abandon 1 to 1: INTERNAL: boom"));
  End(a, 3, absl::InternalError("boom"));
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- abandon 2 to 2: INTERNAL: boom"));
  // On that executor the first launch ended well, and so does the second.
  End(c, 2);
  End(c, 3);
  EXPECT_THAT(actions.Take(),
              testing::Contains("s1 watched 1: INTERNAL: f1 on island ia (worker wa, wc): boom"));
}

TEST_F(ChainOnTwoTest, WhatWasThereAndIsLostDoesNotHideTheFirstCause) {
  Start();
  const uint64_t g = Define(2, {0}, {F32({4}), F32({4})}, {F32({4})});
  std::vector<uint64_t> on_a;  // device 0's pieces of the upload and of y
  for (const uint64_t handle : {1, 2})
    on_a.push_back(
        cluster.arrays().Disassemble(session, handle, CopySemantics::kReuseInput, {})->at(0));
  ASSERT_TRUE(cluster.executables().Execute(session, g, on_a, {}, {9}).ok());
  Installed(a, 2);
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  End(a, 2, absl::UnknownError("a peer is gone"));
  End(a, 3, absl::UnknownError("a peer is gone"));
  actions.Take();
  cluster.arrays().Watch(session, 2, {9});
  End(a, 4, absl::UnknownError("a peer is gone"));
  EXPECT_THAT(actions.Take(), Contains(AllOf(HasSubstr("s1 watched 2: DATA_LOSS"),
                                             HasSubstr("worker wc was lost"))));
}

TEST_F(ChainOnTwoTest, OneThatHadEndedOnItsOwnExecutorWaitsForWhatItTook) {
  Start();
  const uint64_t g = Define(2, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(
      cluster.arrays().FullyReplicatedShard(session, 2, CopySemantics::kReuseInput, 4).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, g, {4}, {}, {5}).ok());
  Installed(a, 2);
  cluster.arrays().Watch(session, 2, {5});
  EXPECT_THAT(actions.Take(), testing::Contains("e1 <- launch n4 id 3 ahead keep [] inline [4:0]"));
  End(a, 2);
  End(a, 4);
  EXPECT_THAT(actions.Take(), IsEmpty());  // its input may still fail on the other executor
  End(c, 2, absl::InternalError("boom"));
  EXPECT_THAT(actions.Take(),
              testing::Contains("s1 watched 2: INTERNAL: f1 on island ia (worker wa, wc): boom"));
  End(a, 3, absl::InternalError("boom"));
  End(c, 3, absl::InternalError("boom"));
}

// Binds a program that is one sequence on `devices`: it runs executable 2 once.
uint64_t ChainOnTwoTest::BindSequence(const std::vector<int32_t>& devices) {
  Define(2, devices, {F32({4})}, {F32({4})});
  Sequence sequence;
  sequence.registers = 2;
  sequence.outputs = 1;
  sequence.types = {{DType::kF32, Shape{{4}}, ""}};
  Instruction run, output;
  run.executable = ExecutableId(2);
  run.inputs = {0};
  run.outputs = {1};
  run.types = {0};
  output.op = Instruction::Op::kOutput;
  output.inputs = {1};
  output.outputs = {0};
  sequence.instructions = {run, output};
  ProgramPlan::RunSequence step;
  step.sequence = std::make_shared<const Sequence>(sequence);
  step.inputs = {0};
  step.outputs = {1};
  step.executables = {ExecutableId(2)};
  step.max_steps = 1;
  ProgramPlan plan;
  const ArraySpec spec{DType::kF32, Shape{{4}},
                       Sharding::Replicated(Positions(static_cast<int>(devices.size())))};
  plan.types = {{0, spec}};
  plan.values = {0, 0};
  plan.arguments = 1;
  plan.donated = {false};
  plan.steps = {step};
  plan.results = {1};
  const auto program = cluster.programs().Bind(session, 0, {"p", plan, {devices}, false});
  EXPECT_TRUE(program.ok()) << program.status();
  return program.value_or(0);
}

// Both executors get the sequence while the computation before it still runs.
TEST_F(ChainOnTwoTest, ASequenceOverBothIsLaunchedBeforeWhatItTakesIsThere) {
  Start();
  const uint64_t program = BindSequence({0, 2});
  ASSERT_TRUE(cluster.programs().Run(session, program, {2}, {}, {5}).ok());
  for (const ExecutorId e : {a, c}) {
    Installed(e, 2);
    Installed(e, uint64_t{1} << 62);
  }
  cluster.arrays().Watch(session, 2, {5});
  const std::vector<std::string> lines = actions.Take();
  EXPECT_THAT(lines, Contains(HasSubstr("e1 <- launch n4 id 3 gang ahead")));
  EXPECT_THAT(lines, Contains(HasSubstr("e2 <- launch n4 id 3 gang ahead")));
  for (const ExecutorId e : {a, c}) {
    for (const uint64_t node : {2, 3, 4}) End(e, node);
  }
  EXPECT_THAT(actions.Take(), Contains("s1 watched 2: OK"));
}

TEST_F(ChainOnTwoTest, ASequenceThatHadEndedWellFailsIfWhatItTookDid) {
  Start();
  const uint64_t program = BindSequence({0});
  ASSERT_TRUE(
      cluster.arrays().FullyReplicatedShard(session, 2, CopySemantics::kReuseInput, 4).ok());
  ASSERT_TRUE(cluster.programs().Run(session, program, {4}, {}, {5}).ok());
  Installed(a, 2);
  Installed(a, uint64_t{1} << 62);
  cluster.arrays().Watch(session, 2, {5});
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n4 id 3 ahead")));
  End(a, 2);
  End(a, 4);
  EXPECT_THAT(actions.Take(), IsEmpty());
  End(c, 2, absl::InternalError("boom"));
  EXPECT_THAT(actions.Take(),
              Contains("s1 watched 2: INTERNAL: f1 on island ia (worker wa, wc): boom"));
  for (const ExecutorId e : {a, c}) End(e, 3, absl::InternalError("boom"));
}

TEST_F(ChainOnTwoTest, NothingIsLaunchedBehindOneThatLostAnExecutor) {
  Start();
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  Return("wc", "ia", 1);
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {4}).ok());
  Installed(a, 1);
  Installed(c, 1);
  for (const std::string& line : actions.Take())
    EXPECT_THAT(line, testing::Not(testing::HasSubstr("launch n4")));
  End(a, 2, absl::InternalError("abandoned"));
  End(a, 3, absl::InternalError("abandoned"));
  EXPECT_THAT(actions.Take(),
              testing::Contains("s1 watched 1: DATA_LOSS: island ia: the executor of worker wc was "
                                "lost: killed"));
}

TEST_F(TwoExecutorsTest, OneMoreThanTheIslandHasIsRefusedAndSoIsAnotherNumber) {
  StartTwo();
  EXPECT_THAT(Text(cluster.fleet().ExecutorUp(OfTwo("we", 1)).status()),
              testing::HasSubstr("island ia has its 2 workers already"));
  EXPECT_THAT(Text(cluster.fleet().ExecutorUp(Worker("wf", "ia", 1)).status()),
              testing::HasSubstr("island ia has 2 workers, but worker \"wf\" says 1"));
}

TEST_F(TwoExecutorsTest, AReceiveThatIsTakenBackLeavesNothingWhereItHadEnded) {
  StartTwo();
  PutOnTwo(1);
  End(a, 1);
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- cancel n1", "withdraw t1", "e1 <- free [1]"));
  Return("wc", "ia", 1);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- receive n1 g1 from [inline 16B]",
                                          "e2 <- receive n1 g1 from [inline 16B]"));
}

TEST_F(TwoExecutorsTest, ACopyFromAnExecutorThatIsAwayWaitsForItsReturn) {
  StartTwo();
  PutReady(1, 0);
  const uint64_t g = Define(2, {0}, {}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {}, {}, {2}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {2}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {3})
                  .ok());
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- install x2", HasSubstr("prepare n2"), "e1 <- send t3 [#0=2:0]",
                          "e3 <- receive n3 g3 from [wa:1#0]"));
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  EXPECT_THAT(actions.Take(), ElementsAre("e3 <- cancel n3", "e3 <- free [3]"));
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {2}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {4})
                  .ok());
  EXPECT_THAT(actions.Take(), IsEmpty());
  Return("wa", "ia", 2);
  EXPECT_THAT(
      actions.Take(),
      ElementsAre(
          "e1 <- install x2", HasSubstr("prepare n2"),
          "e1 <- send t281474976710659 [#0=2:0]",  // the second attempt has a transfer of its own
          "e3 <- receive n3 g3 from [wa:1#0]", "e1 <- send t4 [#0=2:0]",
          "e3 <- receive n4 g4 from [wa:1#0]"));
}

TEST_F(TwoExecutorsTest, APullThatMeetsALaterIncarnationLeavesItToTheLossToTellTheCause) {
  StartTwo();
  PutReady(1, 0);
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {2})
                  .ok());
  cluster.arrays().Watch(session, 1, {2});
  End(b, 2, absl::AbortedError("another incarnation"));
  actions.Take();
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  EXPECT_THAT(actions.Take(), ::testing::Contains(HasSubstr("s1 watched 1: DATA_LOSS: island ia")));
}

// A turn does one piece of work. The parameter: the turns between the failure and what follows.
class TurnsOnTwoTest : public TwoExecutorsTest, public ::testing::WithParamInterface<int> {
 protected:
  static ClusterOptions Short() {
    ClusterOptions options = AtOnce();
    options.turn_units = 1;
    return options;
  }
  TurnsOnTwoTest() : TwoExecutorsTest(Short()) {}
};

TEST_P(TurnsOnTwoTest, ACopyOfAFineShardFailsWithTheGangThatMadeItWheneverItEnds) {
  StartTwo();
  PutOnTwo(1);
  RunTurns();
  End(a, 1);
  End(c, 1);
  RunTurns();
  const uint64_t f = Define(1, {0, 2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  RunTurns();
  Installed(a, 1);
  Installed(c, 1);
  RunTurns();
  ASSERT_TRUE(cluster.arrays().Disassemble(session, 2, CopySemantics::kReuseInput, {3, 4}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {3}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {5})
                  .ok());
  RunTurns();
  ASSERT_THAT(actions.Take(), Contains("e3 <- receive n3 g3 from [wa:1#0]"));
  End(a, 2);
  End(c, 2, absl::UnknownError("boom"));
  for (int i = 0; i < GetParam() && std::exchange(actions.turn_wanted, false); ++i) cluster.Turn();
  End(b, 3);
  RunTurns();
  cluster.arrays().Watch(session, 1, {5});
  RunTurns();
  EXPECT_THAT(actions.Take(),
              Contains(AllOf(HasSubstr("s1 watched 1: UNKNOWN"), HasSubstr("boom"))));
}
INSTANTIATE_TEST_SUITE_P(TurnsBetween, TurnsOnTwoTest, ::testing::Range(0, 12));

TEST_F(TwoExecutorsTest, WhatReadsAReceiveThatFailsIsTakenBackBeforeIt) {
  StartTwo();
  PutOnTwo(1);
  End(a, 1);
  End(c, 1);
  const auto copy = [&](uint64_t in, std::vector<int32_t> devices, uint64_t out) {
    ASSERT_TRUE(cluster.arrays()
                    .Copy(session, {in}, devices, std::nullopt, CopySemantics::kReuseInput, {out})
                    .ok());
  };
  copy(1, {1, 0}, 2);  // node 2: both shards to wa, one of them from wc
  copy(2, {3, 2}, 3);  // nodes 3 and 4 pass the shards on
  actions.Take();
  cluster.fleet().ExecutorLost(c, absl::UnavailableError("killed"));
  const Lines lines = actions.Take();
  const auto at = [&](const char* line) {
    return std::find(lines.begin(), lines.end(), line) - lines.begin();
  };
  ASSERT_LT(at("e1 <- cancel n2"), static_cast<int64_t>(lines.size()));
  EXPECT_LT(at("e3 <- cancel n3"), at("e1 <- cancel n2"));
  EXPECT_LT(at("e1 <- end send t3"), at("e1 <- cancel n2"));
}

}  // namespace
}  // namespace fairway
