// SPDX-License-Identifier: Apache-2.0
// One event that touches very much: no turn does it all.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <numeric>
#include <utility>

#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::StartsWith;

constexpr uint64_t kWide = kSanitized ? 6000 : 20000;

class WideTest : public TurnsTest {
 protected:
  // Puts an array on device 0 whose bytes its executor has not taken yet.
  NodeId PutPending(uint64_t handle) {
    const auto put = cluster.arrays().Put(
        session, handle, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
    return put->upload;
  }
  void Turns() {
    while (Turn()) {
    }
  }
  void Close() {
    Bounded([&] {
      cluster.sessions().Close(session);
      return true;
    });
    Turns();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  void Tick(int64_t now_ms) {
    Bounded([&] {
      cluster.Tick(now_ms);
      return true;
    });
  }
};

TEST_F(WideTest, AnUploadThatManyFetchesWaitForIsGivenUpInSeveralTurns) {
  PutPending(1);
  for (uint64_t token = 1; token <= kWide; ++token) {
    cluster.arrays().Fetch(session, token, 1);
    Turns();
  }
  Close();
}

// Copies of a result that is not made yet, to another island.
TEST_F(WideTest, ALaunchThatManyReceivesWaitForIsTakenBackInSeveralTurns) {
  PutPending(1);
  ASSERT_TRUE(cluster.executables().Execute(session, step_, {1}, {}, {2}).ok());
  Installed(a, 1);
  for (uint64_t i = 0; i < kWide; ++i) {
    cluster.arrays().Copy(session, {2}, {{2}}, std::nullopt, CopySemantics::kAlwaysCopy, {3 + i},
                          [](const auto&) {});
    Turns();
  }
  actions.Take();
  Lose(a);
  Turns();
}

TEST_F(WideTest, ManyPullsThatFailedEndInSeveralTurns) {
  PutReady(1, 0);
  for (uint64_t i = 0; i < kWide; ++i) {
    cluster.arrays().Copy(session, {1}, {{2}}, std::nullopt, CopySemantics::kAlwaysCopy, {3 + i},
                          [](const auto&) {});
    Turns();
  }
  Report report;
  for (const auto& [who, seq] : actions.seq) {
    if (who.first != b) continue;
    report.finished.push_back(seq);
    report.failures.push_back({seq, absl::UnavailableError("gone")});
    if (report.finished.size() < 1000) continue;
    cluster.fleet().OnReport(b, Incarnation(7), std::exchange(report, {}));
    Turns();
  }
  int64_t now = 0;
  for (int ticks = 0; cluster.inspection().counts().nodes > 0; now += 1000) {
    ASSERT_LT(++ticks, 1000);
    Tick(now);
    Turns();
  }
  EXPECT_GT(now, 15000);
}

// Gangs that read its result on the same devices are told that they may follow it, and later that
// they may not.
TEST_F(WideTest, AGangThatManyGangsWaitForIsLaunchedAndLostInSeveralTurns) {
  ExecutorSpec spec = Worker("wg", "ig", 1);
  spec.island_workers = 2;
  std::vector<ExecutorId> gang = {cluster.fleet().ExecutorUp(spec).value()};
  spec.worker = "wh";
  gang.push_back(cluster.fleet().ExecutorUp(spec).value());
  session = actions.Open(cluster);
  const uint64_t make = Define(8, {4, 5}, {}, {F32({4})});
  const uint64_t take = Define(9, {4, 5}, {F32({4})}, {F32({4})});
  uint64_t next = 1;
  const auto execute = [&](uint64_t code, std::vector<uint64_t> args) {
    const auto run = cluster.executables().Execute(session, code, args, {}, {next++});
    Turns();
    return run->node.value;
  };
  // As many gangs run as may, so the next one waits for its turn.
  const uint64_t first = execute(make, {});
  std::vector<uint64_t> others = {execute(take, {1})};
  for (const ExecutorId executor : gang) {
    Installed(executor, 8);
    Installed(executor, 9);
  }
  while (static_cast<int>(others.size()) + 1 < ClusterOptions().max_gangs_per_device)
    others.push_back(execute(make, {}));
  const uint64_t last = execute(make, {});
  const uint64_t result = next - 1;
  std::vector<uint64_t> takes;
  for (uint64_t i = 0; i < kWide; ++i) takes.push_back(execute(take, {result}));
  const auto launched = [&](uint64_t node) {
    return std::ranges::count_if(actions.lines, [&](const std::string& l) {
      return l.find(fmt::format("launch n{} ", node)) != std::string::npos;
    });
  };
  ASSERT_EQ(launched(others.back()), 2);
  ASSERT_EQ(launched(last), 0);
  actions.Take();
  const auto ends = [&](ExecutorId executor, uint64_t node) {
    Report report;
    report.finished = {actions.seq.at({executor, NodeId(node)})};
    Bounded([&] {
      cluster.fleet().OnReport(executor, Incarnation(7), report);
      return true;
    });
  };
  for (const ExecutorId executor : gang) ends(executor, first);
  // The devices take none until a fourth have ended.
  for (; launched(last) == 0 && !others.empty(); others.erase(others.begin())) {
    EXPECT_FALSE(actions.turn_wanted);
    for (const ExecutorId executor : gang) ends(executor, others.front());
  }
  EXPECT_EQ(launched(last), 2);
  EXPECT_EQ(others.size(), static_cast<size_t>(ClusterOptions().max_gangs_per_device) * 3 / 4);
  EXPECT_TRUE(actions.turn_wanted);
  ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  Turns();
  ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  Lose(gang[0]);
  EXPECT_TRUE(actions.turn_wanted);
  ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  Turns();
  spec.worker = "wg";
  EXPECT_TRUE(cluster.fleet().ExecutorUp(spec).ok());
  cluster.Tick(0);
  Turns();
  others.push_back(last);
  takes.resize(ClusterOptions().max_gangs_per_device);  // the others cannot have been launched
  std::ranges::copy_if(takes, std::back_inserter(others), launched);
  actions.Take();
  for (const ExecutorId executor : gang) {
    Installed(executor, 9);
    Turns();
  }
  // All gangs under way are lost, so nothing more that reads the last one's result is launched.
  for (const uint64_t node : others) {
    ends(gang[1], node);
    Turns();
  }
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_THAT(actions.lines, ::testing::Not(Contains(::testing::HasSubstr("launch n"))));
}

// Calls of many results wait for the same bytes. When these have come, each is launched alone.
TEST_F(WideTest, OfManyWideLaunchesOneGoesAtATime) {
  constexpr size_t kCalls = 24, kResults = 4000;
  const NodeId input = PutPending(1);
  const uint64_t code = Define(8, {0}, {F32({4})}, std::vector<ValueType>(kResults, F32({4})));
  const uint64_t before = cluster.units();
  for (uint64_t i = 0; i < kCalls; ++i) {
    std::vector<uint64_t> results(kResults);
    std::iota(results.begin(), results.end(), 2 + i * kResults);
    ASSERT_TRUE(cluster.executables().Execute(session, code, {1}, {}, std::move(results)).ok());
    Turns();
  }
  Installed(a, 8);
  Turns();
  const uint64_t prepared = cluster.units();
  EXPECT_GE(prepared - before, kCalls * kResults / 8);
  Report report;
  report.finished = {actions.seq.at({a, input})};
  actions.Take();
  Bounded([&] {
    cluster.fleet().OnReport(a, Incarnation(7), report);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  Turns();
  EXPECT_GE(cluster.units() - prepared, kCalls * kResults / 32);
  EXPECT_EQ(std::ranges::count_if(
                actions.Take(),
                [](const std::string& line) { return line.starts_with("e1 <- launch n"); }),
            static_cast<ptrdiff_t>(kCalls));
}

// A call of many results is prepared by several commands, and launched behind the last of them.
class ManyResultsTest : public WideTest {
 protected:
  static constexpr size_t kResults = 20'000, kCommands = 10;
  void Begin() {
    PutReady(1, 0);
    code_ = Define(8, {0}, {F32({4})}, std::vector<ValueType>(kResults, F32({4})));
    std::vector<uint64_t> results(kResults);
    std::iota(results.begin(), results.end(), 10);
    actions.Take();
    const auto call = cluster.executables().Execute(session, code_, {1}, {}, std::move(results));
    ASSERT_TRUE(call.ok()) << call.status();
    node_ = call->node.value;
  }
  // Turns until so many commands of its preparation have been sent. Returns how many have.
  size_t Prepared(size_t least) {
    const auto sent = [&] {
      return static_cast<size_t>(std::ranges::count_if(actions.lines, [&](const std::string& l) {
        return l.find(fmt::format("prepare n{} ", node_)) != std::string::npos;
      }));
    };
    while (sent() < least && Turn()) {
    }
    return sent();
  }
  bool Launched() const {
    return std::ranges::any_of(actions.lines, [&](const std::string& l) {
      return l.find(fmt::format("launch n{} ", node_)) != std::string::npos;
    });
  }
  uint64_t code_ = 0, node_ = 0;
};

TEST_F(ManyResultsTest, IsPreparedByCommandsOfManyShardsEach) {
  Begin();
  EXPECT_LT(Prepared(2), kCommands);
  EXPECT_TRUE(actions.turn_wanted);
  Installed(a, 8);
  EXPECT_FALSE(Launched());
  ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  EXPECT_EQ(Prepared(kCommands), kCommands);
  Turns();
  EXPECT_TRUE(Launched());
  End(a, node_);
}

TEST_F(ManyResultsTest, ItsExecutorMayBeLostMeanwhile) {
  Begin();
  EXPECT_LT(Prepared(2), kCommands);
  Lose(a);
  Turns();
  ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
}

TEST_F(ManyResultsTest, ItsSessionMayEndMeanwhile) {
  Begin();
  EXPECT_LT(Prepared(2), kCommands);
  Close();
  Installed(a, 8);
  Turns();
  EXPECT_FALSE(Launched());
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

// Many calls wait for one piece of code, which comes, or cannot be loaded.
class LoadTest : public WideTest {
 protected:
  // Their results are watched with token 9.
  void CallMany() {
    const uint64_t code = Define(8, {0}, {}, {F32({4})});
    std::vector<uint64_t> results;
    for (uint64_t i = 1; i <= kWide; ++i) {
      ASSERT_TRUE(cluster.executables().Execute(session, code, {}, {}, {i}).ok());
      results.push_back(i);
      Turns();
    }
    cluster.arrays().Watch(session, 9, results);
    Turns();
    actions.Take();
  }
  void Load(const absl::Status& status) {
    Bounded([&] {
      Installed(a, 8, status);
      return true;
    });
    EXPECT_TRUE(actions.turn_wanted);
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  // Reports the end of all that is launched, until nothing more is. Returns how many were.
  uint64_t EndAll() {
    uint64_t ended = 0;
    while (true) {
      Turns();
      Report report;
      for (const std::string& line : actions.Take()) {
        uint64_t node = 0;
        if (std::sscanf(line.c_str(), "e1 <- launch n%" SCNu64, &node) == 1) {
          report.finished.push_back(actions.seq.at({a, NodeId(node)}));
        } else if (line.find("watched") != std::string::npos) {
          watched_.push_back(line);
        }
      }
      if (report.finished.empty()) return ended;
      ended += report.finished.size();
      cluster.fleet().OnReport(a, Incarnation(7), report);
    }
  }
  std::vector<std::string> watched_;
};

TEST_F(LoadTest, ManyCallsAreToldThatTheirCodeIsThereInSeveralTurns) {
  CallMany();
  Load(absl::OkStatus());
  EXPECT_EQ(EndAll(), kWide);
  EXPECT_THAT(watched_, ::testing::ElementsAre(::testing::HasSubstr("watched 9: OK")));
}

TEST_F(LoadTest, ManyCallsFailForTheirCodeInSeveralTurns) {
  CallMany();
  Load(absl::InvalidArgumentError("not code"));
  EXPECT_EQ(EndAll(), 0u);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_THAT(watched_, ::testing::ElementsAre(::testing::HasSubstr("9: INVALID_ARGUMENT")));
}

// Its executor is lost when some of them know of the code. All but those that were launched wait
// for it anew.
TEST_F(LoadTest, CallsWaitForTheirCodeAnewAfterALoss) {
  CallMany();
  Load(absl::OkStatus());
  Lose(a);
  Turns();
  actions.Take();
  const uint64_t left = cluster.inspection().counts().nodes;
  EXPECT_GT(left, kWide / 2);
  EXPECT_EQ(cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).value(), a);
  cluster.Tick(0);
  EXPECT_EQ(EndAll(), 0u);
  Load(absl::OkStatus());
  EXPECT_EQ(EndAll(), left);
}

class FullTest : public WideTest {
 protected:
  void SetUp() override {
    WideTest::SetUp();
    small_ = cluster.fleet().ExecutorUp(Worker("ws", "is", 1, 1024)).value();
    session = actions.Open(cluster);
    PutReadyOn(1, 4);
  }
  // Fills the device.
  void PutReadyOn(uint64_t handle, int32_t device) {
    const auto put = cluster.arrays().Put(
        session, handle, {DType::kF32, Shape{{256}}, Sharding::SingleDevice(device)}, {0});
    ASSERT_TRUE(put.ok()) << put.status();
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(1024)));
    End(small_, put->upload.value);
  }
  ExecutorId small_;
};

// The node that fails holds up thousands, which fail with it before another is judged.
TEST_F(FullTest, WhatFollowsANodeWithoutMemoryFailsInSeveralTurns) {
  step_ = Define(9, {4}, {F32({256})}, {F32({256})});
  for (uint64_t i = 1; i <= 4000; ++i) {
    ASSERT_TRUE(cluster.executables().Execute(session, step_, {i}, {}, {i + 1}).ok());
    Turns();
  }
  for (int64_t now = 0; now < 3000; now += 500) {
    Tick(now);
    Turns();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

// Many nodes that do not follow each other wait for the same memory.
TEST_F(FullTest, ManyNodesWithoutMemoryFailInSeveralTurns) {
  step_ = Define(9, {4}, {F32({256})}, {F32({256})});
  for (uint64_t i = 1; i <= 3000; ++i) {
    ASSERT_TRUE(cluster.executables().Execute(session, step_, {1}, {}, {i + 1}).ok());
    Turns();
  }
  for (int64_t now = 0; now < 8000; now += 100) {
    Tick(now);
    Turns();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

// A chain waits for bytes that do not come. Whether its end would free memory is asked in vain.
TEST_F(FullTest, ManyNodesAreLookedAtInSeveralTurnsBeforeOneWithoutMemoryFails) {
  step_ = Define(8, {0}, {F32({4})}, {F32({4})});
  const auto late =
      cluster.arrays().Put(session, 2, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  for (uint64_t i = 2; i < 2 + kWide; ++i) {
    ASSERT_TRUE(cluster.executables().Execute(session, step_, {i}, {}, {i + 1}).ok());
    Turns();
  }
  const uint64_t large = Define(9, {4}, {}, {F32({256})});
  ASSERT_TRUE(cluster.executables().Execute(session, large, {}, {}, {kWide + 10}).ok());
  cluster.arrays().Watch(session, 9, {kWide + 10});
  Turns();
  actions.Take();
  int64_t now = 0;
  for (; now <= 1900; now += 100) {
    Tick(now);
    Turns();
  }
  EXPECT_THAT(actions.Take(), ::testing::IsEmpty());
  for (; now <= 2500; now += 100) {
    Tick(now);
    Turns();
  }
  EXPECT_THAT(actions.Take(), Contains(::testing::HasSubstr("watched 9: RESOURCE_EXHAUSTED")));
  cluster.arrays().ProvideUpload(late->upload, 0, BytesRef(Blob::Make(16)));
  Turns();
  Close();
}

// Each of many islands is full, and will have room once the next one has: copies go from each to
// the next, and the arrays that they read were given up. Only the last one goes on by itself.
TEST_F(FullTest, OneIslandWaitsForTheNextAndNoTurnGoesThroughAllOfThemForEachNode) {
  constexpr int32_t kIslands = 100;
  std::vector<ExecutorId> executors;
  for (int32_t i = 0; i < kIslands; ++i) {
    const std::string name = fmt::format("j{:03}", i);
    executors.push_back(cluster.fleet().ExecutorUp(Worker(name, name, 1, 1024)).value());
  }
  session = actions.Open(cluster);
  const ArraySpec pending{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  ASSERT_TRUE(cluster.arrays().Put(session, 1, pending, {0}).ok());
  step_ = Define(8, {0}, {F32({4})}, {F32({4})});
  for (uint64_t i = 1; i <= 4000; ++i) {
    ASSERT_TRUE(cluster.executables().Execute(session, step_, {i}, {}, {i + 1}).ok());
    Turns();
  }
  const auto array = [](int32_t island) { return 5000 + static_cast<uint64_t>(island); };
  for (int32_t i = 0; i + 1 < kIslands; ++i) {
    const auto put = cluster.arrays().Put(
        session, array(i), {DType::kF32, Shape{{256}}, Sharding::SingleDevice(5 + i)}, {0});
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(1024)));
    Turns();
    End(executors[i], put->upload.value);
  }
  std::vector<uint64_t> copies;
  for (int32_t i = 0; i + 1 < kIslands; ++i) {
    copies.push_back(6000 + static_cast<uint64_t>(i));
    ASSERT_TRUE(cluster.arrays()
                    .Copy(session, {array(i)}, {{6 + i}}, std::nullopt, CopySemantics::kAlwaysCopy,
                          {copies.back()})
                    .ok());
    ASSERT_TRUE(cluster.arrays().Delete(session, {array(i)}).ok());
  }
  Turns();
  EXPECT_EQ(cluster.fleet().Usage().back().used, 1024);
  actions.Take();
  for (int64_t now = 0; now <= 10000; now += 100) {
    Tick(now);
    Turns();
  }
  EXPECT_EQ(cluster.inspection().counts().nodes, 4001u + copies.size());  // none was given up
}

// The node that holds the memory is found to wait for bytes. They come before all has been looked
// at, so it is counted on.
TEST_F(ShortTurnsTest, WhatGoesOnWhileNodesAreLookedAtIsCountedOn) {
  Start(1024);
  const auto late =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({200})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  RunTurns();
  Installed(a, 1);
  const uint64_t g = Define(2, {0}, {}, {F32({200})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {}, {}, {3}).ok());
  cluster.arrays().Watch(session, 9, {3});
  for (const int64_t now : {0, 2000}) {
    RunTurns();
    actions.Take();
    cluster.Tick(now);
  }
  EXPECT_TRUE(actions.turn_wanted);
  RunTurns();
  cluster.arrays().ProvideUpload(late->upload, 0, BytesRef(Blob::Make(16)));
  for (const int64_t now : {2100, 2200, 2300}) {
    RunTurns();
    cluster.Tick(now);
  }
  RunTurns();
  EXPECT_THAT(actions.Take(), ::testing::Not(Contains(::testing::HasSubstr("watched"))));
  End(a, late->upload.value);
  RunTurns();
  End(a, late->upload.value + 1);
  for (const int64_t now : {4400, 4500}) {
    RunTurns();
    cluster.Tick(now);
  }
  RunTurns();
  EXPECT_THAT(actions.Take(), Contains(::testing::HasSubstr("watched 9: RESOURCE_EXHAUSTED")));
}

}  // namespace
}  // namespace fairway
