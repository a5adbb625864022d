// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the executor's core: its actions and reports, line by line.
#include "base/sanitized_for_test.h"
#include "worker/executor/executor_core_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ExecutorCoreTest, AGangThatIsAbandonedBeforeItsTurnDoesNotBegin) {
  for (uint64_t node = 1; node <= 3; ++node) Prepare(node, node, {}, {10 + node});
  for (uint64_t node = 1; node <= 3; ++node) Launch(node, node, false, true);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 1", "launch n2 id 2"));
  core.OnCommand(AbandonLaunch{LaunchId(2), LaunchId(3), absl::DataLossError("gone")});
  core.LaunchDone(NodeId(1), absl::OkStatus(), {});
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_EQ(Text(core.TakeReport()), "through 3 also [] failed 3: DATA_LOSS: gone");
}

// One of many instructions takes long to decode and to check.
TEST_F(ExecutorCoreTest, ASequenceThatCameAsBytesIsLoadedElsewhere) {
  const auto bytes = std::make_shared<const std::string>("x");
  for (const uint64_t id : {1, 2, 3})
    core.OnCommand(InstallSequence{ExecutableId(id), nullptr, bytes});
  EXPECT_THAT(actions.Take(),
              ElementsAre("load sequence x1", "load sequence x2", "load sequence x3"));
  core.OnCommand(DropExecutable{ExecutableId(1)});
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_EQ(Reported(), "through 0 also []");
  const auto code = SequenceCode::Make(std::make_shared<const Sequence>());
  core.SequenceLoaded(ExecutableId(1), code);  // each is answered, also if nobody wants it any more
  core.SequenceLoaded(ExecutableId(2), absl::InvalidArgumentError("no sequence"));
  core.SequenceLoaded(ExecutableId(3), code);
  EXPECT_EQ(Reported(), "through 0 also [] x1: OK x2: INVALID_ARGUMENT: no sequence x3: OK");
  Prepare(1, 1, {}, {}, 3);
  Launch(1, 1);
  EXPECT_THAT(actions.Take(), IsEmpty());  // it has no steps
  EXPECT_EQ(Reported(), "through 1 also []");
}

