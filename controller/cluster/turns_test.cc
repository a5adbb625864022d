// SPDX-License-Identifier: Apache-2.0
// No operation and no turn is long, whatever one session has made necessary, and its neighbours are
// served meanwhile. Counted in units of work, not in time.
#include "controller/cluster/cluster_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::StartsWith;

// An operation's own part, which is not interrupted, and a turn that follows it.
constexpr uint64_t kMost = 3000;

class TurnsTest : public ClusterTest {
 protected:
  void SetUp() override {
    Start();
    step_ = Define(1, {0}, {F32({4})}, {F32({4})});
    Define(2, {2}, {F32({4})}, {F32({4})});
    other_ = cluster.OpenSession("t").value();
    neighbours_step_ = cluster.BindExecutable(other_, 0, ExecutableId(2), {2}).value();
  }
  void TearDown() override {
    while (Turn()) {
    }
    EXPECT_EQ(Describe(cluster.CheckInvariants()), "OK");
  }

  // Calls `operation`, and checks what it takes.
  template <typename F>
  auto Bounded(F operation) {
    const uint64_t before = cluster.units();
    auto result = operation();
    EXPECT_LE(cluster.units() - before, kMost);
    return result;
  }
  // A turn, if one is wanted.
  bool Turn() {
    if (!std::exchange(actions.turn_wanted, false)) return false;
    return Bounded([&] {
      cluster.Turn();
      return true;
    });
  }
  // The neighbour puts an array and computes with it: a device of its own is told at once.
  void ExpectTheNeighbourIsServed() {
    const uint64_t handle = next_++;
    const auto put =
        cluster.Put(other_, handle, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(2)}, {0});
    ASSERT_TRUE(put.ok());
    actions.Take();
    cluster.ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
    ASSERT_TRUE(cluster.Execute(other_, neighbours_step_, {handle}, {}, {next_++}).ok());
    for (int turns = 0; turns < 3; ++turns) Turn();
    EXPECT_THAT(actions.lines, Contains(StartsWith("e2 <- receive n")));
    EXPECT_THAT(actions.lines, Contains(StartsWith("e2 <- prepare n")));
    actions.Take();
  }

  // A program that goes `rounds` times to island b and back.
  uint64_t BindLongProgram(int rounds) {
    Program program;
    program.name = "long";
    program.slices = {{"a", 1}, {"b", 1}};
    ProgramBinding binding;
    binding.places = {0, 1};
    const ArraySpec type{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
    for (int c = 0; c < 2; ++c) {
      Computation computation;
      computation.code = std::make_shared<const std::string>("code");
      computation.parameters = computation.results = {type};
      program.computations.push_back(computation);
      binding.code[{c, c}] = {ExecutableId(c + 1), {{DType::kF32, Shape{{4}}, ""}}, {}, 64};
    }
    program.graphs.resize(1);
    auto& nodes = program.graphs[0].nodes;
    nodes.push_back({"", "", ArgumentNode{{0, type}, false}});
    for (int r = 0; r < rounds; ++r) {
      for (int c = 0; c < 2; ++c) {
        const ValueRef last{static_cast<int32_t>(nodes.size()) - 1, 0};
        nodes.push_back({"", "", ComputeNode{c, c, {last}}});
      }
    }
    program.graphs[0].results = {{static_cast<int32_t>(nodes.size()) - 1, 0}};
    const auto types = CheckProgram(program);
    EXPECT_TRUE(types.ok()) << types.status();
    const auto plan = Lower(program, *types, binding);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return cluster.BindProgram(session, 0, {"long", *plan, {{0}, {2}}, false}).value();
  }

  uint64_t step_ = 0;
  SessionId other_;
  uint64_t neighbours_step_ = 0;
  uint64_t next_ = 1;  // of the neighbour's handles
};

