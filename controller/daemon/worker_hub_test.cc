// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include <gmock/gmock.h>

#include "base/crc32c.h"
#include "controller/daemon/running_clock.h"
#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
constexpr std::string_view kProgram = "program";

TEST_F(WorkerHubTest, RegistersAndTellsTheTermsOfTheLink) {
  const auto executor = ConnectExecutor("w0", 11);
  const auto answer = executor->Next();
  ASSERT_TRUE(answer.has_registered());
  EXPECT_EQ(answer.registered().controller_incarnation(), 77);
  EXPECT_EQ(answer.registered().data_endpoint(), ":4711");
  EXPECT_EQ(answer.registered().deadline_ms(), 10000);
  EXPECT_GT(answer.registered().heartbeat_interval_ms(), 0);
  EXPECT_TRUE(hub_->Connected(ExecutorId(1)));
  EXPECT_FALSE(hub_->Connected(ExecutorId(2)));
  EXPECT_THAT(up_, ElementsAre(11));
}

TEST_F(WorkerHubTest, RefusesWithTheCoresText) {
  refuse_ = absl::InvalidArgumentError("three devices before, two now");
  const auto executor = ConnectExecutor("w0", 11);
  EXPECT_EQ(executor->Next().fence().reason(), "three devices before, two now");
  EXPECT_TRUE(executor->closed);
}

TEST_F(WorkerHubTest, SendsTheCommandsOfOneTurnInOneFrame) {
  const auto executor = ConnectExecutor("w0", 11);
  const uint64_t before = hub_->traffic().sent.messages;
  hub_->Send(ExecutorId(1), FreeGroups{{GroupId(1)}});
  hub_->Send(ExecutorId(1), EndSend{TransferId(2)});
  hub_->Send(ExecutorId(2), EndSend{TransferId(3)});  // not connected: dropped
  EXPECT_THAT(executor->commands, IsEmpty());
  Settle();
  ASSERT_THAT(executor->commands, ElementsAre(SizeIs(2)));
  EXPECT_EQ(std::get<EndSend>(executor->commands[0][1]).transfer, TransferId(2));
  EXPECT_EQ(hub_->traffic().sent.messages, before + 1);
  EXPECT_EQ(hub_->commands_sent(), 2);
  EXPECT_GT(hub_->traffic().sent.bytes, 32);
}

TEST_F(WorkerHubTest, KeepsEntriesUntilTheExecutorHasReportedThem) {
  const auto executor = ConnectExecutor("w0", 11), other = ConnectExecutor("w1", 12);
  hub_->Send(ExecutorId(1), EndSend{TransferId(2)});
  hub_->Send(ExecutorId(2), EndSend{TransferId(2)});
  Settle();
  EXPECT_EQ(hub_->open_entries(), 2u);
  executor->ReportLog();
  Settle();
  EXPECT_EQ(hub_->open_entries(), 1u);
  EXPECT_TRUE(hub_->CheckInvariants().ok());
  other->link.reset();  // its entries concern nobody any more
  Settle();
  EXPECT_EQ(hub_->open_entries(), 0u);
}

TEST_F(WorkerHubTest, WhatIsSentWhileAnExecutorRegistersComesBehindItsRegistration) {
  on_up_ = [this] { hub_->Send(ExecutorId(1), EndSend{TransferId(1)}); };
  const auto executor = ConnectExecutor("w0", 11);
  EXPECT_TRUE(executor->Next().has_registered());
  EXPECT_THAT(executor->commands, ElementsAre(SizeIs(1)));
}

TEST_F(WorkerHubTest, ASuccessorGetsNothingThatWasForTheOneBeforeIt) {
  const auto executor = ConnectExecutor("w0", 11);
  hub_->Send(ExecutorId(1), EndSend{TransferId(1)});
  Settle();
  const auto successor = ConnectExecutor("w0", 12);  // the same process, anew
  hub_->Send(ExecutorId(1), EndSend{TransferId(2)});
  Settle();
  ASSERT_THAT(successor->commands, ElementsAre(SizeIs(1)));
  EXPECT_EQ(std::get<EndSend>(successor->commands[0][0]).transfer, TransferId(2));
  EXPECT_EQ(hub_->open_entries(), 1u);
}

