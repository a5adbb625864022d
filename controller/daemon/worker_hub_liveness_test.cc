// SPDX-License-Identifier: Apache-2.0
// Silent hosts and silent processes. The test plays the links and moves the clock.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/daemon/worker_hub.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

// What the hub does with one of its links.
struct Seen {
  std::string peer;
  Link* link = nullptr;
  bool watched = false;
  size_t most_payload = kMaxFrameBytes;
  bool closed = false;
  std::vector<v1::FromController> messages;
};

class PlayedLink final : public Link {
 public:
  explicit PlayedLink(Seen& seen) : seen_(seen) { seen_.link = this; }
  ~PlayedLink() override { seen_.link = nullptr; }
  void Send(Frame frame) override {
    if (frame.type == kLogFrame) return;
    ASSERT_TRUE(UnpackFrame(frame, &seen_.messages.emplace_back()).ok());
  }
  size_t queued_bytes() const override { return 0; }
  void Close() override { seen_.closed = true; }
  std::string peer() const override { return seen_.peer; }
  void WatchHost() override { seen_.watched = true; }
  void LimitFrames(size_t bytes) override { seen_.most_payload = bytes; }

 private:
  Seen& seen_;
};

class LivenessTest : public ::testing::Test, public WorkerHubEvents {
 protected:
  LivenessTest() {
    executor_ = &Register("w0", 11);
    supervisor_ = &RegisterSupervisor("w0");
  }

  absl::StatusOr<ExecutorId> OnExecutorUp(const ExecutorSpec& spec) override {
    return ExecutorId(static_cast<uint32_t>(1 + spec.worker.back() - '0'));  // w0: 1
  }
  void OnExecutorLost(ExecutorId, const absl::Status& cause) override {
    lost_.push_back(Text(cause));
  }
  void OnCrowded(ExecutorId) override {}
  void OnCallback(ExecutorId, CallbackCall) override {}
  void OnCallbackGivenUp(ExecutorId, uint64_t) override {}
  void OnReport(ExecutorId, Incarnation, Report) override {}
  void OnLaunchesEnded(std::vector<NodeId>) override {}

  Seen& Accept(const std::string& peer = "10.0.0.1:1") {
    Seen& seen = seen_.emplace_back();
    seen.peer = peer;
    hub_.Accept(std::make_unique<PlayedLink>(seen));
    return seen;
  }
  Seen& Connect(const v1::ToController& first) {
    Seen& seen = Accept();
    seen.link->on_frame(PackFrame(first));
    return seen;
  }
  Seen& Register(const std::string& worker, uint64_t incarnation) {
    v1::ToController message;
    auto* const registration = message.mutable_register_executor();
    registration->set_protocol(kLinkProtocol);
    registration->set_host("h");
    registration->set_pid(100);
    ExecutorSpec spec;
    spec.worker = worker;
    spec.island = "island0";
    spec.incarnation = Incarnation(incarnation);
    spec.runtime = "fake";
    spec.platform_name = "cpu";
    spec.memory_kinds = {"device"};
    spec.num_devices = 2;
    spec.data_endpoint = worker + ":1";
    spec.data_key = {1, 2};
    ToProto(spec, registration->mutable_spec());
    return Connect(message);
  }
  Seen& RegisterSupervisor(const std::string& worker) {
    v1::ToController message;
    auto* const registration = message.mutable_register_worker();
    registration->set_protocol(kLinkProtocol);
    registration->set_worker(worker);
    registration->set_island("island0");
    registration->set_host("h");
    registration->set_pid(10);
    return Connect(message);
  }
  Seen& ConnectPulse(const std::string& worker, int64_t pid = 10) {
    v1::ToController message;
    message.mutable_pulse()->set_worker(worker);
    message.mutable_pulse()->set_host("h");
    message.mutable_pulse()->set_pid(pid);
    return Connect(message);
  }
  void Beat(Seen& seen) {
    v1::ToController message;
    message.mutable_heartbeat()->set_sequence(1);
    seen.link->on_frame(PackFrame(message));
  }
  void Advance(milliseconds time, bool supervisor_beats = true) {
    for (; time.count() > 0; time -= milliseconds(500)) {
      now_ += milliseconds(500);
      if (supervisor_beats) Beat(*supervisor_);
      hub_.Tick();
    }
  }

  std::deque<Seen> seen_;  // outlives the hub, whose links write to it when they end
  EventLoop loop_;
  WorkerHub::Clock::time_point now_{std::chrono::hours(1)};
  WorkerHub hub_{loop_, WorkerHubOptions{}, this, [this] { return now_; }};
  Seen* executor_ = nullptr;
  Seen* supervisor_ = nullptr;
  std::vector<std::string> lost_;
};

TEST_F(LivenessTest, AllOfAHostIsLostWhenItsPulseSaysThatItIsSilent) {
  Seen& pulse = ConnectPulse("w0");
  EXPECT_TRUE(pulse.watched);
  pulse.link->on_closed(absl::DeadlineExceededError("link to h: Connection timed out"));
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("its host h acknowledged nothing for 3 s")));
  EXPECT_THAT(hub_.Supervisors(), IsEmpty());
  EXPECT_TRUE(executor_->closed);
  EXPECT_TRUE(supervisor_->closed);
}