TEST_F(ExecutorCoreTest, ALaunchRunsOnCommandAndIsReportedWhenItEnds) {
  Have(1, 1);
  Prepare(2, 2, {1}, {2});
  EXPECT_THAT(actions.Take(), IsEmpty());
  Launch(2, 7);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 7"));
  EXPECT_EQ(Reported(), "through 1 also []");
  core.LaunchDone(NodeId(2), absl::OkStatus(), {{{GroupId(2), 0}, Blob::Copy("abcd")}});
  EXPECT_EQ(Reported(), "through 2 also [] inline 2:0");
  EXPECT_EQ(core.highest_launch_id(), 7u);
  Free({1, 2});
  EXPECT_THAT(actions.Take(), ElementsAre("drop 1:0", "drop 2:0"));
  EXPECT_EQ(core.num_shards() + core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, AShardOfPiecesIsThereWhenItsLastPieceIs) {
  Have(1, 1);
  PrepareReceive command;
  command.node = NodeId(2);
  command.seq = 2;
  command.transfer = TransferId(2);
  command.out = Part(2, {0, 1});
  command.sources = {Local(1), Peer(), Peer()};
  const Box half{4, {2}, {0}, {1}};
  command.pieces = {{0, half, half}, {0, half, half}, {1, half, half}};
  core.OnCommand(command);
  core.OnCommand(PrepareSend{TransferId(7), {{0, {GroupId(2), 0}, half}, {1, {GroupId(2), 1}}}});
  core.OnPull(5, TransferId(7), 0);
  core.OnPull(6, TransferId(7), 1);
  EXPECT_THAT(actions.Take(), ElementsAre("receive n2[0]", "receive n2[1]", "receive n2[2]"));
  core.ReceiveDone(NodeId(2), 1, absl::OkStatus());
  EXPECT_THAT(actions.Take(), IsEmpty());
  core.ReceiveDone(NodeId(2), 0, absl::OkStatus());
  EXPECT_THAT(actions.Take(), ElementsAre("serve p5 2:0 box"));
  core.ReceiveDone(NodeId(2), 2, absl::DataLossError("gone"));
  EXPECT_THAT(actions.Take(), ElementsAre("refuse p6: DATA_LOSS: gone"));
  EXPECT_THAT(Reported(), HasSubstr("failed 2: DATA_LOSS: gone"));
}

// A launch may go ahead of a transfer of which other shards are lost.
TEST_F(ExecutorCoreTest, WhatHasComeOfAReceiveThatIsCancelledIsThereUntilItIsFreed) {
  PrepareReceive command;
  command.node = NodeId(1);
  command.seq = 1;
  command.transfer = TransferId(1);
  command.out = Part(1, {0, 1});
  command.sources = {Peer(), Peer()};
  core.OnCommand(command);
  core.ReceiveDone(NodeId(1), 0, absl::OkStatus());
  Prepare(2, 2, {1}, {2});
  Launch(2, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("receive n1[0]", "receive n1[1]", "launch n2 id 1"));
  core.OnCommand(CancelNode{NodeId(1), absl::DataLossError("gone")});
  EXPECT_THAT(actions.Take(), ElementsAre("take back t1", "drop 1:1"));
  Prepare(3, 3, {1}, {3});
  Launch(3, 2);
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  core.LaunchDone(NodeId(3), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 3 also []");
  actions.Take();
  Free({1, 2, 3});
  EXPECT_THAT(actions.Take(), ElementsAre("drop 1:0 1:1", "drop 2:0", "drop 3:0"));
  EXPECT_EQ(core.num_shards() + core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, PiecesThatDoNotMatchTheShardsAreReportedAsABug) {
  PrepareReceive command;
  command.node = NodeId(2);
  command.seq = 1;
  command.out = Part(2, {0, 1});
  command.sources = {Peer(), Peer()};
  const Box half{4, {2}, {0}, {1}};
  command.pieces = {{0, half, half}, {0, half, half}};  // nothing for shard 1
  core.OnCommand(command);
  EXPECT_THAT(Reported(), HasSubstr("failed 1: INTERNAL"));
  EXPECT_EQ(core.num_shards() + core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, ALaunchWithoutItsInputDoesNotRun) {
  Prepare(2, 1, {1}, {2});
  Launch(2, 1);
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_THAT(Reported(), AllOf(HasSubstr("through 1"),
                                HasSubstr("failed 1: INTERNAL: node 2: input 1:0 is not here")));
}

TEST_F(ExecutorCoreTest, ALaunchWhoseInputFailedDoesNotRun) {
  Receive(1, 1, 1, {Peer()});
  core.ReceiveDone(NodeId(1), 0, absl::UnknownError("no bytes"));
  Prepare(2, 2, {1}, {2});
  actions.Take();
  Launch(2, 1);
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_THAT(Reported(), HasSubstr("failed 2: INTERNAL"));
}

TEST_F(ExecutorCoreTest, ALaunchAheadStartsWhenItsInputsHaveBeenComputed) {
  Prepare(2, 1, {}, {2});
  Prepare(3, 2, {}, {3});
  Prepare(4, 3, {2, 3, 2}, {4});
  Launch(2, 1, false, true);
  Launch(3, 2);
  Launch(4, 3, true);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1", "launch n3 id 2"));
  core.LaunchDone(NodeId(3), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), IsEmpty());
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n4 id 3"));
  core.LaunchDone(NodeId(4), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 3 also []");
}

TEST_F(ExecutorCoreTest, ALaunchIsPreparedBySeveralCommands) {
  Prepare(2, 1, {}, {2, 3}, 1);
  Launch(2, 1);
  Done(2);
  actions.Take();
  Prepare(3, 2, {2}, {}, 1, /*more=*/true);
  Prepare(4, 3, {}, {7}, 1, /*more=*/true);
  Prepare(3, 2, {3}, {4}, 1, /*more=*/true);
  Prepare(3, 2, {}, {5});
  Cancel(4);
  Launch(3, 2);
  ASSERT_THAT(actions.Take(), ::testing::Contains("launch n3 id 2"));
  EXPECT_EQ(actions.started.inputs[0], (ShardRefs{{GroupId(2), 0}, {GroupId(3), 0}}));
  ASSERT_EQ(actions.started.outputs.size(), 2u);
  EXPECT_EQ(actions.started.outputs[1].group, GroupId(5));
  Done(3);
  EXPECT_EQ(Reported(), "through 3 also []");
}

TEST_F(ExecutorCoreTest, ALaunchOfWhichNotAllIsKnownFails) {
  Prepare(2, 1, {}, {2}, 1, /*more=*/true);
  Launch(2, 1);
  EXPECT_THAT(Reported(), HasSubstr("failed 1: INTERNAL: node 2: it was launched before all was "
                                    "told; this is a bug"));
  Prepare(3, 2, {}, {3}, 1, /*more=*/true);
  Prepare(3, 3, {}, {4});
  EXPECT_THAT(Reported(), HasSubstr("failed 3: INTERNAL: node 3: it was prepared twice"));
}

TEST_F(ExecutorCoreTest, ALaunchGoesBehindBytesThatCameBeforeIt) {
  ShardSource bytes;
  bytes.bytes = Blob::Make(16);
  bytes.kind = ShardSource::Kind::kInline;
  Receive(2, 1, 2, {bytes, Local(2)});
  Prepare(4, 3, {2}, {4});
  Launch(4, 1, true, true);
  EXPECT_THAT(actions.Take(), ElementsAre("receive n2[0]"));
  core.ReceiveDone(NodeId(2), 0, absl::OkStatus());
  EXPECT_THAT(actions.Take(), ElementsAre("receive n2[1]", "launch n4 id 1"));
}

TEST_F(ExecutorCoreTest, OnlyALaunchOnOneDeviceWaitsForATransferAndOthersPassIt) {
  Receive(3, 1, 3, {Peer()});
  Prepare(4, 2, {3}, {4});
  Prepare(5, 3, {4}, {5});
  Prepare(6, 4, {3}, {6});
  Prepare(7, 5, {}, {7});
  Launch(4, 1, true);
  Launch(5, 2, true);
  Launch(6, 3, true, /*gang=*/true);
  Launch(7, 4);
  EXPECT_THAT(actions.Take(), ElementsAre("receive n3[0]", "launch n7 id 4"));
  EXPECT_THAT(Reported(), HasSubstr("failed 4: INTERNAL: node 6: input 3:0 is not here"));
  core.ReceiveDone(NodeId(3), 0, absl::OkStatus());
  EXPECT_THAT(actions.Take(), ElementsAre("launch n4 id 1", "launch n5 id 2"));
}

TEST_F(ExecutorCoreTest, WithoutAControllerNobodyWaitsForTransfers) {
  Receive(2, 1, 2, {Peer()});
  Receive(3, 2, 3, {Local(2)});
  Prepare(4, 3, {3}, {4});
  Prepare(5, 4, {4}, {5});
  Launch(4, 1, true);
  Launch(5, 2, true);
  EXPECT_THAT(actions.Take(), ElementsAre("receive n2[0]"));
  EXPECT_EQ(core.num_launched(), 2u);
  core.EndReceives(absl::UnavailableError("the end"));
  EXPECT_EQ(core.num_launched(), 0u);
  EXPECT_EQ(core.num_nodes(), 0u);
  EXPECT_EQ(
      Reported(),
      "through 0 also [2, 3, 4] failed 2: UNAVAILABLE: the end failed 3: UNAVAILABLE: the end "
      "failed 4: UNAVAILABLE: the end");
  core.ReceiveDone(NodeId(2), 0, absl::OkStatus());  // its bytes came after all
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("launch"))));
}

TEST_F(ExecutorCoreTest, LaunchesOnOneDeviceStartOneBehindTheOtherAndEndInOrder) {
  Prepare(2, 1, {}, {2});
  Prepare(3, 2, {2}, {3});
  Prepare(4, 3, {3, 2}, {4});
  Launch(2, 1);
  Launch(3, 2, true);
  Launch(4, 3, true);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1", "launch n3 id 2", "launch n4 id 3"));
  core.LaunchDone(NodeId(3), absl::OkStatus(), {});  // its end may come first
  core.LaunchDone(NodeId(4), absl::UnknownError("own"), {});
  EXPECT_EQ(Reported(), "through 0 also []");
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 3 also [] failed 3: UNKNOWN: own");
}

TEST_F(ExecutorCoreTest, GangsWhoseDevicesDoNotWaitForEachOtherStartOneBehindTheOther) {
  core.InstallDone(ExecutableId(1), absl::OkStatus(), true);
  EXPECT_EQ(Reported(), "through 0 also [] x1: OK");
  for (uint64_t n = 1; n <= 4; ++n)
    Prepare(n, n, n == 1 ? std::vector<uint64_t>() : std::vector<uint64_t>{n - 1}, {n});
  for (uint64_t n = 1; n <= 4; ++n) Launch(n, n, n > 1, true);
  EXPECT_THAT(actions.Take(),
              ElementsAre("launch n1 id 1", "launch n2 id 2", "launch n3 id 3", "launch n4 id 4"));
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});  // its end may come first
  EXPECT_EQ(Reported(), "through 0 also []");
  core.LaunchDone(NodeId(1), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 2 also []");
  core.LaunchDone(NodeId(3), absl::UnknownError("boom"), {});
  core.LaunchDone(NodeId(4), absl::InternalError("the device's text"), {});
  EXPECT_EQ(Reported(), "through 4 also [] failed 3: UNKNOWN: boom failed 4: UNKNOWN: boom");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, AGangWithCollectivesWaitsForThoseWithoutAndTheyForIt) {
  core.InstallDone(ExecutableId(1), absl::OkStatus(), true);
  Prepare(1, 1, {}, {1});
  Prepare(2, 2, {1}, {2}, 5);
  Prepare(3, 3, {2}, {3});
  Prepare(4, 4, {}, {4});
  for (uint64_t n = 1; n <= 4; ++n) Launch(n, n, n == 2 || n == 3, true);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 1"));
  core.LaunchDone(NodeId(1), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 2"));
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n3 id 3", "launch n4 id 4"));
}

TEST_F(ExecutorCoreTest, WhatWasStartedBehindAFailedLaunchTellsItsError) {
  Prepare(2, 1, {}, {2});
  Prepare(3, 2, {2}, {3});
  Launch(2, 1);
  Launch(3, 2, true);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1", "launch n3 id 2"));
  core.LaunchDone(NodeId(2), absl::UnknownError("boom"), {});
  core.LaunchDone(NodeId(3), absl::InternalError("the device's text"), {});
  EXPECT_EQ(Reported(), "through 2 also [] failed 1: UNKNOWN: boom failed 2: UNKNOWN: boom");
}

TEST_F(ExecutorCoreTest, WhatWaitsBehindAHeldLaunchFollowsWhenThatStarts) {
  Prepare(1, 1, {}, {1});
  Prepare(2, 2, {1}, {2});
  Prepare(3, 3, {2}, {3});
  Launch(1, 1, false, true);
  Launch(2, 2, true);
  Launch(3, 3, true);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 1"));
  core.LaunchDone(NodeId(1), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 2", "launch n3 id 3"));
}

TEST_F(ExecutorCoreTest, ALaunchAheadOfAFailureDoesNotRun) {
  for (uint64_t n = 2; n <= 4; ++n)
    Prepare(n, n - 1, n == 2 ? std::vector<uint64_t>() : std::vector<uint64_t>{n - 1}, {n});
  Launch(2, 1);
  Launch(3, 2, true, true);
  core.LaunchDone(NodeId(2), absl::UnknownError("boom"), {});
  Launch(4, 3, true);  // the failure and this launch passed each other
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1"));
  EXPECT_EQ(Reported(),
            "through 3 also [] failed 1: UNKNOWN: boom failed 2: UNKNOWN: boom failed 3: "
            "UNKNOWN: boom");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, ALaunchAheadOfWhatWasNotLaunchedDoesNotRun) {
  Prepare(2, 1, {}, {2});
  Prepare(3, 2, {2}, {3});
  Launch(3, 1, true);
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_THAT(Reported(), HasSubstr("failed 2: INTERNAL: node 3: input 2:0 is not here"));
}

TEST_F(ExecutorCoreTest, GangsStartInOrderAndTwoAtOnceAndSinglesPassThem) {
  Prepare(1, 1, {}, {1});
  Prepare(2, 2, {1}, {2});
  for (uint64_t n = 3; n <= 6; ++n) Prepare(n, n, {}, {n});
  Launch(1, 1);
  Launch(2, 2, true, true);
  for (uint64_t n = 3; n <= 5; ++n) Launch(n, n, false, true);
  Launch(6, 6);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 1", "launch n6 id 6"));
  core.LaunchDone(NodeId(1), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 2", "launch n3 id 3"));
  core.LaunchDone(NodeId(3), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n4 id 4"));
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n5 id 5"));
}

TEST_F(ExecutorCoreTest, GangsOfOtherDevicesDoNotWaitForEachOther) {
  for (const uint64_t n : {1, 2, 3}) Gang(n, n, {0, 1});
  EXPECT_EQ(actions.Take(), (Lines{"launch n1 id 1", "launch n2 id 2"}));
  for (const uint64_t n : {4, 5, 6}) Gang(n, n, {2, 3});
  EXPECT_EQ(actions.Take(), (Lines{"launch n4 id 4", "launch n5 id 5"})) << "two on each device";
  Done(4);
  EXPECT_EQ(actions.Take(), (Lines{"launch n6 id 6"}));
  Done(2);
  EXPECT_EQ(actions.Take(), (Lines{"launch n3 id 3"}));
}

// Otherwise two executors could run two gangs in different orders.
TEST_F(ExecutorCoreTest, GangsThatShareADeviceStartInTheOrderOfTheirIds) {
  for (const uint64_t n : {1, 2}) Gang(n, n, {0, 1});
  actions.Take();
  Gang(3, 3, {1, 2});
  Gang(4, 4, {2, 3});
  Gang(5, 5, {4, 5});
  EXPECT_EQ(actions.Take(), (Lines{"launch n5 id 5"})) << "3 waits for device 1, and 4 for 3";
  Done(1);
  EXPECT_EQ(actions.Take(), (Lines{"launch n3 id 3", "launch n4 id 4"}));
}

TEST_F(ExecutorCoreTest, AGangThatIsGivenUpHoldsNobodyUp) {
  for (const uint64_t n : {1, 2}) Gang(n, n, {0, 1});
  Gang(3, 3, {1, 2});
  Gang(4, 4, {2, 3});
  actions.Take();
  core.OnCommand(AbandonLaunch{LaunchId(3), LaunchId(3), absl::UnknownError("a peer failed")});
  EXPECT_EQ(actions.Take(), (Lines{"launch n4 id 4"}));
}

// What gangs exchange with other executors has one order.
TEST_F(ExecutorCoreTest, GangsThatOtherExecutorsRunTooStartInTheOrderOfTheirIds) {
  InstallExecutable shared;
  shared.executable = ExecutableId(7);
  shared.members = std::vector<InstallExecutable::Member>(2);
  core.OnCommand(shared);
  for (const uint64_t n : {1, 2, 3}) Gang(n, n, {0}, 7);
  actions.Take();
  Gang(4, 4, {1}, 7);
  Gang(5, 5, {2, 3});
  EXPECT_EQ(actions.Take(), (Lines{"launch n5 id 5"}));
  Done(1);
  Done(2);
  EXPECT_EQ(actions.Take(), (Lines{"launch n3 id 3", "launch n4 id 4"}));
}

TEST_F(ExecutorCoreTest, ALocalCopyStartsWhenItsSourceIsThere) {
  Prepare(2, 1, {}, {2});
  Receive(3, 2, 3, {Local(2)});
  Launch(2, 1);
  actions.Take();
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("receive n3[0]"));
  core.ReceiveDone(NodeId(3), 0, absl::OkStatus());
  EXPECT_EQ(Reported(), "through 2 also []");
}

TEST_F(ExecutorCoreTest, ALocalCopyOfAFailedSourceFailsWithItsError) {
  Prepare(2, 1, {}, {2});
  Receive(3, 2, 3, {Local(2)});
  Launch(2, 1);
  actions.Take();
  core.LaunchDone(NodeId(2), absl::UnknownError("boom"), {});
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_EQ(Reported(), "through 2 also [] failed 1: UNKNOWN: boom failed 2: UNKNOWN: boom");
}

// Prepared at once, each a copy of the one before; the client chooses their number.
TEST_F(ExecutorCoreTest, AChainOfLocalCopiesOfAnyLengthFailsWithItsHead) {
  constexpr uint64_t kLinks = kSanitized ? 10'000 : 100'000;
  Receive(1, 1, 1, {Peer()});
  for (uint64_t n = 2; n <= kLinks; ++n) Receive(n, n, n, {Local(n - 1)});
  RunTurns();
  core.ReceiveDone(NodeId(1), 0, absl::UnavailableError("gone"));
  RunTurns();
  const std::vector<Report> reports = TakeReports();
  std::vector<absl::Status> failures;
  for (const Report& report : reports)
    for (const Report::Failure& failure : report.failures) failures.push_back(failure.status);
  ASSERT_EQ(failures.size(), kLinks);
  EXPECT_EQ(Describe(failures.back()), "UNAVAILABLE: gone");
  EXPECT_EQ(reports.back().finished_through, kLinks);
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, ACancelledNodeWhoseLocalCopyWaitedDoesNothingMore) {
  Prepare(2, 1, {}, {2});
  Receive(3, 2, 3, {Local(2)});
  Cancel(3);
  EXPECT_THAT(actions.Take(), ElementsAre("drop 3:0"));
  Launch(2, 1);
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1"));
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, ANodePreparedAnewWaitsForTheReceivesOfItsFirstLife) {
  Receive(3, 1, 3, {Peer(), Peer()});
  EXPECT_THAT(actions.Take(), ElementsAre("receive n3[0]", "receive n3[1]"));
  core.ReceiveDone(NodeId(3), 1, absl::OkStatus());
  Cancel(3);
  Free({3});
  Receive(3, 2, 3, {Peer(), Peer()});
  EXPECT_THAT(actions.Take(), ElementsAre("take back t3", "drop 3:0", "drop 3:0 3:1"));
  core.ReceiveDone(NodeId(3), 0, absl::CancelledError("of the first life"));
  EXPECT_THAT(actions.Take(), ElementsAre("receive n3[0]", "receive n3[1]"));
  core.ReceiveDone(NodeId(3), 0, absl::OkStatus());
  core.ReceiveDone(NodeId(3), 1, absl::OkStatus());
  EXPECT_EQ(Reported(), "through 2 also []");
}

TEST_F(ExecutorCoreTest, ANodePreparedAnewThatFailsAtOnceTakesItsCopiesAlong) {
  Receive(2, 1, 2, {Peer()});
  Receive(3, 2, 3, {Peer()});
  Cancel(3);
  core.ReceiveDone(NodeId(2), 0, absl::UnknownError("boom"));
  Receive(3, 3, 3, {Local(2)});
  Receive(4, 4, 4, {Local(3)});
  EXPECT_EQ(Reported(), "through 2 also [] failed 1: UNKNOWN: boom");
  core.ReceiveDone(NodeId(3), 0, absl::CancelledError("of the first life"));
  EXPECT_EQ(Reported(), "through 4 also [] failed 3: UNKNOWN: boom failed 4: UNKNOWN: boom");
}

TEST_F(ExecutorCoreTest, TheErrorOfTheLowestFailedPieceIsReported) {
  Receive(3, 1, 3, {Peer(), Peer(), Peer()});
  core.ReceiveDone(NodeId(3), 2, absl::UnknownError("two"));
  core.ReceiveDone(NodeId(3), 0, absl::OkStatus());
  core.ReceiveDone(NodeId(3), 1, absl::UnknownError("one"));
  EXPECT_EQ(Reported(), "through 1 also [] failed 1: UNKNOWN: one");
}

TEST_F(ExecutorCoreTest, ANodePreparedTwiceIsRefusedAndTheFirstGoesOn) {
  Prepare(2, 1, {}, {2});
  Prepare(2, 2, {}, {2});
  EXPECT_THAT(Reported(), AllOf(HasSubstr("also [2]"),
                                HasSubstr("failed 2: INTERNAL: node 2: it was prepared twice")));
  Launch(2, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1"));
}

TEST_F(ExecutorCoreTest, ANodeLaunchedTwiceFails) {
  Prepare(2, 1, {}, {2});
  Launch(2, 1);
  Launch(2, 2);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 1"));
  EXPECT_THAT(Reported(), HasSubstr("failed 1: INTERNAL: node 2: it was launched twice"));
}

TEST_F(ExecutorCoreTest, CommandsForUnknownNodesAreIgnored) {
  Launch(2, 1);
  Cancel(2);
  Free({3});
  core.OnCommand(EndSend{TransferId(4)});
  core.LaunchDone(NodeId(5), absl::OkStatus(), {});
  core.ReceiveDone(NodeId(5), 0, absl::OkStatus());
  EXPECT_THAT(actions.Take(), ElementsAre("drop "));
  EXPECT_EQ(Reported(), "through 0 also []");
}

TEST_F(ExecutorCoreTest, FreeingAReceiveAtWorkDropsItAndItsEndIsStillReported) {
  Receive(3, 1, 3, {Peer()});
  Free({3});
  EXPECT_THAT(actions.Take(), ElementsAre("receive n3[0]", "drop 3:0"));
  core.ReceiveDone(NodeId(3), 0, absl::OkStatus());
  EXPECT_EQ(Reported(), "through 1 also []");
  EXPECT_EQ(core.num_shards() + core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, WhatTheClientGaveUpBeforeTheEndDoesNotTravelInline) {
  Prepare(2, 1, {}, {2});
  Launch(2, 1);
  Free({2});
  core.LaunchDone(NodeId(2), absl::OkStatus(), {{{GroupId(2), 0}, Blob::Copy("abcd")}});
  EXPECT_EQ(Reported(), "through 1 also []");
}

TEST_F(ExecutorCoreTest, TheWatermarkStopsAtTheFirstUnfinishedAndTheRestIsListed) {
  for (uint64_t n = 1; n <= 5; ++n) Prepare(n, n, {}, {n});
  for (uint64_t n = 1; n <= 5; ++n) Launch(n, n);
  core.LaunchDone(NodeId(4), absl::OkStatus(), {});
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 0 also [2, 4]");
  EXPECT_EQ(Reported(), "through 0 also []");  // each once
  core.LaunchDone(NodeId(1), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 2 also []");
  core.LaunchDone(NodeId(5), absl::OkStatus(), {});
  core.LaunchDone(NodeId(3), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 5 also []");
}

TEST_F(ExecutorCoreTest, EndsThatTheControllerNeedNotKnowAtOnceMayWait) {
  const auto urgent = [&] {
    EXPECT_FALSE(TakeReports().empty());
    return std::exchange(actions.urgent, false);
  };
  Receive(1, 1, 10, {Peer()});
  core.ReceiveDone(NodeId(1), 0, absl::OkStatus());
  EXPECT_TRUE(urgent()) << "what reads it may wait for it";
  ShardSource bytes;
  bytes.kind = ShardSource::Kind::kInline;
  Receive(2, 2, 20, {bytes});
  core.ReceiveDone(NodeId(2), 0, absl::OkStatus());
  EXPECT_FALSE(urgent()) << "it was certain to come";
  Prepare(3, 3, {10}, {30});
  Launch(3, 1);
  core.LaunchDone(NodeId(3), absl::OkStatus(), {});
  EXPECT_FALSE(urgent());
  Prepare(4, 4, {10}, {40});
  core.OnCommand(CancelNode{NodeId(4), absl::CancelledError("given up")});
  EXPECT_TRUE(urgent());
}

TEST_F(ExecutorCoreTest, InstallationsAreReported) {
  core.OnCommand(InstallExecutable{ExecutableId(1), nullptr, "", {}, {}});
  EXPECT_THAT(actions.Take(), ElementsAre("load x1"));
  core.InstallDone(ExecutableId(1), absl::OkStatus());
  core.InstallDone(ExecutableId(2), absl::DataLossError("damaged"));
  EXPECT_TRUE(actions.wanted);
  EXPECT_EQ(Reported(), "through 0 also [] x1: OK x2: DATA_LOSS: damaged");
  core.OnCommand(DropExecutable{ExecutableId(1)});
  EXPECT_THAT(actions.Take(), ElementsAre("unload x1"));
}

TEST_F(ExecutorCoreTest, ResetForgetsAllButTheLaunchIds) {
  Have(1, 1);
  Prepare(2, 2, {1}, {2});
  Launch(2, 41);
  Send(9, 0, 2);
  core.OnPull(5, TransferId(9), 0);
  core.OnPull(6, TransferId(10), 0);
  actions.Take();
  core.Reset();
  EXPECT_THAT(actions.Take(), ElementsAre("drop 1:0 2:0"));
  EXPECT_EQ(core.num_shards() + core.num_nodes() + core.num_sends() + core.num_pulls(), 0u);
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 0 also []");
  EXPECT_EQ(core.highest_launch_id(), 41u);
  Prepare(2, 1, {}, {2});
  Launch(2, 42);
  core.LaunchDone(NodeId(2), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 1 also []");
}

}  // namespace
}  // namespace fairway