TEST_F(WorkerHubTest, ABadReportOfTheLogEndsTheRegistration) {
  const auto executor = ConnectExecutor("w0", 11);
  const auto liar = ConnectExecutor("w1", 12);
  hub_->Send(ExecutorId(1), EndSend{TransferId(1)});
  executor->SendLogReport("\x01\x02");
  liar->SendLogReport(EncodeLogReport({liar->follower->version(), 0, {{1, 1}}}));
  Settle();
  EXPECT_TRUE(executor->closed);
  EXPECT_TRUE(liar->closed);
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("a bad report of the log")),
                                 Pair(2, HasSubstr("a bad report of the log"))));
}

TEST_F(WorkerHubTest, WhatLetsAnExecutorBeginNothingGoesWithWhatDoesOrWithTheNextTick) {
  const auto executor = ConnectExecutor("w0", 11);
  executor->Next();
  hub_->Send(ExecutorId(1), FreeGroups{{GroupId(1)}});
  PrepareLaunch prepare;
  prepare.node = NodeId(1);
  prepare.seq = 1;
  prepare.executable = ExecutableId(1);
  prepare.devices = {0};
  prepare.inputs = {{}};
  hub_->Send(ExecutorId(1), prepare);
  PrepareReceive receive;
  receive.node = NodeId(2);
  receive.seq = 2;
  receive.transfer = TransferId(2);
  receive.out = GroupPart{GroupId(7), DType::kF32, "", {{0, 0, Shape{{4}}}}};
  receive.sources.resize(1);
  receive.sources[0].kind = ShardSource::Kind::kInline;
  receive.sources[0].bytes = Blob::Copy("aaaabbbbccccdddd");
  receive.has_reader = true;
  hub_->Send(ExecutorId(1), receive);
  Settle();
  EXPECT_THAT(executor->commands, IsEmpty());
  Launch launch;
  launch.node = NodeId(1);
  launch.launch_id = LaunchId(1);
  hub_->Send(ExecutorId(1), launch);
  Settle();
  ASSERT_THAT(executor->commands, ElementsAre(SizeIs(4)));
  hub_->Send(ExecutorId(1), FreeGroups{{GroupId(2)}});
  Settle();
  EXPECT_THAT(executor->commands, SizeIs(1));
  hub_->Tick();
  Settle();
  ASSERT_THAT(executor->commands, SizeIs(2));
  EXPECT_THAT(std::get<FreeGroups>(executor->commands[1][0]).groups, ElementsAre(GroupId(2)));
  // Somebody may wait for what it receives, or pulling the bytes takes a while.
  receive.has_reader = false;
  hub_->Send(ExecutorId(1), receive);
  Settle();
  EXPECT_THAT(executor->commands, SizeIs(3));
  receive.has_reader = true;
  receive.sources[0].kind = ShardSource::Kind::kController;
  receive.sources[0].bytes = nullptr;
  receive.sources[0].ticket = {1, 2};
  hub_->Send(ExecutorId(1), receive);
  Settle();
  EXPECT_THAT(executor->commands, SizeIs(4));
  // Many frees do not wait for a tick.
  for (int i = 0; i < 10000; ++i)
    hub_->Send(ExecutorId(1), FreeGroups{{GroupId(1 + i), GroupId(2 + i), GroupId(3 + i)}});
  Settle();
  EXPECT_GT(executor->commands.size(), 4u);
}

TEST_F(WorkerHubTest, PassesReportsOn) {
  const auto executor = ConnectExecutor("w0", 11);
  v1::ToController message;
  ToProto(Report{}, Incarnation(11), message.mutable_report());
  executor->Send(message);
  Settle();
  EXPECT_THAT(reports_, ElementsAre(Pair(1, 11)));
  EXPECT_EQ(hub_->traffic().received.messages, 1);
  EXPECT_GT(hub_->traffic().received.bytes, 32);
}

TEST_F(WorkerHubTest, ALinkThatEndsWaitsForTheSupervisorsAccount) {
  const auto supervisor = ConnectSupervisor("w0");
  auto executor = ConnectExecutor("w0", 11);
  executor->link.reset();
  Settle();
  EXPECT_TRUE(hub_->Connected(ExecutorId(1))) << "it may come back";
  EXPECT_THAT(lost_, IsEmpty());
  Died(*supervisor, 11, "killed by signal 9");
  ASSERT_THAT(lost_, SizeIs(1));
  EXPECT_EQ(lost_[0].second,
            "killed by signal 9 (host h, pid 100); the last lines of its log:\n"
            "  a log line\n  error: out of \"luck\"");
  Advance(milliseconds(3000));
  EXPECT_THAT(lost_, SizeIs(1));
}

