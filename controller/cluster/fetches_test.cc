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

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::StartsWith;

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

class PacedFetchesTest : public ClusterTest {
 protected:
  static constexpr int kFetches = 100;
  static ClusterOptions Small() {
    ClusterOptions options = AtOnce();
    options.fetching_bytes = 4096;
    options.fetched_memory = 32 << 10;  // a session alone has half
    return options;
  }
  PacedFetchesTest() : ClusterTest(Small()) {}

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
  // The bytes of all that may begin arrive. How many that were.
  size_t TakeAll() {
    size_t begun = 0;
    for (std::vector<uint64_t> now = Begun(); !now.empty(); now = Begun()) {
      begun += now.size();
      for (const uint64_t transfer : now) Arrive(transfer);
    }
    return begun;
  }
};

class FetchesTest : public PacedFetchesTest {
 protected:
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
  EXPECT_EQ(TakeAll(), 17u);  // of 32 KiB, as much as is left, and one more
  cluster.Tick(100);
  RunTurns();
  EXPECT_EQ(TakeAll(), 0u);
  size_t begun = 17;
  while (begun < kFetches) {
    actions.kept.clear();
    cluster.Tick(200);
    RunTurns();
    const size_t now = TakeAll();
    ASSERT_GT(now, 0u);
    begun += now;
  }
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

// A fetch that waits for its client frees nothing by itself: others must not wait for it.
TEST_F(PacedFetchesTest, NobodyCountsOnTheMemoryThatTheyWouldFree) {
  Start(/*memory=*/2048);
  PutReady(1, 0, 256);
  actions.keeps_fetched = true;
  for (uint64_t token = 1; token <= kFetches; ++token) cluster.arrays().Fetch(session, token, 1);
  EXPECT_EQ(TakeAll(), 17u);
  ASSERT_TRUE(cluster.arrays().Destruct(session, {1}).ok());
  const SessionId other = actions.Open(cluster);
  const auto put =
      cluster.arrays().Put(other, 1, {DType::kF32, Shape{{384}}, Sharding::SingleDevice(0)}, {0});
  ASSERT_TRUE(put.ok());
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4 * 384)));
  cluster.arrays().Watch(other, 7, {1});
  for (const int64_t now_ms : {100, 5000, 10000}) {
    cluster.Tick(now_ms);
    RunTurns();
  }
  EXPECT_THAT(actions.Take(), Contains(StartsWith("s2 watched 7: RESOURCE_EXHAUSTED")));
  actions.kept.clear();
  cluster.Tick(10100);
  RunTurns();
  while (TakeAll() > 0) {
    actions.kept.clear();
    cluster.Tick(10200);
    RunTurns();
  }
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(ShortTurnsTest, FetchesOfASessionThatHasEndedDoNotBegin) {
  constexpr uint64_t kFetches = 20;
  Start();
  const auto put =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  ASSERT_TRUE(put.ok());
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
  RunTurns();
  End(a, put->upload.value);
  RunTurns();
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  RunTurns();
  Installed(a, 1);
  RunTurns();
  for (uint64_t token = 1; token <= kFetches; ++token) cluster.arrays().Fetch(session, token, 2);
  RunTurns();
  actions.Take();
  End(a, 2);
  cluster.sessions().Close(session);
  RunTurns();
  EXPECT_LT(std::ranges::count_if(
                actions.Take(), [](const std::string& line) { return line.starts_with("pull t"); }),
            static_cast<long>(kFetches) / 2);
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
