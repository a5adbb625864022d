// SPDX-License-Identifier: Apache-2.0
// No operation and no turn is long, whatever one session has made necessary, and its neighbours are
// served meanwhile. Work is counted in units, not in time.
#include <algorithm>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kSteps = kSanitized ? 200 : 1000;
constexpr uint64_t kMany = kSanitized ? 12000 : 100000;
constexpr uint64_t kCopied = kSanitized ? 5000 : 100000;
constexpr int kSome = kSanitized ? 1000 : 20000;

TEST_F(TurnsTest, ALongProgramIsMadeInSeveralTurnsAndNeighboursAreServedMeanwhile) {
  PutReady(1, 0);
  const uint64_t program = BindLongProgram(kSteps);
  while (Turn()) {
  }
  const auto run = Bounded([&] {
    return cluster.programs().Run(session, program, {1}, {{}, 7}, {2});
  });
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(cluster.sessions().Busy(session));
  ExpectTheNeighbourIsServed();
  EXPECT_TRUE(cluster.sessions().Busy(session));
  int turns = 0;
  while (cluster.sessions().Busy(session)) {
    ASSERT_TRUE(Turn());
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    ++turns;
  }
  EXPECT_GT(turns, 3);
  EXPECT_NE(cluster.arrays().Spec(session, 2), nullptr);
}

TEST_F(TurnsTest, AWatchOfAProgramsResultsBeginsWhenTheyAreThere) {
  PutReady(1, 0);
  const uint64_t program = BindLongProgram(kSteps);
  while (Turn()) {
  }
  ExecuteOptions options;
  options.watch_results = 7;
  ASSERT_TRUE(
      Bounded([&] { return cluster.programs().Run(session, program, {1}, options, {2}); }).ok());
  EXPECT_TRUE(cluster.sessions().Busy(session));
  while (cluster.sessions().Busy(session)) ASSERT_TRUE(Turn());
  EXPECT_THAT(actions.Take(), Not(Contains(StartsWith("s1 watched"))));
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  while (Turn()) {
  }
  EXPECT_THAT(actions.Take(), Contains(StartsWith("s1 watched 7: ")));
}

