// SPDX-License-Identifier: Apache-2.0
// Lost executors, islands given up and memory taken back: no turn is long, neighbours are served
// meanwhile, and the answers are those of one long turn.
#include <algorithm>

#include "base/sanitized_for_test.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kChain = kSanitized ? 1500 : 5000;

TEST_F(TurnsTest, ALossIsHeardOfInSeveralTurnsAndNeighboursAreServedMeanwhile) {
  ASSERT_NO_FATAL_FAILURE(RunChain(kChain));
  Lose(a);
  ASSERT_TRUE(actions.turn_wanted);
  EXPECT_TRUE(cluster.sessions().Busy(session));
  ExpectTheNeighbourIsServed();
  EXPECT_TRUE(cluster.sessions().Busy(session));
  int turns = 0;
  for (; Turn(); ++turns) ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  EXPECT_GT(turns, kChain / 500);
  EXPECT_FALSE(cluster.sessions().Busy(session));
  EXPECT_THAT(actions.lines, Contains("s1 watched 9: DATA_LOSS: island ia: the executor of worker "
                                      "wa was lost: killed"));
}

TEST_F(TurnsTest, TheNextOperationOfASessionWithALossSeesAllOfIt) {
  ASSERT_NO_FATAL_FAILURE(RunChain(kChain));
  Lose(a);
  ASSERT_TRUE(cluster.sessions().Busy(session));
  cluster.arrays().Fetch(session, 5, 1);
  EXPECT_FALSE(cluster.sessions().Busy(session));
  EXPECT_THAT(actions.lines, Contains(StartsWith("s1 fetched 5: DATA_LOSS")));
}

// Otherwise a successor would be asked for bytes that only the lost incarnation had.
TEST_F(TurnsTest, ASuccessorGetsNothingBeforeAllHaveHeardOfTheLoss) {
  ASSERT_NO_FATAL_FAILURE(RunChain(kChain));
  const SessionId third = actions.Open(cluster);
  const uint64_t step = cluster.executables().Bind(third, 0, ExecutableId(1), {0}).value();
  Lose(a);
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).ok());
  const auto put =
      cluster.arrays().Put(third, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
  ASSERT_TRUE(cluster.executables().Execute(third, step, {1}, {}, {2}).ok());
  while (cluster.sessions().Busy(session)) {
    ASSERT_TRUE(Turn());
    if (cluster.sessions().Busy(session)) {
      ASSERT_THAT(actions.lines, Not(Contains(StartsWith("e1 <-"))));
    }
  }
  while (Turn()) {
  }
  EXPECT_THAT(actions.lines, Contains(StartsWith("e1 <- receive n")));
  EXPECT_THAT(actions.lines, Contains(StartsWith("e1 <- prepare n")));
}

