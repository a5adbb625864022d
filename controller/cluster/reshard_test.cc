// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the controller's core: resharding, and copying to several devices of an
// executor.
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ClusterTest, AReshardToSeveralDevicesOfAnExecutorPullsOnceAndCopiesThere) {
  Start();
  PutReady(1, 0);
  const ArraySpec copies{DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1, 2, 3})};
  ASSERT_TRUE(
      cluster.arrays().Reshard(session, {1}, {copies}, CopySemantics::kAlwaysCopy, {2}).ok());
  // On the executor that has the array, each device reads the array where it is.
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- receive n2 g2 from [local 1:0 [0]+[4] to 0:[0], local 1:0 [0]+[4] "
                          "to 1:[0]]",
                          "e1 <- send t3 [#0=1:0[0]+[4]]",
                          "e2 <- receive n3 g3 from [wa:1#0 [0]+[4] to 0:[0], local 3:0 [0]+[4] to "
                          "1:[0]]"));
  End(a, 2);
  End(b, 3);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- end send t3"));
  cluster.arrays().Watch(session, 9, {2});
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 9: OK"));
}

TEST_F(ClusterTest, AReshardThatFailsWhereItComesToFailsForTheDevicesThatCopyItToo) {
  Start();
  PutReady(1, 0);
  const ArraySpec copies{DType::kF32, Shape{{4}}, Sharding::Replicated({2, 3})};
  ASSERT_TRUE(
      cluster.arrays().Reshard(session, {1}, {copies}, CopySemantics::kAlwaysCopy, {2}).ok());
  actions.Take();
  cluster.arrays().Watch(session, 9, {2});
  End(b, 2, absl::InternalError("boom"));
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- end send t2", "e2 <- free [2]",
                                          HasSubstr("s1 watched 9: INTERNAL: reshard of f32[4]")));
}

TEST_F(ClusterTest, ACopyOfReplicasPullsOnceForEachExecutorAndDonatesAllOfThem) {
  Start();
  PutReady(1, 2);
  const ArraySpec copies{DType::kF32, Shape{{4}}, Sharding::Replicated({2, 3})};
  ASSERT_TRUE(
      cluster.arrays().Reshard(session, {1}, {copies}, CopySemantics::kAlwaysCopy, {2}).ok());
  End(b, 2);
  actions.Take();
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {2}, std::vector<int32_t>{0, 1}, std::nullopt,
                        CopySemantics::kDonateInput, {3})
                  .ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- send t3 [#0=2:0]",
                                          "e1 <- receive n3 g3 from [wb:1#0, local 3:0]"));
  EXPECT_TRUE(cluster.arrays().IsDeleted(session, 2).value());
  End(a, 3);
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- end send t3", "e2 <- free [2]"));
}

TEST_F(ClusterTest, AReshardCountsAsARecordOfItsSessionUntilItEnds) {
  Start();
  PutReady(1, 0);
  const ArraySpec copies{DType::kF32, Shape{{4}}, Sharding::Replicated({2, 3})};
  ASSERT_TRUE(
      cluster.arrays().Reshard(session, {1}, {copies}, CopySemantics::kAlwaysCopy, {2}).ok());
  const size_t bytes = cluster.sessions().BacklogOf(session).record_bytes;
  EXPECT_GE(bytes, 2 * 336U);         // for two pieces
  EXPECT_LE(bytes, 2 * 336U + 2000);  // with a node and a group
  End(b, 2);
  EXPECT_EQ(cluster.sessions().BacklogOf(session).record_bytes, 0U);
}

}  // namespace
}  // namespace fairway