// An argument and a transfer turn rows into columns, so that each of 256 devices takes a piece from
// every other.
TEST_F(TurnsTest, AProgramsReshardsOfManyPiecesAreMadeInSeveralTurns) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  constexpr int32_t kDevices = 256;
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wc", "ic", kDevices)).ok());
  session = actions.Open(cluster);
  std::vector<int32_t> here, positions;
  std::vector<int64_t> tile_of;
  for (int32_t i = 0; i < kDevices; ++i) {
    here.push_back(4 + i);
    positions.push_back(i);
    tile_of.push_back(i);
  }
  const Shape shape{{kDevices, kDevices}};
  const Sharding rows = Sharding::Tiled(here, {kDevices, 1}, tile_of).value();
  ASSERT_TRUE(cluster.arrays().Put(session, 1, {DType::kF32, shape, rows}, positions).ok());
  Program program;
  program.name = "wide";
  program.slices = {{"c", kDevices}};
  program.graphs.resize(1);
  const auto cut = [&](std::vector<int64_t> tiles) {
    return ArraySpec{DType::kF32, shape, Sharding::Tiled(positions, tiles, tile_of).value()};
  };
  program.graphs[0].nodes = {{"", "", ArgumentNode{{0, cut({1, kDevices})}}},
                             {"", "", ArgumentNode{{0, cut({kDevices, 1})}}},
                             {"", "", TransferNode{{1, 0}, {0, cut({1, kDevices})}}}};
  program.graphs[0].results = {{0, 0}, {2, 0}};
  const auto plan = Lower(program, *CheckProgram(program), {{0}, {}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto bound = cluster.programs().Bind(session, 0, {"wide", *plan, {here}, false});
  ASSERT_TRUE(bound.ok()) << bound.status();
  while (Turn()) {
  }
  ASSERT_TRUE(Bounded([&] {
                return cluster.programs().Run(session, *bound, {1, 1}, {}, {2, 3});
              }).ok());
  EXPECT_TRUE(cluster.sessions().Busy(session));
  ExpectTheNeighbourIsServed();
  int turns = 0;
  for (; cluster.sessions().Busy(session); ++turns) {
    ASSERT_TRUE(Turn());
    if (turns % 16 == 0) {
      ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    }
  }
  EXPECT_GT(turns, 20);
  EXPECT_NE(cluster.arrays().Spec(session, 3), nullptr);
  // The second run is under way when its session ends.
  ASSERT_TRUE(cluster.programs().Run(session, *bound, {1, 1}, {}, {4, 5}).ok());
  for (int i = 0; i < 60; ++i) Turn();
  ASSERT_TRUE(cluster.sessions().Busy(session));
  cluster.sessions().Close(session);
  while (Turn()) {
  }
  EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
}

// There are more busy sessions than get a slice in one turn.
TEST_F(TurnsTest, ManyBusySessionsDoNotKeepIslandsFromTheirTurn) {
  if (kSanitized) GTEST_SKIP() << kTooLarge;
  std::vector<std::pair<SessionId, uint64_t>> programs;
  for (int s = 0; s < 12; ++s) {
    session = actions.Open(cluster);
    PutReady(1, 0);
    programs.emplace_back(session, BindLongProgram(kSteps));
    while (Turn()) {
    }
  }
  for (const auto& [who, program] : programs)
    ASSERT_TRUE(cluster.programs().Run(who, program, {1}, {}, {2}).ok());
  ExpectTheNeighbourIsServed();
  EXPECT_TRUE(cluster.sessions().Busy(session));
}

TEST_F(TurnsTest, TheNextOperationOfABusySessionFindsWhatTheLongOneMakes) {
  PutReady(1, 0);
  const uint64_t program = BindLongProgram(kSteps);
  ASSERT_TRUE(cluster.programs().Run(session, program, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.sessions().Busy(session));
  EXPECT_TRUE(cluster.executables().Execute(session, step_, {1}, {}, {3}).ok());
  EXPECT_FALSE(cluster.sessions().Busy(session));
  EXPECT_NE(cluster.arrays().Spec(session, 2), nullptr);
}

TEST_F(TurnsTest, ASessionThatEndsInTheMiddleOfALongProgramLeavesNothing) {
  PutReady(1, 0);
  const uint64_t program = BindLongProgram(kSteps);
  ASSERT_TRUE(cluster.programs().Run(session, program, {1}, {{}, 7}, {2}).ok());
  ASSERT_TRUE(cluster.sessions().Busy(session));
  Bounded([&] {
    cluster.sessions().Close(session);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  cluster.sessions().Close(other_);
  while (Turn()) {
  }
  EXPECT_EQ(cluster.inspection().counts().arrays, 0u);
}

TEST_F(TurnsTest, WhatFailsWithAnUploadFailsInSeveralTurnsAndNeighboursAreServedMeanwhile) {
  constexpr uint64_t kSteps = kSanitized ? 2000 : 5000;
  const auto put =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  ASSERT_TRUE(put.ok());
  // All computations read the upload, and each reads the one before it.
  for (uint64_t i = 1; i <= kSteps; ++i) {
    ASSERT_TRUE(
        cluster.executables().Execute(session, step_, {i % 2 == 0 ? i : 1}, {}, {i + 1}).ok());
    while (Turn()) {
    }
  }
  cluster.arrays().Watch(session, 9, {kSteps + 1});
  Bounded([&] {
    cluster.arrays().ProvideUpload(put->upload, 0, absl::AbortedError("no bytes"));
    return true;
  });
  ASSERT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  ASSERT_TRUE(actions.turn_wanted);
  while (Turn()) ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  EXPECT_THAT(actions.lines, Contains(StartsWith("s1 watched 9: ABORTED: no bytes")));
}

// Earlier they went back in one piece, of 48,147 units for 6,000.
TEST_F(TurnsTest, WhatReadsAReceiveThatFailsIsTakenBackInSeveralTurns) {
  constexpr uint64_t kReaders = kSanitized ? 2000 : 6000;
  PutReady(1, 0);
  ASSERT_TRUE(cluster.executables().Execute(session, step_, {1}, {}, {2}).ok());
  while (Turn()) {
  }
  NodeId launch;
  for (const auto& [key, seq] : actions.seq) launch = std::max(launch, key.second);
  Installed(a, 1);
  const auto copy = [&](uint64_t from, int32_t device, uint64_t to) {
    ASSERT_TRUE(
        cluster.arrays()
            .Copy(session, {from}, {{device}}, std::nullopt, CopySemantics::kAlwaysCopy, {to})
            .ok());
    while (Turn()) {
    }
  };
  copy(2, 2, 3);
  for (uint64_t i = 1; i <= kReaders; ++i) copy(3, 1, 3 + i);
  cluster.arrays().Watch(session, 9, {3 + kReaders});
  actions.Take();
  Bounded([&] {
    End(a, launch.value, absl::UnknownError("boom"));
    return true;
  });
  ASSERT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  EXPECT_THAT(actions.lines, Contains(StartsWith("s1 watched 9: UNKNOWN")));
}

TEST_F(TurnsTest, ASessionThatEndsIsGivenUpInSeveralTurns) {
  PutReady(1, 0);
  for (uint64_t i = 2; i < 6000; ++i)
    ASSERT_TRUE(cluster.arrays()
                    .Assemble(session, *cluster.arrays().Spec(session, 1), {1},
                              CopySemantics::kReuseInput, i)
                    .ok());
  Bounded([&] {
    cluster.sessions().Close(session);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
  cluster.sessions().Close(other_);
  while (Turn()) {
  }
  EXPECT_EQ(cluster.inspection().counts().arrays, 0u);
}

TEST_F(TurnsTest, ManyArraysAreCopiedInSeveralTurns) {
  MakeViews(kCopied);
  Bounded([&] {
    cluster.arrays().Copy(session, handles_, {{1}}, std::nullopt, CopySemantics::kAlwaysCopy, Out(),
                          Answer());
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "OK");
  EXPECT_EQ(results_, kCopied);
  EXPECT_NE(cluster.arrays().Spec(session, Out().back()), nullptr);
}

TEST_F(TurnsTest, ACopyOfManyArraysIsRefusedWhole) {
  MakeViews(kCopied);
  handles_.push_back(kCopied + 7);
  Bounded([&] {
    cluster.arrays().Copy(session, handles_, {{1}}, std::nullopt, CopySemantics::kDonateInput,
                          Out(), Answer());
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_THAT(answered_, StartsWith(fmt::format("NOT_FOUND: there is no array {}", kCopied + 7)));
  EXPECT_EQ(cluster.arrays().Spec(session, Out().front()), nullptr);
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 1));
  EXPECT_EQ(cluster.inspection().counts().nodes, 2u);  // the neighbour's
}

TEST_F(TurnsTest, ASessionThatEndsInTheMiddleOfALongCopyLeavesNothing) {
  for (const int turns : {0, 20, kSome / 100, kSome / 50}) {
    session = actions.Open(cluster);
    MakeViews(kSome);
    answered_.clear();
    cluster.arrays().Copy(session, handles_, {{1}}, std::nullopt, CopySemantics::kAlwaysCopy, Out(),
                          Answer());
    for (int t = 0; t < turns && cluster.sessions().Busy(session); ++t) Turn();
    Bounded([&] {
      cluster.sessions().Close(session);
      return true;
    });
    ExpectTheNeighbourIsServed();
    while (Turn()) {
    }
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  cluster.sessions().Close(other_);
  while (Turn()) {
  }
  EXPECT_EQ(cluster.inspection().counts().arrays, 0u);
}

TEST_F(TurnsTest, ManyArraysAreDeletedInSeveralTurns) {
  MakeViews(kMany);
  Bounded([&] {
    cluster.arrays().Delete(session, handles_,
                            [&](absl::Status ended) { answered_ = Describe(ended); });
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, "OK");
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, kMany));
}

TEST_F(TurnsTest, ManyArraysAreGivenUpInSeveralTurns) {
  MakeViews(kMany);
  handles_.push_back(kMany + 7);
  uint64_t told = 0;
  Bounded([&] {
    cluster.arrays().Destruct(
        session, handles_, [&](absl::Status ended) { answered_ = Describe(ended); },
        [&](uint64_t) { ++told; });
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_EQ(answered_, fmt::format("NOT_FOUND: no such arrays to give up: {}", kMany + 7));
  EXPECT_EQ(told, kMany + 1);
  EXPECT_EQ(cluster.arrays().Spec(session, 1), nullptr);
}

TEST_F(TurnsTest, ManyArraysAreWatchedInSeveralTurns) {
  MakeViews(kMany, /*ready=*/false);
  Bounded([&] {
    cluster.arrays().Watch(session, 9, handles_);
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_THAT(actions.lines, Not(Contains(StartsWith("s1 watched"))));
  Bounded([&] {
    cluster.arrays().ProvideUpload(NodeId(1), 0, absl::AbortedError("no bytes"));
    return true;
  });
  // All are views of one group, which knows the watch once.
  EXPECT_THAT(actions.lines, Contains(StartsWith("s1 watched 9: ABORTED: no bytes")));
  ExpectTheNeighbourIsServed();
}

TEST_F(TurnsTest, TheWatchesOfASessionThatEndsAreForgottenInSeveralTurns) {
  MakeViews(1, /*ready=*/false);
  for (uint64_t token = 1; token < uint64_t{kSome}; ++token)
    cluster.arrays().Watch(session, token, {1});
  Bounded([&] {
    cluster.sessions().Close(session);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
}

TEST_F(TurnsTest, AnAnswerMayCallTheCoreWhoseAnswersComeAfterIt) {
  PutReady(1, 0);
  actions.on_watched = [&] {
    cluster.arrays().Watch(session, 8, {99});
    EXPECT_TRUE(cluster.executables().Execute(session, step_, {1}, {}, {2}).ok());
    EXPECT_TRUE(cluster.arrays().Destruct(session, {1}).ok());
    actions.lines.push_back("asked");
  };
  cluster.arrays().Watch(session, 7, {98});
  EXPECT_THAT(actions.lines,
              ::testing::IsSupersetOf({::testing::StartsWith("s1 watched 7: NOT_FOUND"),
                                       ::testing::StartsWith("s1 watched 8: NOT_FOUND")}));
  EXPECT_THAT(actions.lines.back(), ::testing::StartsWith("s1 watched 8: NOT_FOUND"));
  EXPECT_EQ(*std::prev(actions.lines.end(), 2), "asked");
  actions.Take();
}

// A session that ends while it handles an answer gets no further answer.
TEST_F(TurnsTest, ASessionThatEndsInAnAnswerGetsNoOther) {
  actions.on_watched = [&] {
    cluster.arrays().Watch(session, 8, {99});
    cluster.sessions().Close(session);
  };
  cluster.arrays().Watch(session, 7, {98});
  EXPECT_THAT(actions.Take(), ::testing::ElementsAre(::testing::HasSubstr("watched 7")));
}

TEST_F(TurnsTest, TheErrorsOfManyResultsAreMadeInSeveralTurns) {
  constexpr uint64_t kErrors = kSanitized ? 20000 : kMany;
  handles_.resize(kErrors);
  for (uint64_t i = 0; i < kErrors; ++i) handles_[i] = i + 1;
  Bounded([&] {
    cluster.arrays().MakeErrors(session, handles_, absl::AbortedError("refused"));
    return true;
  });
  ExpectItGoesOnInTurns([] {});
  EXPECT_NE(cluster.arrays().Spec(session, kErrors), nullptr);
}

// Two islands of many devices. Rows lie on one, columns are to lie on the other: each column is
// made of a piece of each row.
class LargeTurnsTest : public TurnsTest {
 protected:
  static constexpr int kDevices = 800;
  void SetUp() override {
    TurnsTest::SetUp();
    if (kSanitized) GTEST_SKIP() << "with a sanitizer the simulation makes such reshards";
    rows_ = cluster.fleet().ExecutorUp(Worker("wc", "ic", kDevices)).value();
    columns_ = cluster.fleet().ExecutorUp(Worker("wd", "id", kDevices)).value();
    session = actions.Open(cluster);
    const auto put =
        cluster.arrays().Put(session, 1, Spec(4, {kDevices, 1}), std::vector<int32_t>(kDevices, 0));
    ASSERT_TRUE(put.ok()) << put.status();
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4 * kDevices)));
    while (Turn()) {
    }
    End(rows_, put->upload.value);
    actions.Take();
  }
  // An array on the devices from `first` on.
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
      cluster.arrays().Reshard(session, {1},
                               {1,
                                [](size_t, const ArraySpec&) {
                                  return Spec(4 + kDevices, {1, kDevices});
                                }},
                               CopySemantics::kReuseInput, {2}, Answer());
      return true;
    });
  }
  // Loses the executor once all nodes are prepared.
  void LosePrepared(ExecutorId executor) {
    Reshard();
    while (Turn()) {
    }
    ASSERT_EQ(Count("e4 <- receive"), size_t{kDevices});
    Lose(executor);
    EXPECT_TRUE(cluster.sessions().Busy(session));
    ExpectTheNeighbourIsServed();
    EXPECT_TRUE(cluster.sessions().Busy(session));
    while (Turn()) {
    }
    EXPECT_FALSE(cluster.sessions().Busy(session));
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
  // The end of the session does not take long either.
  cluster.arrays().Watch(session, 9, {2});
  Report report;
  for (const auto& [who, seq] : actions.seq) {
    if (who.first == columns_) report.finished.push_back(seq);
  }
  Bounded([&] {
    cluster.fleet().OnReport(columns_, Incarnation(7), report);
    return true;
  });
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
  EXPECT_EQ(Count("s3 watched 9: OK"), 1u);
}

TEST_F(LargeTurnsTest, AReshardWhoseSourceIsLostInTheMiddleFails) {
  Reshard();
  ExpectItGoesOnInTurns(
      [&] { cluster.fleet().ExecutorLost(rows_, absl::UnavailableError("killed")); });
  EXPECT_EQ(answered_, "OK");
  cluster.arrays().Watch(session, 9, {2});
  while (Turn()) {
  }
  EXPECT_EQ(Count("s3 watched 9: DATA_LOSS: island ic: the executor of worker wc was lost"), 1u);
  EXPECT_EQ(cluster.inspection().counts().nodes, 2u);  // the neighbour's
}

TEST_F(LargeTurnsTest, AReshardWhoseTargetIsLostInTheMiddleWaitsForItsReturn) {
  Reshard();
  ExpectItGoesOnInTurns(
      [&] { cluster.fleet().ExecutorLost(columns_, absl::UnavailableError("killed")); });
  EXPECT_EQ(answered_, "OK");
  while (Turn()) {
  }
  EXPECT_EQ(Count("e4 <- receive"), 0u);
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wd", "id", kDevices)).ok());
  cluster.Tick(0);
  while (Turn()) {
  }
  EXPECT_EQ(Count("e4 <- receive"), size_t{kDevices});
}

TEST_F(LargeTurnsTest, TheLossOfTheSourceOfManyPiecesIsHeardOfInSeveralTurns) {
  LosePrepared(rows_);
  cluster.arrays().Watch(session, 9, {2});
  EXPECT_EQ(Count("s3 watched 9: DATA_LOSS"), 1u);
}

TEST_F(LargeTurnsTest, TheLossOfTheTargetOfManyPiecesIsHeardOfInSeveralTurns) {
  LosePrepared(columns_);
  actions.Take();
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wd", "id", kDevices)).ok());
  cluster.Tick(0);
  while (Turn()) {
  }
  EXPECT_EQ(Count("e4 <- receive"), size_t{kDevices});
}

TEST_F(LargeTurnsTest, ASessionThatEndsInTheMiddleOfAReshardLeavesNothing) {
  Reshard();
  for (int turns = 0; turns < 100; ++turns) Turn();
  ASSERT_TRUE(cluster.sessions().Busy(session));
  Bounded([&] {
    cluster.sessions().Close(session);
    return true;
  });
  ExpectTheNeighbourIsServed();
  while (Turn()) {
  }
  cluster.sessions().Close(other_);
  while (Turn()) {
  }
  EXPECT_EQ(cluster.inspection().counts().arrays, 0u);
}

// One report may tell more ends than one turn handles.
TEST_F(TurnsTest, TheEndsOfManyLaunchesAreHeardInSeveralTurns) {
  PutReady(1, 0);
  Installed(a, 1);
  Report report;
  for (uint64_t i = 0; i < 3000; ++i) {
    const auto run = cluster.executables().Execute(session, step_, {1}, {}, {i + 2});
    ASSERT_TRUE(run.ok());
    while (Turn()) {
    }
    if (i == 0) Installed(a, 1);
  }
  for (const auto& [who, seq] : actions.seq) {
    if (who.first == a) report.finished.push_back(seq);
  }
  Bounded([&] {
    cluster.fleet().OnReport(a, Incarnation(7), report);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
}

}  // namespace
}  // namespace fairway