TEST_F(TurnsTest, AnIslandIsGivenUpInSeveralTurns) {
  ASSERT_NO_FATAL_FAILURE(RunChain(10));
  Lose(a);
  while (Turn()) {
  }
  const uint64_t first = 100;
  ASSERT_TRUE(cluster.arrays()
                  .Put(session, first, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0})
                  .ok());
  for (uint64_t i = 0; i < kChain; ++i) {
    ASSERT_TRUE(
        cluster.executables().Execute(session, step_, {first + i}, {}, {first + i + 1}).ok());
    while (Turn()) {
    }
  }
  cluster.arrays().Watch(session, 8, {first + kChain});
  Bounded([&] {
    cluster.fleet().IslandGivenUp(IslandId(1), absl::UnavailableError("its machines are gone"));
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  while (Turn()) ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  EXPECT_THAT(actions.lines, Contains(StartsWith("s1 watched 8: UNAVAILABLE: island ia: ")));
}

// The older node's bytes came late; younger nodes have taken its memory and have not begun.
TEST_F(TurnsTest, RoomIsMadeForAnOlderNodeInSeveralTurnsAndNeighboursAreServedMeanwhile) {
  constexpr int64_t kSteps = kChain;
  Cluster small(AtOnce(), &actions);
  actions.cluster = &small;
  const ExecutorId first =
      small.fleet().ExecutorUp(Worker("wa", "ia", 1, 64 * (kSteps + 1))).value();
  ASSERT_TRUE(small.fleet().ExecutorUp(Worker("wb", "ib", 1)).ok());
  const SessionId mine = actions.Open(small), others = actions.Open(small);
  ExecutableSpec spec;
  spec.id = ExecutableId(1);
  spec.name = "f";
  spec.island = IslandId(1);
  spec.devices = {small.sessions().Devices(mine)[0].device};
  spec.parameters = spec.outputs = {F32({4})};
  small.executables().Define(spec);
  const uint64_t step = small.executables().Bind(others, 0, ExecutableId(1), {0}).value();
  const auto turn = [&] {
    if (!std::exchange(actions.turn_wanted, false)) return false;
    const uint64_t before = small.units();
    small.Turn();
    EXPECT_LE(small.units() - before, kMost);
    return true;
  };
  const auto put = [&](SessionId who, uint64_t handle, int32_t device, int64_t elements) {
    return small.arrays()
        .Put(who, handle, {DType::kF32, Shape{{elements}}, Sharding::SingleDevice(device)}, {0})
        ->upload;
  };
  const NodeId late = put(mine, 1, 0, 16 * kSteps);
  const NodeId input = put(others, 1, 0, 4);
  small.arrays().ProvideUpload(input, 0, BytesRef(Blob::Make(16)));
  for (uint64_t i = 1; i <= kSteps; ++i) {
    ASSERT_TRUE(small.executables().Execute(others, step, {1}, {}, {i + 1}).ok());
    while (turn()) {
    }
  }
  actions.Take();
  const uint64_t before = small.units();
  small.arrays().ProvideUpload(late, 0, BytesRef(Blob::Make(64 * kSteps)));
  EXPECT_LE(small.units() - before, kMost);
  ASSERT_TRUE(actions.turn_wanted);
  const NodeId there = put(mine, 2, 1, 4);
  small.arrays().ProvideUpload(there, 0, BytesRef(Blob::Make(16)));
  for (int turns = 0; turns < 3; ++turns) turn();
  const std::string served = fmt::format("e2 <- receive n{}", there);
  const std::string wanted = fmt::format("e1 <- receive n{}", late);
  EXPECT_THAT(actions.lines, Contains(StartsWith(served)));
  EXPECT_THAT(actions.lines, Not(Contains(StartsWith(wanted))));
  while (turn()) ASSERT_EQ(Describe(small.inspection().CheckInvariants()), "OK");
  EXPECT_THAT(actions.lines, Contains(StartsWith("e1 <- cancel n")));
  EXPECT_THAT(actions.lines, Contains(StartsWith(wanted)));
  // The younger node waits behind the older one, and fits again when that array is deleted.
  ASSERT_TRUE(small.arrays().Delete(mine, {1}).ok());
  Report report;
  report.finished = {actions.seq.at({first, late})};
  small.fleet().OnReport(first, Incarnation(7), report);
  while (turn()) {
  }
  EXPECT_EQ(small.fleet().Islands()[0].queued, 0u);
  EXPECT_EQ(small.fleet().Islands()[0].prepared, static_cast<size_t>(kSteps));
  actions.cluster = &cluster;
}

// Of several sessions that are due a tick judges one at least. Those whose work will free memory
// get another grace, which is over before the ticks have come to all others.
TEST(CutTurnsTest, SessionsThatAreDueAgainKeepNobodyFromBeingJudged) {
  constexpr uint64_t kBusy = 5;
  Recorder actions;
  ClusterOptions options;
  options.turn_units = 1;
  Cluster cluster(options, &actions);
  actions.cluster = &cluster;
  const auto turns = [&] {
    while (std::exchange(actions.turn_wanted, false)) cluster.Turn();
  };
  const ExecutorId a = cluster.fleet().ExecutorUp(Worker("wa", "ia", kBusy, 1024)).value();
  const ExecutorId b = cluster.fleet().ExecutorUp(Worker("wb", "ib", 1, 1024)).value();
  uint64_t codes = 0;
  const auto run = [&](SessionId session, int32_t device, int64_t elements, uint64_t result) {
    ExecutableSpec spec;
    spec.id = ExecutableId(++codes);
    spec.name = "f";
    spec.island = IslandId(device < static_cast<int32_t>(kBusy) ? 1 : 2);
    spec.devices = {cluster.sessions().Devices(session)[device].device};
    spec.outputs = {F32({elements})};
    cluster.executables().Define(spec);
    const uint64_t code = cluster.executables().Bind(session, 0, spec.id, {device}).value();
    ASSERT_TRUE(cluster.executables().Execute(session, code, {}, {}, {result}).ok());
    turns();
    Report installed;
    installed.installed.push_back({spec.id, absl::OkStatus()});
    cluster.fleet().OnReport(spec.island == IslandId(1) ? a : b, Incarnation(7), installed);
    turns();
  };
  for (uint64_t i = 0; i < kBusy; ++i) {
    const SessionId session = actions.Open(cluster);
    run(session, static_cast<int32_t>(i), 200, 1);  // is under way for ever
    run(session, static_cast<int32_t>(i), 200, 2);
  }
  const SessionId stuck = actions.Open(cluster);
  run(stuck, kBusy, 200, 1);
  Report ended;
  ended.finished = {actions.seq.at({b, NodeId(2 * kBusy + 1)})};
  cluster.fleet().OnReport(b, Incarnation(7), ended);
  turns();
  run(stuck, kBusy, 200, 2);
  cluster.arrays().Watch(stuck, 7, {2});
  std::string told;
  for (int64_t now = 0; now < 20'000; now += 500) {
    cluster.Tick(now);
    turns();
    for (const std::string& line : actions.Take()) told += line + "\n";
  }
  EXPECT_THAT(told, testing::HasSubstr("watched 7: RESOURCE_EXHAUSTED"));
}

// A turn may end between a failure and its consequences, and islands launch in between.
TEST(CutTurnsTest, NothingIsLaunchedBeforeItHasHeardHowItsInputsEnded) {
  Recorder actions;
  ClusterOptions options;
  options.turn_units = 1;
  Cluster cluster(options, &actions);
  actions.cluster = &cluster;
  const auto turns = [&] {
    while (std::exchange(actions.turn_wanted, false)) cluster.Turn();
  };
  const ExecutorId a = cluster.fleet().ExecutorUp(Worker("wa", "ia", 1)).value();
  const SessionId session = actions.Open(cluster);
  ExecutableSpec spec;
  spec.id = ExecutableId(1);
  spec.name = "f";
  spec.island = IslandId(1);
  spec.devices = {cluster.sessions().Devices(session)[0].device};
  spec.parameters = spec.outputs = {F32({4})};
  cluster.executables().Define(spec);
  const uint64_t step = cluster.executables().Bind(session, 0, ExecutableId(1), {0}).value();
  const ArraySpec type{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  const NodeId late = cluster.arrays().Put(session, 1, type, {0})->upload;
  ASSERT_TRUE(cluster.executables().Execute(session, step, {1}, {}, {2}).ok());
  turns();
  Report installed;
  installed.installed.push_back({ExecutableId(1), absl::OkStatus()});
  cluster.fleet().OnReport(a, Incarnation(7), installed);
  turns();
  cluster.arrays().ProvideUpload(late, 0, absl::AbortedError("no bytes"));
  for (uint64_t handle = 10; handle < 60; ++handle) {
    if (std::exchange(actions.turn_wanted, false)) cluster.Turn();
    ASSERT_TRUE(cluster.executables().Execute(session, step, {2}, {}, {handle}).ok());
  }
  turns();
  EXPECT_THAT(actions.lines, Not(Contains(::testing::HasSubstr("<- launch"))));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

// It takes no walk over the queues of other sessions.
TEST_F(ClusterTest, WhatRunsIsAskedFirstWhetherItFreesMemory) {
  constexpr uint64_t kSteps = 2 * kChain;
  Start(64 * 2 * kSteps);
  const uint64_t step = Define(1, {0}, {F32({4})}, {F32({4})});
  Define(2, {2}, {F32({4})}, {F32({4})}, /*temp=*/80 * kSteps);
  ASSERT_TRUE(cluster.arrays()
                  .Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0})
                  .ok());
  for (uint64_t i = 1; i <= kSteps; ++i) {
    ASSERT_TRUE(cluster.executables().Execute(session, step, {1}, {}, {i + 1}).ok());
    RunTurns();
  }
  session = actions.Open(cluster);
  const uint64_t big = cluster.executables().Bind(session, 0, ExecutableId(2), {2}).value();
  PutReady(1, 2);
  const auto first = cluster.executables().Execute(session, big, {1}, {}, {2});
  Installed(b, 2);
  ASSERT_TRUE(cluster.executables().Execute(session, big, {1}, {}, {3}).ok());
  ASSERT_EQ(cluster.fleet().Islands()[1].queued, 1u);
  cluster.Tick(0);
  const uint64_t before = cluster.units();
  cluster.Tick(5000);
  EXPECT_LE(cluster.units() - before, kMost);
  EXPECT_EQ(cluster.fleet().Islands()[1].given_up, 0u);
  End(b, first->node.value);
  EXPECT_EQ(cluster.fleet().Islands()[1].queued, 0u);
}

// A client gets the same answers about a loss, however long a turn is.
TEST(LossTest, AnswersDoNotDependOnTheLengthOfTurns) {
  const auto run = [](uint64_t turn_units) {
    Recorder actions;
    ClusterOptions options;
    options.turn_units = turn_units;
    options.stored_array_bytes = -1;  // an upload is on its devices at once, and can be lost
    Cluster cluster(options, &actions);
    actions.cluster = &cluster;
    const auto turns = [&] {
      while (std::exchange(actions.turn_wanted, false)) {
        cluster.Turn();
        EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
      }
    };
    ExecutorSpec specs[] = {Worker("wa", "ia", 1), Worker("wc", "ia", 1), Worker("wb", "ib", 1)};
    specs[0].island_workers = specs[1].island_workers = 2;
    ExecutorId ids[3];
    for (int i = 0; i < 3; ++i) ids[i] = cluster.fleet().ExecutorUp(specs[i]).value();
    const SessionId session = actions.Open(cluster);
    const auto define = [&](uint64_t id, std::vector<int32_t> devices) {
      ExecutableSpec spec;
      spec.id = ExecutableId(id);
      spec.name = fmt::format("f{}", id);
      spec.island = cluster.sessions().IslandOf(session, devices).value();
      for (const int32_t d : devices)
        spec.devices.push_back(cluster.sessions().Devices(session)[d].device);
      spec.parameters = spec.outputs = {F32({4})};
      cluster.executables().Define(std::move(spec));
      return cluster.executables().Bind(session, 0, ExecutableId(id), devices).value();
    };
    const uint64_t on_a = define(1, {0}), on_c = define(2, {1}), on_b = define(3, {2}),
                   gang = define(4, {0, 1});
    // Arrays 1, 2 and 3 are on wa, on wc and on both. 4 will be on wa once its bytes come.
    const std::vector<std::vector<int32_t>> places = {{0}, {1}, {0, 1}, {0}};
    std::vector<NodeId> uploads;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto put = cluster.arrays().Put(
          session, i + 1, {DType::kF32, Shape{{4}}, Sharding::Replicated(places[i])},
          std::vector<int32_t>(places[i].size(), 0));
      uploads.push_back(put->upload);
      if (i < 3) cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
    }
    turns();
    const auto end = [&](int executor, NodeId node, absl::Status status = absl::OkStatus()) {
      const auto seq = actions.seq.find({ids[executor], node});
      if (seq == actions.seq.end()) return;
      const auto sent = [&](std::string_view what) {
        const std::string line = fmt::format("e{} <- {} n{} ", ids[executor], what, node);
        return std::any_of(actions.lines.begin(), actions.lines.end(),
                           [&](const std::string& l) { return l.starts_with(line); });
      };
      if (!sent("receive") && !sent("launch")) return;
      Report report;
      report.finished = {seq->second};
      if (!status.ok()) report.failures.push_back({seq->second, status});
      cluster.fleet().OnReport(ids[executor], Incarnation(7), report);
    };
    for (const int32_t i : {0, 2}) end(0, uploads[i]);
    for (const int32_t i : {1, 2}) end(1, uploads[i]);
    turns();
    const auto execute = [&](uint64_t code, uint64_t in, uint64_t out) {
      EXPECT_TRUE(cluster.executables().Execute(session, code, {in}, {}, {out}).ok());
    };
    const auto copy = [&](uint64_t in, int32_t device, uint64_t out) {
      EXPECT_TRUE(cluster.arrays()
                      .Copy(session, {in}, std::vector<int32_t>{device}, std::nullopt,
                            CopySemantics::kReuseInput, {out})
                      .ok());
    };
    execute(gang, 3, 10);  // launched on both
    for (uint64_t i = 0; i < 20; ++i) execute(on_a, i == 0 ? 1 : 10 + i, 11 + i);
    for (uint64_t i = 0; i < 20; ++i) execute(on_c, i == 0 ? 2 : 40 + i, 41 + i);
    execute(gang, 10, 70);
    copy(1, 2, 71);
    copy(2, 2, 72);
    copy(30, 2, 73);  // what wa makes last
    execute(on_b, 71, 74);
    execute(on_b, 72, 75);
    execute(on_a, 4, 76);
    copy(76, 2, 77);
    cluster.arrays().Fetch(session, 100, 1);
    for (uint64_t handle = 1; handle < 80; ++handle)
      cluster.arrays().Watch(session, handle, {handle});
    turns();
    Report installed;
    for (const uint64_t id : {1, 2, 3, 4})
      installed.installed.push_back({ExecutableId(id), absl::OkStatus()});
    for (const ExecutorId id : ids) cluster.fleet().OnReport(id, Incarnation(7), installed);
    turns();
    cluster.fleet().ExecutorLost(ids[0], absl::UnavailableError("killed"));
    std::erase_if(actions.seq, [&](const auto& entry) { return entry.first.first == ids[0]; });
    EXPECT_TRUE(cluster.fleet().ExecutorUp(specs[0]).ok());
    cluster.arrays().ProvideUpload(uploads[3], 0, BytesRef(Blob::Make(16)));
    // Everything that can end ends.
    for (int round = 0; round < 100; ++round) {
      turns();
      cluster.Tick(round);
      turns();
      for (const ExecutorId id : ids) cluster.fleet().OnReport(id, Incarnation(7), installed);
      const auto open = actions.seq;
      for (const auto& [who, seq] : open) {
        const int executor = static_cast<int>(std::find(ids, ids + 3, who.first) - ids);
        end(executor, who.second,
            executor == 1 && round == 0 ? absl::UnavailableError("a peer went away")
                                        : absl::OkStatus());
      }
    }
    EXPECT_THAT(cluster.inspection().Unfinished(), ::testing::IsEmpty());
    Lines answers;
    for (const std::string& line : actions.lines) {
      if (line.starts_with("s1 ")) answers.push_back(line);
    }
    std::sort(answers.begin(), answers.end());
    return answers;
  };
  const Lines whole = run(UINT64_MAX / 2);
  EXPECT_EQ(whole.size(), 80u);
  EXPECT_THAT(whole, Contains(StartsWith("s1 watched 77: OK")));
  EXPECT_THAT(whole, Contains(StartsWith("s1 watched 30: DATA_LOSS")));
  EXPECT_THAT(whole, Contains(StartsWith("s1 fetched 100: DATA_LOSS")));
  for (const uint64_t units : {1, 7, 50}) {
    const Lines cut = run(units);
    Lines differ;
    std::set_symmetric_difference(cut.begin(), cut.end(), whole.begin(), whole.end(),
                                  std::back_inserter(differ));
    EXPECT_THAT(differ, ::testing::IsEmpty());
  }
}

