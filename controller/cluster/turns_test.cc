// SPDX-License-Identifier: Apache-2.0
// No operation and no turn is long, whatever one session has made necessary, and its neighbours are
// served meanwhile. Counted in units of work, not in time.
#include "controller/cluster/cluster_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::Not;
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

  // Arrays 1 to `count` of one shard, which was put on device 0.
  void MakeViews(uint64_t count, bool ready = true) {
    if (ready) {
      PutReady(1, 0);
    } else {
      ASSERT_TRUE(
          cluster.Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0}).ok());
    }
    for (uint64_t i = 2; i <= count; ++i)
      ASSERT_TRUE(
          cluster.Assemble(session, *cluster.Spec(session, 1), {1}, CopySemantics::kReuseInput, i)
              .ok());
    handles_.resize(count);
    for (uint64_t i = 0; i < count; ++i) handles_[i] = i + 1;
  }
  // Handles of results.
  std::vector<uint64_t> Out() const {
    std::vector<uint64_t> out;
    for (const uint64_t handle : handles_) out.push_back(handle + (uint64_t{1} << 40));
    return out;
  }
  Cluster::Done Answer() {
    return [this](auto result) {
      answered_ = Describe(result.status());
      if (result.ok()) results_ = result->size();
    };
  }
  // A long request has begun: the neighbour is served while it is under way. Ends it; `in_between`
  // comes once.
  template <typename F>
  void ExpectItGoesOnInTurns(F in_between) {
    ASSERT_TRUE(cluster.Busy(session));
    ASSERT_TRUE(actions.turn_wanted);
    EXPECT_EQ(answered_, "");
    ExpectTheNeighbourIsServed();
    EXPECT_TRUE(cluster.Busy(session));
    ASSERT_EQ(Describe(cluster.CheckInvariants()), "OK");
    for (int turns = 0; turns < 10; ++turns) Turn();
    EXPECT_TRUE(cluster.Busy(session));
    in_between();
    ASSERT_EQ(Describe(cluster.CheckInvariants()), "OK");
    while (cluster.Busy(session)) ASSERT_TRUE(Turn());
    ASSERT_EQ(Describe(cluster.CheckInvariants()), "OK");
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
  std::vector<uint64_t> handles_;
  std::string answered_;  // of a long request
  size_t results_ = 0;
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

constexpr uint64_t kMany = 100000;

TEST_F(TurnsTest, ManyArraysAreCopiedInSeveralTurns) {
  MakeViews(kMany);
  Bounded([&] {
    cluster.Copy(session, handles_, {{1}}, std::nullopt, CopySemantics::kAlwaysCopy, Out(),
                 Answer());
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "OK");
  EXPECT_EQ(results_, kMany);
  EXPECT_NE(cluster.Spec(session, Out().back()), nullptr);
}

TEST_F(TurnsTest, ACopyOfManyArraysIsRefusedWhole) {
  MakeViews(kMany);
  handles_.push_back(kMany + 7);
  Bounded([&] {
    cluster.Copy(session, handles_, {{1}}, std::nullopt, CopySemantics::kDonateInput, Out(),
                 Answer());
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_THAT(answered_, StartsWith("NOT_FOUND: there is no array 100007"));
  EXPECT_EQ(cluster.Spec(session, Out().front()), nullptr);
  EXPECT_FALSE(*cluster.IsDeleted(session, 1));
  EXPECT_EQ(cluster.counts().nodes, 2u);  // the neighbour's
}

TEST_F(TurnsTest, ASessionThatEndsInTheMiddleOfALongCopyLeavesNothing) {
  for (const int turns : {0, 20, 200, 400}) {
    session = cluster.OpenSession("t").value();
    MakeViews(20000);
    answered_.clear();
    cluster.Copy(session, handles_, {{1}}, std::nullopt, CopySemantics::kAlwaysCopy, Out(),
                 Answer());
    for (int t = 0; t < turns && cluster.Busy(session); ++t) Turn();
    Bounded([&] {
      cluster.CloseSession(session);
      return true;
    });
    ExpectTheNeighbourIsServed();
    while (Turn()) {
    }
    ASSERT_EQ(Describe(cluster.CheckInvariants()), "OK");
  }
  cluster.CloseSession(other_);
  while (Turn()) {
  }
  EXPECT_EQ(cluster.counts().arrays, 0u);
}

TEST_F(TurnsTest, ManyArraysAreDeletedInSeveralTurns) {
  MakeViews(kMany);
  Bounded([&] {
    cluster.Delete(session, handles_, [&](absl::Status ended) { answered_ = Describe(ended); });
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "OK");
  EXPECT_TRUE(*cluster.IsDeleted(session, kMany));
}

TEST_F(TurnsTest, ManyArraysAreGivenUpInSeveralTurns) {
  MakeViews(kMany);
  handles_.push_back(kMany + 7);
  uint64_t told = 0;
  Bounded([&] {
    cluster.Destruct(
        session, handles_, [&](absl::Status ended) { answered_ = Describe(ended); },
        [&](uint64_t) { ++told; });
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "NOT_FOUND: no such arrays to give up: 100007");
  EXPECT_EQ(told, kMany + 1);
  EXPECT_EQ(cluster.Spec(session, 1), nullptr);
}

TEST_F(TurnsTest, ManyArraysAreWatchedInSeveralTurns) {
  MakeViews(kMany, /*ready=*/false);
  Bounded([&] {
    cluster.Watch(session, 9, handles_);
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_THAT(actions.lines, Not(Contains(StartsWith("s1 watched"))));
  Bounded([&] {
    cluster.ProvideUpload(NodeId(1), 0, absl::AbortedError("no bytes"));
    return true;
  });
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
  EXPECT_THAT(actions.lines, Contains(StartsWith("s1 watched 9: ABORTED: no bytes")));
}

TEST_F(TurnsTest, TheWatchesOfASessionThatEndsAreForgottenInSeveralTurns) {
  MakeViews(1, /*ready=*/false);
  for (uint64_t token = 1; token < 20000; ++token) cluster.Watch(session, token, {1});
  Bounded([&] {
    cluster.CloseSession(session);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
}

TEST_F(TurnsTest, TheErrorsOfManyResultsAreMadeInSeveralTurns) {
  handles_.resize(kMany);
  for (uint64_t i = 0; i < kMany; ++i) handles_[i] = i + 1;
  Bounded([&] {
    cluster.MakeErrors(session, handles_, absl::AbortedError("refused"));
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_NE(cluster.Spec(session, kMany), nullptr);
}

// Two islands of 800 devices. Rows lie on the one, columns are to lie on the other: each is made
// of a piece of each row.
class LargeTurnsTest : public TurnsTest {
 protected:
  static constexpr int kDevices = 800;
  void SetUp() override {
    TurnsTest::SetUp();
    rows_ = cluster.ExecutorUp(Worker("wc", "ic", kDevices)).value();
    columns_ = cluster.ExecutorUp(Worker("wd", "id", kDevices)).value();
    session = cluster.OpenSession("t").value();
    const auto put =
        cluster.Put(session, 1, Spec(4, {kDevices, 1}), std::vector<int32_t>(kDevices, 0));
    ASSERT_TRUE(put.ok()) << put.status();
    cluster.ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4 * kDevices)));
    while (Turn()) {
    }
    End(rows_, put->upload.value);
    actions.Take();
  }
  // On the devices from `first` on.
  static ArraySpec Spec(int32_t first, std::vector<int64_t> tiles) {
    std::vector<int32_t> devices(kDevices);
    std::vector<int64_t> tile_of(kDevices);
    for (int i = 0; i < kDevices; ++i) {
      devices[i] = first + i;
      tile_of[i] = i;
    }
    return {DType::kF32, Shape{{kDevices, kDevices}},
            Sharding::Tiled(devices, std::move(tiles), tile_of).value()};
  }
  void Reshard() {
    Bounded([&] {
      cluster.Reshard(session, {1},
                      {1,
                       [](size_t, const ArraySpec&) {
                         return Spec(4 + kDevices, {1, kDevices});
                       }},
                      CopySemantics::kReuseInput, {2}, Answer());
      return true;
    });
  }
  size_t Count(const std::string& begin) const {
    return static_cast<size_t>(
        std::count_if(actions.lines.begin(), actions.lines.end(), [&](const std::string& line) {
          return std::string_view(line).substr(0, begin.size()) == begin;
        }));
  }

  ExecutorId rows_, columns_;
};

TEST_F(LargeTurnsTest, AReshardOfManyPiecesIsMadeInSeveralTurns) {
  Reshard();
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "OK");
  while (Turn()) {
  }
  EXPECT_EQ(Count("e4 <- receive"), size_t{kDevices});
  EXPECT_EQ(Count("e3 <- send"), size_t{kDevices});
  // Nor does its end take long.
  cluster.Watch(session, 9, {2});
  Report report;
  for (const auto& [who, seq] : actions.seq) {
    if (who.first == columns_) report.finished.push_back(seq);
  }
  Bounded([&] {
    cluster.OnReport(columns_, Incarnation(7), report);
    return true;
  });
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
  EXPECT_EQ(Count("s3 watched 9: OK"), 1u);
}

TEST_F(LargeTurnsTest, AReshardWhoseSourceIsLostInTheMiddleFails) {
  Reshard();
  ExpectItGoesOnInTurns([&] { cluster.ExecutorLost(rows_, absl::UnavailableError("killed")); });
  EXPECT_EQ(answered_, "OK");
  cluster.Watch(session, 9, {2});
  while (Turn()) {
  }
  EXPECT_EQ(Count("s3 watched 9: DATA_LOSS: island ic: the executor of worker wc was lost"), 1u);
  EXPECT_EQ(cluster.counts().nodes, 2u);  // the neighbour's
}

TEST_F(LargeTurnsTest, AReshardWhoseTargetIsLostInTheMiddleWaitsForItsReturn) {
  Reshard();
  ExpectItGoesOnInTurns([&] { cluster.ExecutorLost(columns_, absl::UnavailableError("killed")); });
  EXPECT_EQ(answered_, "OK");
  while (Turn()) {
  }
  EXPECT_EQ(Count("e4 <- receive"), 0u);
  ASSERT_TRUE(cluster.ExecutorUp(Worker("wd", "id", kDevices)).ok());
  cluster.Tick(0);
  while (Turn()) {
  }
  EXPECT_EQ(Count("e4 <- receive"), size_t{kDevices});
}

TEST_F(LargeTurnsTest, ASessionThatEndsInTheMiddleOfAReshardLeavesNothing) {
  Reshard();
  for (int turns = 0; turns < 100; ++turns) Turn();
  ASSERT_TRUE(cluster.Busy(session));
  Bounded([&] {
    cluster.CloseSession(session);
    return true;
  });
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
