// SPDX-License-Identifier: Apache-2.0
// The shell with the real core, real links and real data planes on loopback. The test plays the
// executors.
#include "controller/daemon/controller_shell.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "controller/daemon/metrics.h"
#include "log/follower.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kFloats = 64 << 10;  // of an array too large for inline uploads and results

const auto kProgram = std::make_shared<const std::string>("program");

std::shared_ptr<Blob> Pattern(int64_t bytes) {
  auto blob = Blob::Make(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < bytes; ++i) blob->data()[i] = static_cast<char>(i * 7);
  return blob;
}

class ControllerShellTest : public ::testing::Test, private SessionSink {
 protected:
  // An executor as the controller sees it. Keeps the commands it receives, and serves one blob.
  struct FakeExecutor {
    std::string worker;
    uint64_t incarnation = 0;
    std::unique_ptr<DataPlane> plane;
    std::unique_ptr<Link> link;
    std::optional<v1::Registered> registered;
    std::optional<LogFollower> follower;
    std::deque<Command> commands;
    std::shared_ptr<Blob> serves;
    uint64_t finished = 0;
    bool closed = false;
  };

  void Start(ControllerOptions options = {}) {
    options.cluster.stored_array_bytes = -1;  // uploads go to their devices
    auto shell = ControllerShell::Start(loop_, options);
    ASSERT_TRUE(shell.ok()) << shell.status();
    shell_ = *std::move(shell);
  }

  SessionId OpenSession() {
    const SessionId session = shell_->cluster().sessions().Open("t").value();
    shell_->cluster().sessions().SetSink(session, this);
    return session;
  }
  void OnWatched(SessionId, uint64_t token, absl::Status status) override {
    watched_[token] = std::move(status);
  }
  void OnFetched(SessionId, uint64_t token, absl::StatusOr<BytesRef> bytes) override {
    fetched_[token] = std::move(bytes);
  }
  void OnBound(SessionId, uint64_t, absl::StatusOr<uint64_t>) override {}

