// SPDX-License-Identifier: Apache-2.0
// Executors that an operator has ended, and workers that do not come back.
#include <gmock/gmock.h>

#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST_F(WorkerHubTest, AnExecutorIsEndedOnDemand) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  supervisor->received.clear();
  executor->received.clear();
  EXPECT_THAT(Text(hub_->RestartExecutor("w1", "x").status()), HasSubstr("'w1' has registered"));
  EXPECT_EQ(hub_->RestartExecutor("w0", "asked").value(), Incarnation(11));
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("asked"))));
  Settle();
  const v1::FromController fence = executor->Next();
  EXPECT_EQ(fence.fence().reason(), "asked");
  EXPECT_TRUE(fence.fence().asked());
  const v1::FromController kill = supervisor->Next();
  EXPECT_EQ(kill.kill_executor().incarnation(), 11);
  EXPECT_TRUE(kill.kill_executor().asked());
}

TEST_F(WorkerHubTest, RestartsOfAnIslandAreOneUntilAllOfItAreBack) {
  const auto s0 = ConnectSupervisor("w0", 10), s1 = ConnectSupervisor("w1", 20);
  const auto e0 = ConnectExecutor("w0", 11, 100), e1 = ConnectExecutor("w1", 21, 200);
  EXPECT_EQ(hub_->RestartExecutor("w0", "asked").value(), Incarnation(11));
  EXPECT_EQ(hub_->RestartExecutor("w1", "asked").value(), Incarnation(21));
  EXPECT_EQ(hub_->RestartExecutor("w0", "asked").value(), Incarnation(11));
  EXPECT_THAT(lost_, SizeIs(2));
  // One is back and the other is not, so the first is not ended again.
  const auto again0 = ConnectExecutor("w0", 12, 101);
  EXPECT_EQ(hub_->RestartExecutor("w0", "asked").value(), Incarnation(11));
  EXPECT_EQ(hub_->RestartExecutor("w1", "asked").value(), Incarnation(21));
  EXPECT_THAT(lost_, SizeIs(2));
  const auto again1 = ConnectExecutor("w1", 22, 201);
  // All are back: a new restart.
  EXPECT_EQ(hub_->RestartExecutor("w1", "asked").value(), Incarnation(22));
  EXPECT_THAT(lost_, SizeIs(4));
}

TEST_F(WorkerHubTest, AnExecutorThatIsDownIsWaitedForUnlessItsWorkerIsAwayToo) {
  auto supervisor = ConnectSupervisor("w0");
  const auto other = ConnectExecutor("w1", 21, 200);
  const auto executor = ConnectExecutor("w0", 11);
  Died(*supervisor, 11, "killed by SIGKILL");
  ASSERT_THAT(lost_, SizeIs(1));
  // The others of its island may hang in a gang that waits for it.
  EXPECT_EQ(hub_->RestartExecutor("w0", "asked").value(), Incarnation(11));
  EXPECT_THAT(lost_, SizeIs(2));
  const auto again = ConnectExecutor("w0", 12, 101), other_again = ConnectExecutor("w1", 22, 201);
  Died(*supervisor, 12, "killed by SIGKILL");
  supervisor->link.reset();
  Settle();
  const absl::Status refused = hub_->RestartExecutor("w0", "asked").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(Text(refused), HasSubstr("worker w0 is down, and its worker"));
  EXPECT_TRUE(hub_->Connected(ExecutorId(2)));
}

TEST_F(WorkerHubTest, NothingIsKeptOfAnExecutorThatIsForgotten) {
  auto a = ConnectExecutor("w0", 11, 100, "island0");
  auto b = ConnectExecutor("w1", 21, 101, "island1");
  v1::ToController message;
  auto* const pulled = message.mutable_heartbeat()->add_pulled();
  pulled->set_endpoint("w0:1");
  pulled->set_bytes(100);
  b->Send(message);
  Settle();
  EXPECT_THAT(hub_->transferred_bytes(), SizeIs(1));
  hub_->Forget(ExecutorId(1));
  EXPECT_NE(hub_->Spec(ExecutorId(1)), nullptr) << "it is connected";
  hub_->Send(ExecutorId(1), EndSend{TransferId(2)});  // still open when the executor is forgotten
  a->link.reset();
  Settle();
  hub_->Forget(ExecutorId(1));
  Settle();
  EXPECT_EQ(hub_->Spec(ExecutorId(1)), nullptr);
  EXPECT_THAT(hub_->transferred_bytes(), IsEmpty());
  EXPECT_THAT(Text(hub_->RestartExecutor("w0", "x").status()), HasSubstr("has registered; of w1"));
  // It registers again as an unknown executor.
  const auto again = ConnectExecutor("w0", 12, 102);
  EXPECT_TRUE(again->Next().has_registered());
  EXPECT_THAT(lost_, SizeIs(1));
}

TEST_F(WorkerHubTest, WhatIsForgottenWhileItsEndIsNotToldIsLostFirst) {
  const auto supervisor = ConnectSupervisor("w0");
  auto executor = ConnectExecutor("w0", 11);
  executor->link.reset();
  Settle();
  EXPECT_THAT(lost_, IsEmpty());
  hub_->Forget(ExecutorId(1));
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("its process ended"))));
  Died(*supervisor, 11, "killed by SIGKILL");
  EXPECT_THAT(lost_, SizeIs(1));
}

}  // namespace
}  // namespace fairway
