// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the executor's core with peers that pull from it.
#include "worker/executor/executor_core_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ExecutorCoreTest, APullBeforeItsTransferIsKnownWaits) {
  Have(1, 1);
  core.OnPull(5, TransferId(9), 3);
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_EQ(core.num_pulls(), 1u);
  Send(9, 3, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("serve p5 1:0"));
  core.ServeDone(5);
  EXPECT_EQ(core.num_pulls(), 0u);
}

TEST_F(ExecutorCoreTest, APullOfAShardThatIsNotYetComputedWaits) {
  Prepare(2, 1, {}, {2});
  Send(9, 0, 2);
  core.OnPull(5, TransferId(9), 0);
  Launch(2, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1"));
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("serve p5 2:0"));
}

TEST_F(ExecutorCoreTest, APullOfAFailedShardGetsTheError) {
  Prepare(2, 1, {}, {2});
  Send(9, 0, 2);
  core.OnPull(5, TransferId(9), 0);
  Launch(2, 1);
  actions.Take();
  core.LaunchDone(NodeId(2), absl::UnknownError("boom"), {});
  EXPECT_THAT(actions.Take(), ElementsAre("refuse p5: UNKNOWN: boom"));
  core.OnPull(6, TransferId(9), 0);
  EXPECT_THAT(actions.Take(), ElementsAre("refuse p6: UNKNOWN: boom"));
  EXPECT_EQ(Reported(), "through 1 also [] failed 1: UNKNOWN: boom");
}

TEST_F(ExecutorCoreTest, APullOfANumberThatTheTransferLacksIsRefused) {
  Send(9, 0, 2);
  core.OnPull(5, TransferId(9), 1);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("transfer 9 has no shard 1")));
}

TEST_F(ExecutorCoreTest, ThePullsOfAnEndedTransferAreRefusedAlsoWhenTheyComeLate) {
  Prepare(2, 1, {}, {2});
  Send(9, 0, 2);
  core.OnPull(5, TransferId(9), 0);
  core.OnCommand(EndSend{TransferId(9)});
  EXPECT_THAT(actions.Take(), ElementsAre("refuse p5: CANCELLED: the transfer was ended"));
  core.OnPull(6, TransferId(9), 0);
  EXPECT_THAT(actions.Take(), ElementsAre("refuse p6: CANCELLED: the transfer was ended"));
  EXPECT_EQ(core.num_pulls() + core.num_sends(), 0u);
}

TEST_F(ExecutorCoreTest, CancellingANodeRefusesThePullsOfItsOutputs) {
  Prepare(2, 1, {}, {2});
  Send(9, 0, 2);
  core.OnPull(5, TransferId(9), 0);
  Cancel(2);
  EXPECT_THAT(actions.Take(), ElementsAre("drop 2:0", "refuse p5: UNKNOWN: poison"));
  EXPECT_EQ(Reported(), "through 1 also []");
  EXPECT_EQ(core.num_shards(), 0u);
}

TEST_F(ExecutorCoreTest, AllPullsOfALargeCopyMayComeBeforeItsTransferIsKnown) {
  Have(1, 1);
  PrepareSend send{TransferId(9), {}};
  for (int32_t index = 0; index < 100'000; ++index) {
    core.OnPull(static_cast<uint64_t>(index) + 1, TransferId(9), index);
    send.items.push_back({index, {GroupId(1), 0}});
  }
  EXPECT_THAT(actions.Take(), IsEmpty());
  RunTurns();
  core.OnCommand(std::move(send));
  RunTurns();
  const Lines lines = actions.Take();
  ASSERT_EQ(lines.size(), 100'000u);
  EXPECT_EQ(lines.back(), "serve p100000 1:0");
}

// The transfer ended so long ago that nobody here remembers it.
TEST_F(ExecutorCoreTest, APullThatIsTakenBackWaitsNoLonger) {
  core.OnPull(5, TransferId(9), 0);
  core.OnPull(6, TransferId(9), 1);
  core.OnPull(7, TransferId(10), 0);
  EXPECT_EQ(core.num_pulls(), 3u);
  core.OnTakenBack(TransferId(9));
  core.OnTakenBack(TransferId(11));
  EXPECT_THAT(actions.Take(), ElementsAre("refuse p5: CANCELLED: it was taken back",
                                          "refuse p6: CANCELLED: it was taken back"));
  EXPECT_EQ(core.num_pulls(), 1u);
}

TEST_F(ExecutorCoreTest, TooManyPullsOfUnknownTransfersAreRefused) {
  for (uint64_t pull = 1; pull <= ExecutorCore::kMaxEarlyPulls; ++pull)
    core.OnPull(pull, TransferId(9), 0);
  EXPECT_THAT(actions.Take(), IsEmpty());
  core.OnPull(9'999'999, TransferId(10), 0);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("refuse p9999999: RESOURCE_EXHAUSTED")));
}

}  // namespace
}  // namespace fairway