  // Runs the loop until `condition` holds; fails after two minutes.
  template <typename Condition>
  ::testing::AssertionResult Until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end)
        return ::testing::AssertionFailure() << "waited two minutes in vain";
      loop_.PostAfter(milliseconds(1), "stop", [this] { loop_.Stop(); });
      loop_.Run();
    }
    return ::testing::AssertionSuccess();
  }

  // Links are used only in the loop.
  void Send(Link& link, const v1::ToController& message) {
    bool sent = false;
    loop_.Post("send", [&] {
      link.Send(PackFrame(message));
      sent = true;
    });
    EXPECT_TRUE(Until([&] { return sent; }));
  }

  std::unique_ptr<Link> Connect() {
    std::unique_ptr<Link> link;
    ConnectTcp(loop_, fmt::format("127.0.0.1:{}", shell_->link_port()), milliseconds(120000),
               [&](absl::StatusOr<std::unique_ptr<Link>> result) {
                 ASSERT_TRUE(result.ok()) << result.status();
                 link = *std::move(result);
                 link->on_frame = [](Frame) {};
                 link->on_closed = [](absl::Status) {};
               });
    EXPECT_TRUE(Until([&] { return link != nullptr; }));
    return link;
  }

  static void TakeCommands(FakeExecutor& executor, const std::string& bytes) {
    const auto frame = DecodeLogFrame(bytes);
    ASSERT_TRUE(frame.ok() && executor.follower) << frame.status();
    const auto fresh = executor.follower->Take(*frame);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    for (const LogFrame::Received& entry : *fresh) {
      auto command = DecodeCommand(entry.body);
      ASSERT_TRUE(command.ok()) << command.status();
      executor.commands.push_back(*std::move(command));
      ASSERT_TRUE(executor.follower->Ended(entry.header.number).ok());
    }
  }

  std::unique_ptr<FakeExecutor> AddExecutor(const std::string& worker, const std::string& island,
                                            uint64_t incarnation, int island_workers = 1) {
    auto executor = std::make_unique<FakeExecutor>();
    FakeExecutor& e = *executor;
    e.worker = worker;
    e.incarnation = incarnation;
    auto plane =
        MakeTcpDataPlane(loop_, "127.0.0.1:0", "127.0.0.1", Incarnation(incarnation),
                         PortKey{incarnation, 1}, [&e](PullRequest, DataPlane::Answer answer) {
                           if (e.serves != nullptr) answer(DataView{e.serves->view(), e.serves});
                         });
    EXPECT_TRUE(plane.ok());
    e.plane = *std::move(plane);
    e.link = Connect();
    e.link->on_closed = [&e](absl::Status) { e.closed = true; };
    e.link->on_frame = [&e](const Frame& frame) {
      if (frame.type == kLogFrame) return TakeCommands(e, frame.payload);
      v1::FromController message;
      ASSERT_TRUE(UnpackFrame(frame, &message).ok());
      if (!message.has_registered()) return;
      e.registered = message.registered();
      e.follower.emplace(message.registered().executor());
    };
    v1::ToController message;
    auto* const registration = message.mutable_register_executor();
    registration->set_protocol(kLinkProtocol);
    registration->set_host("h");
    registration->set_pid(100);
    ExecutorSpec spec;
    spec.worker = worker;
    spec.island = island;
    spec.incarnation = Incarnation(incarnation);
    spec.runtime = "fake";
    spec.platform_name = "cpu";
    spec.memory_kinds = {"device"};
    spec.num_devices = 1;
    spec.island_workers = island_workers;
    spec.data_endpoint = e.plane->endpoint();
    spec.data_key = {incarnation, 1};
    ToProto(spec, registration->mutable_spec());
    Send(*e.link, message);
    EXPECT_TRUE(Until([&] { return e.registered.has_value(); }));
    return executor;
  }

  std::unique_ptr<Link> AddSupervisor(const std::string& worker, const std::string& island,
                                      bool has_compiler = false) {
    auto link = Connect();
    v1::ToController message;
    auto* const registration = message.mutable_register_worker();
    registration->set_protocol(kLinkProtocol);
    registration->set_worker(worker);
    registration->set_island(island);
    registration->set_host("h");
    registration->set_pid(99);
    registration->set_has_compiler(has_compiler);
    Send(*link, message);
    EXPECT_TRUE(Until([&] { return shell_->Snapshot().supervisors.contains(worker); }));
    return link;
  }

  // Adds an island, loses it, and waits until it is forgotten: so are earlier ones that may be.
  void ForgetAnother() {
    AddExecutor("another", "another", 99)->link.reset();
    const auto is_another = [](const ExecutorStatus& e) { return e.spec.worker == "another"; };
    ASSERT_TRUE(
        Until([&] { return std::ranges::none_of(shell_->Snapshot().executors, is_another); }));
  }

  // The next command of this kind; others are skipped.
  template <typename Kind>
  Kind Await(FakeExecutor& executor) {
    Kind out;
    EXPECT_TRUE(Until([&] {
      while (!executor.commands.empty()) {
        Command command = std::move(executor.commands.front());
        executor.commands.pop_front();
        if (auto* const found = std::get_if<Kind>(&command)) {
          out = std::move(*found);
          return true;
        }
      }
      return false;
    }));
    return out;
  }

  void Finish(FakeExecutor& executor, uint64_t seq, absl::Status status = absl::OkStatus()) {
    Report report;
    executor.finished = std::max(executor.finished, seq);
    report.finished_through = executor.finished;
    if (!status.ok()) report.failures.push_back({seq, std::move(status)});
    v1::ToController message;
    ToProto(report, Incarnation(executor.incarnation), message.mutable_report());
    Send(*executor.link, message);
  }

  // Puts an array of kFloats on the session's device `device`; its bytes are given at once.
  uint64_t Put(SessionId session, int device, std::shared_ptr<Blob> bytes) {
    const ArraySpec spec{DType::kF32, Shape{{static_cast<int64_t>(bytes->size()) / 4}},
                         Sharding::SingleDevice(device)};
    const auto put = shell_->cluster().arrays().Put(session, 0, spec, {0});
    EXPECT_TRUE(put.ok()) << put.status();
    shell_->cluster().arrays().ProvideUpload(put->upload, 0, BytesRef(std::move(bytes)));
    return put->handle;
  }

  // The same; the executor also receives it.
  uint64_t PutAndReceive(SessionId session, int device, FakeExecutor& executor) {
    const uint64_t handle = Put(session, device, Pattern(kFloats * 4));
    Finish(executor, Await<PrepareReceive>(executor).seq);
    shell_->cluster().arrays().Watch(session, 1000 + handle, {handle});
    EXPECT_TRUE(Until([&] { return watched_.contains(1000 + handle); }));
    EXPECT_TRUE(watched_[1000 + handle].ok()) << watched_[1000 + handle];
    return handle;
  }

  EventLoop loop_;
  std::unique_ptr<ControllerShell> shell_;
  std::map<uint64_t, absl::Status> watched_;
  std::map<uint64_t, absl::StatusOr<BytesRef>> fetched_;
};