TEST_F(TurnsTest, ALongProgramIsMadeInSeveralTurnsAndNeighboursAreServedMeanwhile) {
  PutReady(1, 0);
  const uint64_t program = BindLongProgram(1000);
  while (Turn()) {
  }
  const auto run = Bounded([&] { return cluster.RunProgram(session, program, {1}, {{}, 7}, {2}); });
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(cluster.Busy(session));
  ExpectTheNeighbourIsServed();
  EXPECT_TRUE(cluster.Busy(session));
  int turns = 0;
  while (cluster.Busy(session)) {
    ASSERT_TRUE(Turn());
    ASSERT_EQ(Describe(cluster.CheckInvariants()), "OK");
    ++turns;
  }
  EXPECT_GT(turns, 3);
  EXPECT_NE(cluster.Spec(session, 2), nullptr);
}

TEST_F(TurnsTest, TheNextOperationOfABusySessionFindsWhatTheLongOneMakes) {
  PutReady(1, 0);
  const uint64_t program = BindLongProgram(1000);
  ASSERT_TRUE(cluster.RunProgram(session, program, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.Busy(session));
  EXPECT_TRUE(cluster.Execute(session, step_, {1}, {}, {3}).ok());
  EXPECT_FALSE(cluster.Busy(session));
  EXPECT_NE(cluster.Spec(session, 2), nullptr);
}

TEST_F(TurnsTest, ASessionThatEndsInTheMiddleOfALongProgramLeavesNothing) {
  PutReady(1, 0);
  const uint64_t program = BindLongProgram(1000);
  ASSERT_TRUE(cluster.RunProgram(session, program, {1}, {{}, 7}, {2}).ok());
  ASSERT_TRUE(cluster.Busy(session));
  Bounded([&] {
    cluster.CloseSession(session);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) ASSERT_EQ(Describe(cluster.CheckInvariants()), "OK");
  cluster.CloseSession(other_);
  while (Turn()) {
  }
  EXPECT_EQ(cluster.counts().arrays, 0u);
}

TEST_F(TurnsTest, WhatFailsWithAnUploadFailsInSeveralTurnsAndNeighboursAreServedMeanwhile) {
  constexpr uint64_t kSteps = 5000;
  const auto put =
      cluster.Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  ASSERT_TRUE(put.ok());
  // All read the upload, and each the one before it.
  for (uint64_t i = 1; i <= kSteps; ++i) {
    ASSERT_TRUE(cluster.Execute(session, step_, {i % 2 == 0 ? i : 1}, {}, {i + 1}).ok());
    while (Turn()) {
    }
  }
  cluster.Watch(session, 9, {kSteps + 1});
  Bounded([&] {
    cluster.ProvideUpload(put->upload, 0, absl::AbortedError("no bytes"));
    return true;
  });
  ASSERT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  ASSERT_TRUE(actions.turn_wanted);
  while (Turn()) ASSERT_EQ(Describe(cluster.CheckInvariants()), "OK");
  EXPECT_THAT(actions.lines, Contains(StartsWith("s1 watched 9: ABORTED: no bytes")));
}

TEST_F(TurnsTest, ASessionThatEndsIsGivenUpInSeveralTurns) {
  PutReady(1, 0);
  for (uint64_t i = 2; i < 6000; ++i)
    ASSERT_TRUE(
        cluster.Assemble(session, *cluster.Spec(session, 1), {1}, CopySemantics::kReuseInput, i)
            .ok());
  Bounded([&] {
    cluster.CloseSession(session);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
  cluster.CloseSession(other_);
  while (Turn()) {
  }
  EXPECT_EQ(cluster.counts().arrays, 0u);
}

// A report may tell of more than a turn does.
TEST_F(TurnsTest, TheEndsOfManyLaunchesAreHeardInSeveralTurns) {
  PutReady(1, 0);
  Installed(a, 1);
  Report report;
  for (uint64_t i = 0; i < 3000; ++i) {
    const auto run = cluster.Execute(session, step_, {1}, {}, {i + 2});
    ASSERT_TRUE(run.ok());
    while (Turn()) {
    }
    if (i == 0) Installed(a, 1);
  }
  for (const auto& [who, seq] : actions.seq) {
    if (who.first == a) report.finished.push_back(seq);
  }
  Bounded([&] {
    cluster.OnReport(a, Incarnation(7), report);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
}

}  // namespace
}  // namespace fairway