TEST_F(WorkerHubTest, TheSupervisorsAccountMayComeFirst) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  Died(*supervisor, 11, "killed by signal 9");
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("killed by signal 9"))));
  EXPECT_TRUE(executor->closed);
}

TEST_F(WorkerHubTest, AnyBytesMayStandInTheLogOfADeadExecutor) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  v1::ToController message;
  auto* const died = message.mutable_executor_died();
  died->set_incarnation(11);
  died->set_exit_code(1);
  died->set_cause("exited with code 1");
  died->add_last_lines("cut \xe2\x82");
  died->add_last_lines(R"({"level":30,"msg":"a level of another program"})");
  died->add_last_lines(R"({"level":null,"msg":7})");
  supervisor->Send(message);
  Settle();
  ASSERT_THAT(lost_, SizeIs(1));
  EXPECT_EQ(lost_[0].second,
            "exited with code 1 (host h, pid 100); the last lines of its log:\n"
            "  cut ??\n  info: a level of another program\n  {\"level\":null,\"msg\":7}");
}

TEST_F(WorkerHubTest, WithoutAnAccountTheLinksEndIsTheCause) {
  const auto supervisor = ConnectSupervisor("w0");
  auto executor = ConnectExecutor("w0", 11);
  executor->link.reset();
  Settle();
  Advance(milliseconds(2900));
  EXPECT_THAT(lost_, IsEmpty());
  Advance(milliseconds(200));
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("its process ended"))));
}

TEST_F(WorkerHubTest, AnAccountOfAnEarlierIncarnationIsNotTakenForThisOne) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  Died(*supervisor, 10, "killed by signal 9");
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_TRUE(hub_->Connected(ExecutorId(1)));
}

TEST_F(WorkerHubTest, WithoutASupervisorTheLossIsKnownAtOnce) {
  auto executor = ConnectExecutor("w0", 11);
  executor->link.reset();
  Settle();
  EXPECT_THAT(lost_, SizeIs(1));

  auto supervisor = ConnectSupervisor("w0");
  executor = ConnectExecutor("w0", 12);
  executor->link.reset();
  Settle();
  EXPECT_THAT(lost_, SizeIs(1));
  supervisor->link.reset();
  Settle();
  EXPECT_THAT(lost_,
              ElementsAre(Pair(1, HasSubstr("")), Pair(1, HasSubstr("its worker went away too"))));
}

TEST_F(WorkerHubTest, ASuccessorEndsTheWaitForTheCause) {
  const auto supervisor = ConnectSupervisor("w0");
  auto executor = ConnectExecutor("w0", 11);
  executor->link.reset();
  Settle();
  const auto next = ConnectExecutor("w0", 12, 101);
  EXPECT_THAT(lost_, SizeIs(1));
  EXPECT_TRUE(next->Next().has_registered());
  EXPECT_THAT(up_, ElementsAre(11, 12));
}

TEST_F(WorkerHubTest, ASilentExecutorIsLostAtItsDeadlineFencedAndKilled) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  supervisor->received.clear();
  executor->received.clear();
  for (int i = 0; i < 10; ++i) {  // 10.0 s
    Advance(milliseconds(1000));
    Beat(*supervisor);
  }
  EXPECT_THAT(lost_, IsEmpty());
  Advance(milliseconds(100));
  ASSERT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("silent for 10.0 s"))));
  EXPECT_THAT(executor->Next().fence().reason(), HasSubstr("declared lost"));
  EXPECT_TRUE(executor->closed);
  v1::FromController kill;
  while (!kill.has_kill_executor()) kill = supervisor->Next();
  EXPECT_EQ(kill.kill_executor().incarnation(), 11);
  // Its report after it wakes is ignored.
  v1::ToController message;
  ToProto(Report{}, Incarnation(11), message.mutable_report());
  executor->Send(message);
  Settle();
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(WorkerHubTest, HeartbeatsKeepAnExecutorAliveAndAreAcknowledged) {
  const auto executor = ConnectExecutor("w0", 11);
  executor->received.clear();
  for (int i = 0; i < 30; ++i) {
    Advance(milliseconds(1000));
    Beat(*executor);
  }
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_EQ(executor->Next().heartbeat_ack().sequence(), 1);
  EXPECT_THAT(crowded_, IsEmpty());
  Beat(*executor, true);
  EXPECT_THAT(crowded_, ElementsAre(1));
}