TEST_F(LivenessTest, WithoutAPulseAHostIsSilentWhenAllOfItsProcessesAre) {
  Advance(milliseconds(10000));  // the supervisor beats
  EXPECT_THAT(lost_, IsEmpty());
  ConnectPulse("w0");
  Advance(milliseconds(10000), false);
  EXPECT_THAT(lost_, IsEmpty()) << "the pulse stands";
  seen_.back().link->on_closed(absl::UnavailableError("Connection reset by peer"));
  Beat(*executor_);
  Advance(milliseconds(3000), false);
  EXPECT_THAT(lost_, IsEmpty());
  Advance(milliseconds(500), false);
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("its host h has no pulse and sent nothing for 3 s")));
  EXPECT_THAT(hub_.Supervisors(), IsEmpty());
}

TEST_F(LivenessTest, ExecutorsThatEndWithTheClusterAreNoLossesOfItsSessions) {
  hub_.StopWorkers("the cluster is taken down");
  executor_->link->on_closed(absl::UnavailableError("Connection reset by peer"));
  supervisor_->link->on_closed(absl::UnavailableError("Connection reset by peer"));
  EXPECT_THAT(hub_.Supervisors(), IsEmpty());
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(LivenessTest, APulseThatEndsOtherwiseSaysNothing) {
  ConnectPulse("w0").link->on_closed(absl::OkStatus());
  ConnectPulse("w0").link->on_closed(absl::UnavailableError("Connection reset by peer"));
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_THAT(hub_.Supervisors(), ElementsAre("w0"));
}

// With TLS the end of a killed process is no orderly one, and still an end.
TEST_F(LivenessTest, AWorkerThatIsKilledIsTakenForOneThatIsGone) {
  Seen& pulse = ConnectPulse("w0");
  const absl::Status killed = absl::AbortedError("it ended without a word");
  supervisor_->link->on_closed(killed);
  executor_->link->on_closed(killed);
  EXPECT_THAT(lost_, IsEmpty());
  pulse.link->on_closed(killed);
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("its worker went away too")));
}

TEST_F(LivenessTest, OnlyTheLatestPulseOfAWorkerCounts) {
  Seen& old = ConnectPulse("w0");
  ConnectPulse("w0");
  EXPECT_TRUE(old.closed);
  old.link->on_closed(absl::DeadlineExceededError("timed out"));
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(LivenessTest, APulseOfAnUnknownWorkerOrProcessIsRefused) {
  for (Seen* pulse : {&ConnectPulse("w9"), &ConnectPulse("w0", 11)}) {
    ASSERT_FALSE(pulse->messages.empty());
    EXPECT_THAT(pulse->messages[0].fence().reason(), HasSubstr("is connected from host h"));
    EXPECT_TRUE(pulse->closed);
  }
}

TEST_F(LivenessTest, ALinkMayCarryLittleUntilItIsRegistered) {
  EXPECT_EQ(Accept().most_payload, 128u << 10);
  EXPECT_EQ(ConnectPulse("w0").most_payload, 128u << 10);
  EXPECT_EQ(executor_->most_payload, kMaxFrameBytes);
  EXPECT_EQ(supervisor_->most_payload, kMaxFrameBytes);
}

TEST_F(LivenessTest, LinksWithoutARegistrationMakeRoomForOthers) {
  Seen& early = Accept("10.0.0.2:1");
  std::vector<Seen*> quiet;
  for (size_t i = 0; i < 10'000; ++i)
    quiet.push_back(&Accept(fmt::format("10.6.6.{}:{}", i % 3, i)));
  // Those of the addresses that have most went, the oldest first, and at once.
  EXPECT_NE(early.link, nullptr);
  EXPECT_EQ(std::ranges::count_if(quiet, [](Seen* seen) { return seen->link != nullptr; }),
            static_cast<int>(Strangers::Most()) - 1);
  EXPECT_EQ(quiet.front()->link, nullptr);
  EXPECT_NE(quiet.back()->link, nullptr);
  // One that ends makes room by itself.
  quiet.back()->link->on_closed(absl::OkStatus());
  EXPECT_NE(Accept("10.0.0.3:1").link, nullptr);
  EXPECT_NE(quiet[9'990]->link, nullptr);
  Beat(*executor_);
  EXPECT_FALSE(executor_->messages.empty());
}

TEST_F(LivenessTest, ASilentProcessIsShownAsStalledAndLostAfterTheDeadline) {
  Advance(milliseconds(2500));
  EXPECT_THAT(hub_.Stalled(), IsEmpty());
  Advance(milliseconds(1000));
  EXPECT_THAT(hub_.Stalled(), ElementsAre(Key(ExecutorId(1))));
  Beat(*executor_);
  EXPECT_THAT(hub_.Stalled(), IsEmpty());
  Advance(milliseconds(60000));
  EXPECT_THAT(lost_, IsEmpty());
  Advance(milliseconds(500));
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("it was silent for 60.0 s (--executor-deadline)")));
  EXPECT_THAT(hub_.Stalled(), IsEmpty());
}

}  // namespace
}  // namespace fairway
