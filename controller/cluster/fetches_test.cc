// SPDX-License-Identifier: Apache-2.0
// Fetches that wait: for their result, for others of their session, and for its client.
#include <algorithm>
#include <string>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

// Answers of 64 KiB may be put into another order, each in the loop.
TEST_F(TurnsTest, FetchesThatWaitForOneResultAreAnsweredInSeveralTurns) {
  constexpr size_t kFetches = 500;
  PutReady(1, 0, 16384);
  const uint64_t f = Define(3, {0}, {F32({16384})}, {F32({16384})});
  const auto run = cluster.executables().Execute(session, f, {1}, {}, {2});
  ASSERT_TRUE(run.ok());
  Installed(a, 3);
  for (uint64_t token = 1; token <= kFetches; ++token) cluster.arrays().Fetch(session, token, 2);
  while (Turn()) {
  }
  actions.Take();
  const auto [who, seq] = *actions.seq.rbegin();
  End(a, who.second.value, absl::OkStatus(),
      {{{GroupId(2), 0}, Bytes(std::string(64 << 10, 'x'))}});
  size_t answered = 0, most = 0;
  const auto count = [&] {
    const size_t now = std::ranges::count_if(
        actions.Take(), [](const std::string& line) { return line.starts_with("s1 fetched"); });
    answered += now;
    most = std::max(most, now);
  };
  count();
  while (Turn()) count();
  EXPECT_EQ(answered, kFetches);
  EXPECT_LE(most, 64u);  // 4 MiB
}

class FetchesTest : public ClusterTest {
 protected:
  static constexpr int kFetches = 100;
  static ClusterOptions Small() {
    ClusterOptions options = AtOnce();
    options.fetching_bytes = 4096;
    options.fetched_memory = 32 << 10;  // a session alone has half
    return options;
  }
  FetchesTest() : ClusterTest(Small()) {}

  // Fetches of a result of 1 KiB, which comes after them.
  void SetUp() override {
    Start();
    PutReady(1, 0, 256);
    const uint64_t f = Define(1, {0}, {F32({256})}, {F32({256})});
    ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
    Installed(a, 1);
    for (uint64_t token = 1; token <= kFetches; ++token) cluster.arrays().Fetch(session, token, 2);
    actions.Take();
    End(a, 2);
    RunTurns();
  }
  // The transfers that began since.
  std::vector<uint64_t> Begun() {
    std::vector<uint64_t> begun;
    for (const std::string& line : actions.Take()) {
      if (line.starts_with("pull t")) begun.push_back(std::stoull(line.substr(6)));
    }
    return begun;
  }
  void Arrive(uint64_t transfer) {
    cluster.arrays().FetchArrived(TransferId(transfer), Bytes(std::string(1024, 'x')));
    RunTurns();
  }
};

TEST_F(FetchesTest, OfThoseThatWaitForOneResultFewAreUnderWay) {
  size_t begun = 0;
  for (std::vector<uint64_t> now = Begun(); !now.empty(); now = Begun()) {
    ASSERT_LE(cluster.sessions().BacklogOf(session).fetching, 4096);
    begun += now.size();
    for (const uint64_t transfer : now) Arrive(transfer);
  }
  EXPECT_EQ(begun, static_cast<size_t>(kFetches));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(FetchesTest, TheyWaitUntilTheClientTakesWhatHasCome) {
  actions.keeps_fetched = true;
  const auto take_all = [&] {
    size_t begun = 0;
    for (std::vector<uint64_t> now = Begun(); !now.empty(); now = Begun()) {
      begun += now.size();
      for (const uint64_t transfer : now) Arrive(transfer);
    }
    return begun;
  };
  EXPECT_EQ(take_all(), 17u);  // of 32 KiB, as much as is left, and one more
  cluster.Tick(100);
  RunTurns();
  EXPECT_EQ(take_all(), 0u);
  size_t begun = 17;
  while (begun < kFetches) {
    actions.kept.clear();
    cluster.Tick(200);
    RunTurns();
    const size_t now = take_all();
    ASSERT_GT(now, 0u);
    begun += now;
  }
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(FetchesTest, ASessionThatEndsLeavesNone) {
  Begun();
  cluster.sessions().Close(session);
  RunTurns();
  cluster.Tick(100);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(FetchesTest, TheLossOfTheResultIsToldToThoseThatWait) {
  Begun();
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  RunTurns();
  EXPECT_EQ(std::ranges::count_if(
                actions.Take(),
                [](const std::string& line) { return line.find("killed") != std::string::npos; }),
            kFetches);
}

}  // namespace
}  // namespace fairway