TEST_F(WorkerHubTest, AControllerThatWasStoppedItselfBlamesNobody) {
  RunningClock clock(now_, milliseconds(200));
  hub_ = std::make_unique<WorkerHub>(loop_, options_, this, [&clock] { return clock.now(); });
  const auto executor = ConnectExecutor("w0", 11);
  const auto tick = [&](milliseconds later) {
    clock.Advance(now_ += later);
    hub_->Tick();
  };
  tick(milliseconds(60000));
  for (int i = 0; i < 98; ++i) tick(milliseconds(100));
  EXPECT_THAT(lost_, IsEmpty());
  tick(milliseconds(100));
  EXPECT_THAT(lost_, SizeIs(1));
  hub_ = nullptr;
}

TEST_F(WorkerHubTest, AStopOfTheControllerIsNoWaitForTheCauseOfALoss) {
  RunningClock clock(now_, milliseconds(200));
  hub_ = std::make_unique<WorkerHub>(loop_, options_, this, [&clock] { return clock.now(); });
  const auto supervisor = ConnectSupervisor("w0");
  auto executor = ConnectExecutor("w0", 11);
  executor = nullptr;
  Settle();
  clock.Advance(now_ += milliseconds(60000));
  hub_->Tick();  // the supervisor's message is still unread
  Died(*supervisor, 11, "killed by SIGKILL");
  ASSERT_THAT(lost_, SizeIs(1));
  EXPECT_THAT(lost_[0].second, HasSubstr("killed by SIGKILL"));
  hub_ = nullptr;
}

TEST_F(WorkerHubTest, ASecondWorkerWithTheSameNameIsRefused) {
  const auto first = ConnectSupervisor("w0", 10);
  const auto executor = ConnectExecutor("w0", 11, 100);
  const auto second = ConnectSupervisor("w0", 20);
  EXPECT_THAT(second->Next().fence().reason(),
              AllOf(HasSubstr("worker 'w0' is already connected from host h (pid 10)"),
                    HasSubstr("unique")));
  const auto second_executor = ConnectExecutor("w0", 12, 200);
  EXPECT_THAT(second_executor->Next().fence().reason(), HasSubstr("already connected"));
  EXPECT_FALSE(first->closed);
  EXPECT_TRUE(hub_->Connected(ExecutorId(1)));
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(WorkerHubTest, TheSameProcessMayRegisterAnew) {
  const auto old_supervisor = ConnectSupervisor("w0", 10);
  const auto old_executor = ConnectExecutor("w0", 11, 100);
  const auto supervisor = ConnectSupervisor("w0", 10);
  EXPECT_TRUE(supervisor->Next().has_worker_registered());
  const auto executor = ConnectExecutor("w0", 12, 100);
  EXPECT_TRUE(executor->Next().has_registered());
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("registered anew"))));
  EXPECT_TRUE(old_executor->closed);
  EXPECT_TRUE(hub_->Connected(ExecutorId(1)));
  EXPECT_THAT(hub_->Supervisors(), ElementsAre("w0"));
}

TEST_F(WorkerHubTest, ALinkThatDoesNotRegisterIsClosed) {
  const auto far = Connect();
  Advance(milliseconds(9900));
  EXPECT_FALSE(far->closed);
  Advance(milliseconds(300));
  EXPECT_TRUE(far->closed);
}

TEST_F(WorkerHubTest, MalformedMessagesEndALinkAndNothingElse) {
  const auto other = ConnectExecutor("w1", 21, 300);
  const auto executor = ConnectExecutor("w0", 11);
  executor->link->Send(Frame{.type = 1, .payload = "\xff\xff\xff"});
  Settle();
  EXPECT_TRUE(executor->closed);
  EXPECT_THAT(lost_, ElementsAre(Pair(1, HasSubstr("malformed"))));
  EXPECT_FALSE(other->closed);
}

