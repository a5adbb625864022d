// SPDX-License-Identifier: Apache-2.0
// Entries of an island's log that are for several executors.
#include <gmock/gmock.h>

#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(WorkerHubTest, ALaunchForAllIsOneEntryWhoseEndIsToldOnce) {
  const auto one = ConnectExecutor("w0", 11), two = ConnectExecutor("w1", 12);
  const auto elsewhere = ConnectExecutor("w2", 13, 100, "island1");
  LaunchAll all;
  all.node = NodeId(7);
  all.launch_id = LaunchId(8);
  all.executable = ExecutableId(9);
  hub_->SendAll(ExecutorId(1), ExecutorId(3), all);
  hub_->SendAll(ExecutorId(1), ExecutorId(2), FreeGroups{{GroupId(1)}});
  EXPECT_EQ(hub_->open_entries(), 2u);
  Settle();
  EXPECT_THAT(one->commands, ElementsAre(SizeIs(2)));
  EXPECT_THAT(two->commands, ElementsAre(SizeIs(2)));
  EXPECT_THAT(elsewhere->commands, IsEmpty());
  one->ReportLog();
  Settle();
  EXPECT_THAT(ended_, IsEmpty());
  two->ReportLog();
  Settle();
  EXPECT_THAT(ended_, ElementsAre(NodeId(7)));
  EXPECT_EQ(hub_->open_entries(), 0u);
}

TEST_F(WorkerHubTest, FreesForAllLeaveTogetherWithTheNextCommand) {
  const auto one = ConnectExecutor("w0", 11), two = ConnectExecutor("w1", 12);
  hub_->SendAll(ExecutorId(1), ExecutorId(2), FreeGroups{{GroupId(1)}});
  Settle();
  EXPECT_THAT(one->commands, IsEmpty());
  hub_->Send(ExecutorId(1), EndSend{TransferId(2)});
  Settle();
  EXPECT_THAT(one->commands, ElementsAre(SizeIs(2)));
  EXPECT_THAT(two->commands, IsEmpty());
  hub_->Tick();
  Settle();
  EXPECT_THAT(two->commands, ElementsAre(SizeIs(1)));
}

// The loss is told first: else what the others have ended would count as ended everywhere.
TEST_F(WorkerHubTest, ALaunchForAllEndsWithoutAnExecutorOnceItsLossIsTold) {
  const auto one = ConnectExecutor("w0", 11);
  auto two = ConnectExecutor("w1", 12);
  const auto supervisor = ConnectSupervisor("w1");
  LaunchAll all;
  all.node = NodeId(7);
  all.launch_id = LaunchId(8);
  all.executable = ExecutableId(9);
  hub_->SendAll(ExecutorId(1), ExecutorId(2), all);
  Settle();
  one->ReportLog();
  Died(*supervisor, 12, "signal 9");
  EXPECT_THAT(lost_, SizeIs(1));
  one->ReportLog();
  Settle();
  EXPECT_THAT(ended_, ElementsAre(NodeId(7)));
}

}  // namespace
}  // namespace fairway