// Each registration counts its commands from 1, so the number alone does not say whose end it is.
TEST_F(ShortTurnsTest, AnEndThatWasReportedBeforeALossIsNotThatOfTheNextAttempt) {
  Start();
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  const auto put = cluster.arrays().Put(session, 1, spec, {0});
  ASSERT_TRUE(put.ok());
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  RunTurns();
  ASSERT_EQ(actions.seq.at({a, put->upload}), 1u);
  // The end of the upload waits behind the loading of the program when the executor is lost.
  Report report;
  report.installed.push_back({ExecutableId(1), absl::OkStatus()});
  report.finished = {1};
  cluster.fleet().OnReport(a, Incarnation(7), report);
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  ExecutorSpec again = Worker("wa", "ia", 2);
  again.incarnation = Incarnation(8);
  ASSERT_TRUE(cluster.fleet().ExecutorUp(again).ok());
  cluster.arrays().Watch(session, 9, {1});
  RunTurns();
  ASSERT_EQ(actions.seq.at({a, put->upload}), 1u);
  EXPECT_THAT(actions.Take(), Not(Contains(StartsWith("s1 watched 9"))));
  cluster.fleet().OnReport(a, Incarnation(8), {.finished_through = 1});
  RunTurns();
  EXPECT_THAT(actions.Take(), Contains("s1 watched 9: OK"));
}

}  // namespace
}  // namespace fairway