TEST_F(WorkerHubTest, CompilesAtAWorkerOfTheIslandAndSpreadsTheLoad) {
  const auto a = ConnectSupervisor("w0", 10);
  const auto b = ConnectSupervisor("w1", 11);
  const auto elsewhere = ConnectSupervisor("w2", 12, true, "island1");
  const auto none = ConnectSupervisor("w3", 13, false);
  const auto executor_of_a = ConnectExecutor("w0", 20);
  const auto executor_of_b = ConnectExecutor("w1", 21, 101);
  const auto executor_elsewhere = ConnectExecutor("w2", 22, 102, "island1");
  const auto executor_of_none = ConnectExecutor("w3", 23, 103);
  for (const auto* far : {&a, &b, &elsewhere, &none}) (*far)->received.clear();
  std::vector<absl::StatusOr<CompiledCode>> results;
  const auto done = [&](absl::StatusOr<CompiledCode> result) {
    results.push_back(std::move(result));
  };
  hub_->Compile("island0", PackCompileRequest(kProgram, {}), done);
  hub_->Compile("island0", PackCompileRequest(kProgram, {}), done);
  Settle();
  ASSERT_THAT(a->received, SizeIs(1));
  ASSERT_THAT(b->received, SizeIs(1));
  EXPECT_THAT(elsewhere->received, IsEmpty());
  EXPECT_THAT(none->received, IsEmpty());
  v1::ToController message;
  auto* const response = message.mutable_compile_response();
  response->set_id(a->Next().compile_request().id());
  response->set_code("code");
  a->Send(message);
  Settle();
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(results[0]->code, "code");
  response->set_id(b->Next().compile_request().id());
  *response->mutable_status() = ToProto(absl::InvalidArgumentError("no such op"));
  b->Send(message);
  b->Send(message);  // twice: the second is ignored
  Settle();
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_EQ(results[1].status(), absl::InvalidArgumentError("no such op"));
}

TEST_F(WorkerHubTest, AProgramThatWasPackedIsNotCopied) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  const std::string program(1 << 20, 'x');
  v1::CompileOptions options;
  options.set_num_replicas(3);
  Frame request = PackCompileRequest(program, options);
  const char* const bytes = request.payload.data();
  std::optional<Frame> sent;
  supervisor->link->on_frame = [&](Frame frame) { sent = std::move(frame); };
  hub_->Compile("island0", std::move(request), [](const absl::StatusOr<CompiledCode>&) {});
  Settle();
  ASSERT_TRUE(sent.has_value());
  EXPECT_EQ(sent->payload.data(), bytes);
  EXPECT_EQ(sent->crc, Crc32c(sent->payload));
  v1::FromController message;
  ASSERT_TRUE(UnpackFrame(*sent, &message).ok());
  EXPECT_NE(message.compile_request().id(), 0u);
  EXPECT_EQ(message.compile_request().program(), program);
  EXPECT_EQ(message.compile_request().options().num_replicas(), 3);
}

TEST_F(WorkerHubTest, CompilationsFailWhenTheWorkerGoesOrNoneIsThere) {
  const auto executor = ConnectExecutor("w0", 11);
  auto supervisor = ConnectSupervisor("w0");
  std::vector<absl::Status> results;
  const auto done = [&](absl::StatusOr<CompiledCode> result) {
    results.push_back(result.status());
  };
  hub_->Compile("island0", PackCompileRequest(kProgram, {}), done);
  Settle();
  supervisor->link.reset();
  Settle();
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_THAT(Text(results[0]), HasSubstr("worker w0 went away while it compiled"));
  hub_->Compile("island0", PackCompileRequest(kProgram, {}), done);
  Settle();
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerHubTest, AWorkerWhoseExecutorWasRefusedCompilesNothing) {
  const auto stray = ConnectSupervisor("a9", 9);
  refuse_ = absl::InvalidArgumentError("island0 has its 1 workers already");
  ConnectExecutor("a9", 19);
  refuse_ = absl::OkStatus();
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  stray->received.clear();
  supervisor->received.clear();
  hub_->Compile("island0", PackCompileRequest(kProgram, {}),
                [](const absl::StatusOr<CompiledCode>&) {});
  Settle();
  EXPECT_THAT(stray->received, IsEmpty());
  ASSERT_THAT(supervisor->received, SizeIs(1));
  EXPECT_TRUE(supervisor->Next().has_compile_request());
}

