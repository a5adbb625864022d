// SPDX-License-Identifier: Apache-2.0
// Islands that never come back.
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

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
    const auto executor = cluster.fleet().ExecutorUp(Worker(name, "of " + name, 8));
    ASSERT_TRUE(executor.ok()) << executor.status();
    ASSERT_LT(last, *executor);
    last = *executor;
    const SessionId once = actions.Open(cluster);
    cluster.sessions().Close(once);
    RunTurns();
    cluster.fleet().ExecutorLost(*executor, absl::UnavailableError("killed"));
    ASSERT_TRUE(cluster.fleet().ForgetIsland(cluster.fleet().Islands()[0].id, kGone));
  }
  EXPECT_THAT(cluster.fleet().Islands(), IsEmpty());
  EXPECT_THAT(cluster.fleet().Executors(), IsEmpty());
  EXPECT_THAT(cluster.fleet().Usage(), IsEmpty());
  Start();
  EXPECT_EQ(a.value, 10001u);
  EXPECT_LT(cluster.fleet().Usage().back().device.value, 20u)
      << "numbers of devices are used again";
}

TEST_F(ClusterTest, AnIslandThatASessionKnowsIsLeftUntilItsEnd) {
  Start();
  const IslandId island = cluster.fleet().Islands()[0].id;
  const SessionId other = actions.Open(cluster);
  PutReady(1, 0);
  Define(1, {0}, {F32({4})}, {F32({4})});
  EXPECT_FALSE(cluster.fleet().ForgetIsland(island, kGone)) << "it is up";
  EXPECT_THAT(cluster.fleet().Islands(), SizeIs(2));
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  EXPECT_EQ(cluster.fleet().Islands()[0].sessions, 2u);
  EXPECT_EQ(cluster.fleet().Islands()[0].executors_up, 0u);
  // Work that waits for it fails, and so does work that comes later.
  const auto waits =
      cluster.arrays().Put(session, 2, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  cluster.arrays().ProvideUpload(waits->upload, 0, Bytes("0123456789abcdef"));
  cluster.arrays().Watch(session, 1, {2});
  actions.Take();
  EXPECT_FALSE(cluster.fleet().ForgetIsland(island, kGone));
  RunTurns();
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 watched 1: UNAVAILABLE: island ia: it was forgotten"));
  const auto later =
      cluster.arrays().Put(session, 3, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(1)}, {0});
  cluster.arrays().ProvideUpload(later->upload, 0, Bytes("0123456789abcdef"));
  cluster.arrays().Watch(session, 2, {3});
  RunTurns();
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 watched 2: UNAVAILABLE: island ia: it was forgotten"));
  EXPECT_THAT(Text(cluster.sessions().IslandOf(session, {0}).status()),
              HasSubstr("it was forgotten"));
  EXPECT_TRUE(cluster.sessions().IslandOf(session, {2}).ok());
  EXPECT_THAT(cluster.fleet().Islands(), SizeIs(1));
  EXPECT_THAT(cluster.fleet().Executors(), SizeIs(1));
  EXPECT_THAT(cluster.fleet().Usage(), SizeIs(2));

  // An executor of its name forms another island, which this session does not see.
  const ExecutorId again = cluster.fleet().ExecutorUp(Worker("wa", "ia", 3)).value();
  EXPECT_NE(again, a);
  EXPECT_THAT(cluster.sessions().Devices(session), SizeIs(4));
  EXPECT_FALSE(cluster.sessions().IslandOf(session, {0}).ok());
  const SessionId next = actions.Open(cluster);
  ASSERT_THAT(cluster.sessions().Devices(next), SizeIs(5));
  EXPECT_NE(cluster.sessions().Devices(next)[0].island_id, island);

  cluster.executables().Forget(ExecutableId(1));
  cluster.sessions().Close(session);
  RunTurns();
  EXPECT_FALSE(cluster.fleet().ForgetIsland(island, kGone)) << "another session knows it";
  cluster.sessions().Close(other);
  RunTurns();
  EXPECT_TRUE(cluster.fleet().ForgetIsland(island, kGone));
  EXPECT_TRUE(cluster.fleet().ForgetIsland(island, kGone)) << "it is forgotten already";
  EXPECT_THAT(cluster.fleet().Islands(), SizeIs(2));
  cluster.sessions().Close(next);
}

TEST_F(ClusterTest, WhatRunsOnAfterItsSessionKeepsTheIslandThatItTakesFrom) {
  Start();
  PutReady(1, 0);
  // A copy to the other island is under way.
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{2}, std::nullopt,
                        CopySemantics::kAlwaysCopy, {2})
                  .ok());
  const IslandId island = cluster.fleet().Islands()[0].id;
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  cluster.sessions().Close(session);
  RunTurns();
  while (!cluster.fleet().ForgetIsland(island, kGone)) {
    ASSERT_GT(cluster.inspection().counts().nodes + cluster.inspection().counts().groups, 0u);
    End(b, 2, absl::UnavailableError("gone"));
    cluster.Tick(0);
    cluster.Tick(100000);
    RunTurns();
  }
  EXPECT_THAT(cluster.fleet().Islands(), SizeIs(1));
}

TEST_F(ClusterTest, AnUploadToAnIslandIsFoundThoughOthersWereForgottenMeanwhile) {
  const ExecutorId old = cluster.fleet().ExecutorUp(Worker("w0", "i0", 1)).value();
  const IslandId forgotten = cluster.fleet().Islands()[0].id;
  cluster.fleet().ExecutorLost(old, absl::UnavailableError("killed"));
  Start();
  const auto put = cluster.arrays().Put(
      session, 1, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 2})}, {0, 0});
  ASSERT_TRUE(cluster.fleet().ForgetIsland(forgotten, kGone));
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  End(a, put->upload.value);
  End(b, put->upload.value + 1);
}

}  // namespace
}  // namespace fairway