TEST_F(ControllerShellTest, ServesUploadsOnItsDataPortUntilTheyAreReceived) {
  Start();
  const auto executor = AddExecutor("w0", "island0", 11);
  const SessionId session = OpenSession();
  const auto bytes = Pattern(kFloats * 4);
  Put(session, 0, bytes);
  const auto receive = Await<PrepareReceive>(*executor);
  ASSERT_EQ(receive.sources.size(), 1);
  ASSERT_EQ(receive.sources[0].kind, ShardSource::Kind::kController);

  const std::string endpoint = "127.0.0.1" + executor->registered->data_endpoint();
  const Incarnation controller(executor->registered->controller_incarnation());
  const auto pull_with = [&](const Ticket& ticket) {
    std::optional<absl::StatusOr<std::shared_ptr<Blob>>> result;
    PullRequest request;
    request.transfer = receive.transfer;
    request.index = receive.sources[0].index;
    request.ticket = ticket;
    executor->plane->Pull(
        endpoint, controller, request, kFloats * 4,
        [&](absl::StatusOr<std::shared_ptr<Blob>> blob) { result = std::move(blob); });
    EXPECT_TRUE(Until([&] { return result.has_value(); }));
    return *std::move(result);
  };
  const auto pull = [&] { return pull_with(receive.sources[0].ticket); };
  EXPECT_EQ(pull_with({}).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(pull_with({1, 2}).status().code(), absl::StatusCode::kPermissionDenied);
  const auto blob = pull();
  ASSERT_TRUE(blob.ok()) << blob.status();
  EXPECT_EQ((*blob)->view(), bytes->view());
  EXPECT_TRUE(Until([&] { return shell_->Snapshot().uploaded_bytes == kFloats * 4; }));

  Finish(*executor, receive.seq);
  EXPECT_TRUE(Until([&] { return shell_->Snapshot().counts.nodes == 0; }));
  EXPECT_EQ(pull().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ControllerShellTest, CountsUploadsThatTravelWithTheirCommand) {
  Start();
  const auto executor = AddExecutor("w0", "island0", 11);
  const SessionId session = OpenSession();
  Put(session, 0, Pattern(64));
  const auto receive = Await<PrepareReceive>(*executor);
  ASSERT_EQ(receive.sources[0].kind, ShardSource::Kind::kInline);
  EXPECT_EQ(receive.sources[0].bytes->view(), Pattern(64)->view());
  EXPECT_EQ(shell_->Snapshot().uploaded_bytes, 64);
}

TEST_F(ControllerShellTest, PullsFetchesFromTheExecutor) {
  Start();
  const auto executor = AddExecutor("w0", "island0", 11);
  const SessionId session = OpenSession();
  const uint64_t array = PutAndReceive(session, 0, *executor);
  executor->serves = Pattern(kFloats * 4);
  shell_->cluster().arrays().Fetch(session, 7, array);
  ASSERT_TRUE(Until([&] { return fetched_.contains(7); }));
  ASSERT_TRUE(fetched_[7].ok()) << fetched_[7].status();
  EXPECT_EQ((*fetched_[7])->view(), executor->serves->view());
  const ControllerSnapshot snapshot = shell_->Snapshot();
  EXPECT_EQ(snapshot.fetched_bytes, kFloats * 4);
  EXPECT_EQ(snapshot.executor_fetches.at(ExecutorId(1)), 1);
  EXPECT_EQ(snapshot.counts.executor_fetches, 1);
}

TEST_F(ControllerShellTest, AFetchFromADyingExecutorTellsTheCauseAndNotThatItCannotBeReached) {
  Start();
  const auto supervisor = AddSupervisor("w0", "island0");
  auto executor = AddExecutor("w0", "island0", 11);
  const SessionId session = OpenSession();
  const uint64_t array = PutAndReceive(session, 0, *executor);
  executor->plane.reset();  // its data port is gone; the news of its death is still on its way
  shell_->cluster().arrays().Fetch(session, 7, array);
  Await<PrepareSend>(*executor);
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_TRUE(Until([&] { return std::chrono::steady_clock::now() > asked + milliseconds(100); }));
  EXPECT_FALSE(fetched_.contains(7));
  v1::ToController message;
  message.mutable_executor_died()->set_incarnation(11);
  message.mutable_executor_died()->set_signal(9);
  message.mutable_executor_died()->set_cause("killed by SIGKILL");
  Send(*supervisor, message);
  ASSERT_TRUE(Until([&] { return fetched_.contains(7); }));
  EXPECT_EQ(fetched_[7].status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Text(fetched_[7].status()), HasSubstr("killed by SIGKILL"));
}

TEST_F(ControllerShellTest, APeerThatCannotReachADyingExecutorDoesNotHideTheCause) {
  Start();
  const auto supervisor = AddSupervisor("w0", "island0");
  const auto source = AddExecutor("w0", "island0", 11);
  const auto peer = AddExecutor("w1", "island1", 21);
  const SessionId session = OpenSession();
  const uint64_t array = PutAndReceive(session, 0, *source);
  const auto copy = shell_->cluster().arrays().Copy(session, {array}, std::vector<int32_t>{1},
                                                    std::nullopt, CopySemantics::kAlwaysCopy, {0});
  ASSERT_TRUE(copy.ok()) << copy.status();
  const auto receive = Await<PrepareReceive>(*peer);
  ASSERT_EQ(receive.sources[0].kind, ShardSource::Kind::kPeer);
  shell_->cluster().arrays().Watch(session, 8, {copy->front()});
  Finish(*peer, receive.seq, absl::UnavailableError("peer went away"));
  const auto reported = std::chrono::steady_clock::now();
  EXPECT_TRUE(
      Until([&] { return std::chrono::steady_clock::now() > reported + milliseconds(100); }));
  EXPECT_FALSE(watched_.contains(8));
  v1::ToController message;
  message.mutable_executor_died()->set_incarnation(11);
  message.mutable_executor_died()->set_cause("killed by SIGKILL");
  Send(*supervisor, message);
  ASSERT_TRUE(Until([&] { return watched_.contains(8); }));
  EXPECT_THAT(Text(watched_[8]), HasSubstr("killed by SIGKILL"));
}

TEST_F(ControllerShellTest, GivesAnIslandUpAfterItsTimeout) {
  ControllerOptions options;
  options.island_timeout = milliseconds(300);
  Start(options);
  auto executor = AddExecutor("w0", "island0", 11);
  const auto other = AddExecutor("w1", "island1", 21);
  std::vector<size_t> up;
  shell_->set_on_islands([&](size_t islands) { up.push_back(islands); });
  const SessionId session = OpenSession();
  executor->link.reset();
  EXPECT_TRUE(Until([&] { return shell_->islands_up() == 1; }));
  const uint64_t array = Put(session, 0, Pattern(64));  // waits for the island
  shell_->cluster().arrays().Watch(session, 9, {array});
  ASSERT_TRUE(Until([&] { return watched_.contains(9); }));
  EXPECT_EQ(watched_[9].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(watched_[9]),
              AllOf(HasSubstr("island0"), HasSubstr("did not come back within 300ms"),
                    HasSubstr("its process ended")));
  // The island may still come back, and be given up again.
  executor = AddExecutor("w0", "island0", 12);
  EXPECT_TRUE(Until([&] { return shell_->islands_up() == 2; }));
  EXPECT_THAT(up, ElementsAre(1, 2));
  executor->link.reset();
  EXPECT_TRUE(Until([&] { return shell_->islands_up() == 1; }));
  shell_->cluster().arrays().Watch(session, 10, {Put(session, 0, Pattern(64))});
  EXPECT_TRUE(Until([&] { return watched_.contains(10); }));
}

TEST_F(ControllerShellTest, ForgetsAnIslandThatNobodyComesBackTo) {
  ControllerOptions options;
  options.forget_after = milliseconds(200);
  Start(options);
  auto executor = AddExecutor("w0", "island0", 11);
  const auto other = AddExecutor("w1", "island1", 21);
  const auto known = [&] { return shell_->Snapshot().executors.size(); };
  const ExecutorId before = shell_->Snapshot().executors[0].id;
  executor->link.reset();
  ASSERT_TRUE(Until([&] { return known() == 1; }));
  EXPECT_EQ(shell_->Snapshot().islands.size(), 1u);
  EXPECT_THAT(MetricsText(shell_->Snapshot()), Not(HasSubstr("island0")));
  EXPECT_THAT(Text(shell_->RestartExecutor("w0", "x").status()), HasSubstr("of w1"));
  // The executor comes back as a new one.
  executor = AddExecutor("w0", "island0", 12);
  ASSERT_TRUE(Until([&] { return shell_->islands_up() == 2; }));
  EXPECT_NE(shell_->Snapshot().executors[0].id, before);

  // A session that knows the island may wait for it.
  const SessionId session = OpenSession();
  executor->link.reset();
  ASSERT_TRUE(Until([&] { return shell_->islands_up() == 1; }));
  ForgetAnother();
  EXPECT_EQ(known(), 2u);
  shell_->cluster().sessions().Close(session);
  ASSERT_TRUE(Until([&] { return known() == 1; }));
}

TEST_F(ControllerShellTest, WhatHappensToIslandsIsTold) {
  std::vector<std::string> told;
  const auto last = [&](std::string_view part) {
    return Until([&] { return !told.empty() && told.back().find(part) != std::string::npos; });
  };
  ControllerOptions options;
  options.link_grace = milliseconds(0);
  options.forget_after = milliseconds(2000);
  options.island_timeout = milliseconds(500);
  options.note = [&](const NewEvent& event) {
    EXPECT_EQ(event.open, event.kind == EventKind::kFleet);
    told.push_back(fmt::format("{}{} {}: {}", event.warning ? "! " : "", event.reason, event.object,
                               event.text));
  };
  Start(options);
  auto executor = AddExecutor("w0", "island0", 11, 2);
  EXPECT_THAT(told, ElementsAre()) << "its other worker is not there";
  auto other = AddExecutor("w1", "island0", 21, 2);
  EXPECT_TRUE(last("IslandUp island island0: it is up: 2 workers"));
  executor->link.reset();
  EXPECT_TRUE(last("! IslandLost island island0: it is down: it has lost an executor"));
  EXPECT_THAT(told.at(1), HasSubstr("! ExecutorLost worker w0: its executor was lost: "));
  executor = AddExecutor("w0", "island0", 12, 2);
  EXPECT_TRUE(last("IslandBack island island0: it is up again: 2 workers"));
  const auto refused = Connect();
  v1::ToController message;
  message.mutable_register_executor()->set_protocol(1);
  Send(*refused, message);
  EXPECT_TRUE(last("! WorkerRefused host 127.0.0.1: a worker was refused: "));
  executor->link.reset();
  EXPECT_TRUE(last("! IslandLost"));
  EXPECT_TRUE(last("! IslandGivenUp island island0: it was down for 500ms (--island-timeout)"));
  other->link.reset();
  EXPECT_TRUE(
      last("IslandForgotten island island0: it is forgotten: none of its workers was there"));
}

TEST_F(ControllerShellTest, AnIslandWhoseWorkerIsThereIsNotForgotten) {
  ControllerOptions options;
  options.link_grace = milliseconds(0);
  options.forget_after = milliseconds(100);
  Start(options);
  auto executor = AddExecutor("w0", "island0", 11);
  auto supervisor = AddSupervisor("w0", "island0");
  executor->link.reset();
  ASSERT_TRUE(Until([&] { return shell_->islands_up() == 0; }));
  ForgetAnother();
  EXPECT_EQ(shell_->Snapshot().executors.size(), 1u);
  supervisor.reset();
  ASSERT_TRUE(Until([&] { return shell_->Snapshot().executors.empty(); }));
}

TEST_F(ControllerShellTest, AWorkerTakesThePlaceOfOneThatIsGoneForGood) {
  ControllerOptions options;
  options.forget_after = milliseconds(200);
  Start(options);
  const auto stays = AddExecutor("w0", "island0", 11, 2);
  auto goes = AddExecutor("w1", "island0", 21, 2);
  ASSERT_TRUE(Until([&] { return shell_->islands_up() == 1; }));
  const SessionId session = OpenSession();
  shell_->cluster().arrays().Watch(session, 1, {PutAndReceive(session, 0, *stays)});
  goes->link.reset();
  ASSERT_TRUE(Until([&] { return shell_->islands_up() == 0; }));
  ForgetAnother();
  EXPECT_EQ(shell_->Snapshot().executors.size(), 2u) << "one of them is there";
  // The island begins anew: the executor that stayed is ended, so that it joins the new one.
  const auto comes = AddExecutor("w2", "island0", 31, 2);
  ASSERT_TRUE(Until([&] { return stays->closed; }));
  ASSERT_EQ(shell_->Snapshot().executors.size(), 1u);
  const auto again = AddExecutor("w0", "island0", 12, 2);
  ASSERT_TRUE(Until([&] { return shell_->islands_up() == 1; }));
  // The old session has lost its arrays there; a new session sees the new island.
  const uint64_t there = Put(session, 0, Pattern(64));
  shell_->cluster().arrays().Watch(session, 2, {there});
  ASSERT_TRUE(Until([&] { return watched_.contains(2); }));
  EXPECT_THAT(Text(watched_[2]),
              AllOf(HasSubstr("worker w2 takes the place of w1"), HasSubstr("open a new session")));
  const SessionId next = OpenSession();
  EXPECT_EQ(shell_->cluster().sessions().Devices(next).size(), 2u);
  EXPECT_EQ(shell_->cluster().sessions().Devices(next)[1].worker, "w2");
  EXPECT_TRUE(shell_->cluster().inspection().CheckInvariants().ok());
}

TEST_F(ControllerShellTest, ACompilationWhoseWorkersLinkBreaksIsAskedAgainElsewhere) {
  Start();
  const auto executor = AddExecutor("w0", "island0", 11);
  const auto other = AddExecutor("w1", "island1", 21);
  auto supervisor = AddSupervisor("w0", "island0", true);
  auto elsewhere = AddSupervisor("w1", "island1", true);
  std::vector<uint64_t> asked, asked_elsewhere;
  const auto note = [](std::vector<uint64_t>& ids) {
    return [&ids](const Frame& frame) {
      v1::FromController message;
      ASSERT_TRUE(UnpackFrame(frame, &message).ok());
      if (message.has_compile_request()) ids.push_back(message.compile_request().id());
    };
  };
  supervisor->on_frame = note(asked);
  elsewhere->on_frame = note(asked_elsewhere);
  const SessionId session = OpenSession();
  const VirtualDevice device = shell_->cluster().sessions().Devices(session)[0];
  std::optional<absl::StatusOr<CompiledProgram>> result;
  v1::CompileOptions compile;
  compile.set_num_replicas(1);
  compile.set_num_partitions(1);
  loop_.Post("compile", [&] {
    shell_->compiler().Compile(KnownProgram(kProgram), compile,
                               {session, device.island_id, {device.device}},
                               [&](absl::StatusOr<CompiledProgram> done) { result = done; });
  });
  ASSERT_TRUE(Until([&] { return asked.size() == 1; }));
  EXPECT_TRUE(asked_elsewhere.empty());
  supervisor.reset();
  ASSERT_TRUE(Until([&] { return asked_elsewhere.size() == 1; }));
  EXPECT_FALSE(result.has_value());
  v1::ToController message;
  message.mutable_compile_response()->set_id(asked_elsewhere[0]);
  message.mutable_compile_response()->set_code("code");
  message.mutable_compile_response()->mutable_metadata()->set_num_devices(1);
  Send(*elsewhere, message);
  ASSERT_TRUE(Until([&] { return result.has_value(); }));
  EXPECT_TRUE(result->ok()) << result->status();
}

TEST_F(ControllerShellTest, WhatWaitsForAnIslandIsSentToItsNextIncarnation) {
  Start();
  auto executor = AddExecutor("w0", "island0", 11);
  const SessionId session = OpenSession();
  executor->link.reset();
  EXPECT_TRUE(Until([&] { return shell_->islands_up() == 0; }));
  const uint64_t array = Put(session, 0, Pattern(64));
  shell_->cluster().arrays().Watch(session, 11, {array});
  executor = AddExecutor("w0", "island0", 12);
  Finish(*executor, Await<PrepareReceive>(*executor).seq);
  ASSERT_TRUE(Until([&] { return watched_.contains(11); }));
  EXPECT_TRUE(watched_[11].ok()) << watched_[11];
}

TEST_F(ControllerShellTest, CompilingWithoutACompilerIsUnavailable) {
  Start();
  const auto executor = AddExecutor("w0", "island0", 11);
  std::vector<absl::Status> results;
  const auto done = [&](absl::StatusOr<CompiledCode> result) {
    results.push_back(result.status());
  };
  shell_->Compile(SessionId(1), shell_->cluster().fleet().Islands()[0].id, kProgram, {}, done);
  shell_->Compile(SessionId(1), IslandId(99), kProgram, {}, done);
  ASSERT_TRUE(Until([&] { return results.size() == 2; }));
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(results[1].code(), absl::StatusCode::kNotFound);
}

TEST_F(ControllerShellTest, NamesFlagAndPortThatAreTaken) {
  Start();
  EventLoop other;
  ControllerOptions options;
  options.link_port = shell_->link_port();
  auto status = ControllerShell::Start(other, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(status), HasSubstr(fmt::format("--link-port={}", shell_->link_port())));
  options.link_port = 0;
  options.data_port = shell_->data_port();
  status = ControllerShell::Start(other, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(status), HasSubstr(fmt::format("--data-port={}", shell_->data_port())));
}

}  // namespace
}  // namespace fairway