TEST_F(WorkerHubTest, AWorkerCompilesWhileItsExecutorIsStartedAnewAndASuccessorOnlyOnceItsIsUp) {
  auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  Died(*supervisor, 11, "killed by signal 9");
  supervisor->received.clear();
  std::vector<absl::Status> results;
  const auto compile = [&] {
    hub_->Compile(
        "island0", PackCompileRequest(kProgram, {}),
        [&](const absl::StatusOr<CompiledCode>& result) { results.push_back(result.status()); });
    Settle();
  };
  compile();
  EXPECT_THAT(supervisor->received, SizeIs(1));
  EXPECT_THAT(results, IsEmpty());
  supervisor->link.reset();
  Settle();
  // On a host of another kind, say.
  supervisor = ConnectSupervisor("w0", 20);
  supervisor->received.clear();
  compile();
  EXPECT_THAT(supervisor->received, IsEmpty());
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(results[1]), HasSubstr("no worker of island0"));
  const auto next = ConnectExecutor("w0", 12, 101);
  compile();
  EXPECT_THAT(supervisor->received, SizeIs(1));
}

TEST_F(WorkerHubTest, CountsBytesBetweenIslandsOnce) {
  const auto a = ConnectExecutor("w0", 11, 100, "island0");
  const auto b = ConnectExecutor("w1", 21, 101, "island1");
  v1::ToController message;
  auto* const pulled = message.mutable_heartbeat()->add_pulled();
  pulled->set_endpoint("w0:1");
  pulled->set_bytes(100);
  auto* const upload = message.mutable_heartbeat()->add_pulled();
  upload->set_endpoint("controller:1");
  upload->set_bytes(5);
  b->Send(message);
  pulled->set_bytes(250);
  b->Send(message);
  b->Send(message);
  Settle();
  EXPECT_THAT(hub_->transferred_bytes(), ElementsAre(Pair(Pair("island0", "island1"), 250)));
}

TEST_F(WorkerHubTest, KnowsTheLongestTurnOfAnExecutorsLoopOverItsIncarnations) {
  const auto says = [&](FarEnd& executor, uint64_t units, uint64_t nanoseconds) {
    v1::ToController message;
    message.mutable_heartbeat()->set_turn_units_max(units);
    message.mutable_heartbeat()->set_handler_cpu_ns_max(nanoseconds);
    executor.Send(message);
    Settle();
    return hub_->Said().loads.at(ExecutorId(1));
  };
  auto executor = ConnectExecutor("w0", 11);
  EXPECT_EQ(says(*executor, 900, 3000000).turn_units, 900u);
  executor->link.reset();
  Settle();
  Advance(milliseconds(5000));
  const auto again = ConnectExecutor("w0", 12);
  const LoopLoad load = says(*again, 20, 4000000);
  EXPECT_EQ(load.turn_units, 900u);
  EXPECT_EQ(load.handler, std::chrono::milliseconds(4));
}

TEST_F(WorkerHubTest, KnowsHowAnExecutorKeepsUp) {
  const auto executor = ConnectExecutor("w0", 11);
  const auto health = [&] { return hub_->Health().at(ExecutorId(1)); };
  EXPECT_EQ(health().round_trip.count(), 0);
  v1::ToController message;
  message.mutable_heartbeat()->set_round_trip_ns(1500);
  executor->Send(message);
  Settle();
  EXPECT_EQ(health().round_trip.count(), 1500);
  message.mutable_heartbeat()->set_round_trip_ns(~uint64_t{0});
  executor->Send(message);
  Settle();
  EXPECT_GT(health().round_trip.count(), 0) << "executors may say anything";
  hub_->Send(ExecutorId(1), FreeGroups{{GroupId(1)}});
  Advance(milliseconds(2000));
  EXPECT_EQ(health().open_entries, 1u);
  EXPECT_GE(health().still, milliseconds(1000));
}

TEST_F(WorkerHubTest, TellsSupervisorsToStop) {
  const auto supervisor = ConnectSupervisor("w0");
  supervisor->received.clear();
  hub_->StopWorkers("the end");
  Settle();
  EXPECT_EQ(supervisor->Next().stop_worker().reason(), "the end");
}

}  // namespace
}  // namespace fairway
