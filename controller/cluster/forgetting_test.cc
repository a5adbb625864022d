// SPDX-License-Identifier: Apache-2.0
// Islands that never come back.
#include "controller/cluster/cluster_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Status kGone = absl::UnavailableError("it was forgotten");

TEST_F(ClusterTest, TenThousandWorkersThatCameOnceLeaveNothing) {
  ExecutorId last;
  for (int i = 0; i < 10000; ++i) {
    const std::string name = fmt::format("w{}", i);
    const auto executor = cluster.ExecutorUp(Worker(name, "of " + name, 8));
    ASSERT_TRUE(executor.ok()) << executor.status();
    ASSERT_LT(last, *executor);
    last = *executor;
    const SessionId once = cluster.OpenSession("t").value();
    cluster.CloseSession(once);
    RunTurns();
    cluster.ExecutorLost(*executor, absl::UnavailableError("killed"));
    ASSERT_TRUE(cluster.ForgetIsland(cluster.Islands()[0].id, kGone));
  }
  EXPECT_THAT(cluster.Islands(), IsEmpty());
  EXPECT_THAT(cluster.Executors(), IsEmpty());
  EXPECT_THAT(cluster.Usage(), IsEmpty());
  Start();
  EXPECT_EQ(a.value, 10001u);
  EXPECT_LT(cluster.Usage().back().device.value, 20u) << "numbers of devices are used again";
}

TEST_F(ClusterTest, AnIslandThatASessionKnowsIsLeftUntilItsEnd) {
  Start();
  const IslandId island = cluster.Islands()[0].id;
  const SessionId other = cluster.OpenSession("t").value();
  PutReady(1, 0);
  Define(1, {0}, {F32({4})}, {F32({4})});
  EXPECT_FALSE(cluster.ForgetIsland(island, kGone)) << "it is up";
  EXPECT_THAT(cluster.Islands(), SizeIs(2));
  cluster.ExecutorLost(a, absl::UnavailableError("killed"));
  EXPECT_EQ(cluster.Islands()[0].sessions, 2u);
  EXPECT_EQ(cluster.Islands()[0].executors_up, 0u);
  // What waits for it fails, and so does what comes.
  const auto waits =
      cluster.Put(session, 2, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  cluster.ProvideUpload(waits->upload, 0, Bytes("0123456789abcdef"));
  cluster.Watch(session, 1, {2});
  actions.Take();
  EXPECT_FALSE(cluster.ForgetIsland(island, kGone));
  RunTurns();
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 watched 1: UNAVAILABLE: island ia: it was forgotten"));
  const auto later =
      cluster.Put(session, 3, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(1)}, {0});
  cluster.ProvideUpload(later->upload, 0, Bytes("0123456789abcdef"));
  cluster.Watch(session, 2, {3});
  RunTurns();
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 watched 2: UNAVAILABLE: island ia: it was forgotten"));
  EXPECT_THAT(Text(cluster.IslandOf(session, {0}).status()), HasSubstr("it was forgotten"));
  EXPECT_TRUE(cluster.IslandOf(session, {2}).ok());
  EXPECT_THAT(cluster.Islands(), SizeIs(1));
  EXPECT_THAT(cluster.Executors(), SizeIs(1));
  EXPECT_THAT(cluster.Usage(), SizeIs(2));

  // Its name comes back as another island, which this session does not see.
  const ExecutorId again = cluster.ExecutorUp(Worker("wa", "ia", 3)).value();
  EXPECT_NE(again, a);
  EXPECT_THAT(cluster.Devices(session), SizeIs(4));
  EXPECT_FALSE(cluster.IslandOf(session, {0}).ok());
  const SessionId next = cluster.OpenSession("t").value();
  ASSERT_THAT(cluster.Devices(next), SizeIs(5));
  EXPECT_NE(cluster.Devices(next)[0].island_id, island);

  cluster.ForgetExecutable(ExecutableId(1));
  cluster.CloseSession(session);
  RunTurns();
  EXPECT_FALSE(cluster.ForgetIsland(island, kGone)) << "another session knows it";
  cluster.CloseSession(other);
  RunTurns();
  EXPECT_TRUE(cluster.ForgetIsland(island, kGone));
  EXPECT_TRUE(cluster.ForgetIsland(island, kGone)) << "it is forgotten already";
  EXPECT_THAT(cluster.Islands(), SizeIs(2));
  cluster.CloseSession(next);
}

TEST_F(ClusterTest, WhatRunsOnAfterItsSessionKeepsTheIslandThatItTakesFrom) {
  Start();
  PutReady(1, 0);
  // A copy to the other island is on its way.
  ASSERT_TRUE(cluster
                  .Copy(session, {1}, std::vector<int32_t>{2}, std::nullopt,
                        CopySemantics::kAlwaysCopy, {2})
                  .ok());
  const IslandId island = cluster.Islands()[0].id;
  cluster.ExecutorLost(a, absl::UnavailableError("killed"));
  cluster.CloseSession(session);
  RunTurns();
  while (!cluster.ForgetIsland(island, kGone)) {
    ASSERT_GT(cluster.counts().nodes + cluster.counts().groups, 0u);
    End(b, 2, absl::UnavailableError("gone"));
    cluster.Tick(0);
    cluster.Tick(100000);
    RunTurns();
  }
  EXPECT_THAT(cluster.Islands(), SizeIs(1));
}

TEST_F(ClusterTest, AnUploadToAnIslandIsFoundThoughOthersWereForgottenMeanwhile) {
  const ExecutorId old = cluster.ExecutorUp(Worker("w0", "i0", 1)).value();
  const IslandId forgotten = cluster.Islands()[0].id;
  cluster.ExecutorLost(old, absl::UnavailableError("killed"));
  Start();
  const auto put =
      cluster.Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 2})}, {0, 0});
  ASSERT_TRUE(cluster.ForgetIsland(forgotten, kGone));
  cluster.ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  End(a, put->upload.value);
  End(b, put->upload.value + 1);
}

}  // namespace
}  // namespace fairway
