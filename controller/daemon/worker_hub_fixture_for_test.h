// SPDX-License-Identifier: Apache-2.0
// The hub with links in one process and a clock that the tests move.
#ifndef FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_FIXTURE_FOR_TEST_H_
#define FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_FIXTURE_FOR_TEST_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "controller/daemon/worker_hub.h"
#include "log/follower.h"
#include "transport/in_process.h"
#include "wire/link_codec.h"

namespace fairway {

// The far end of one link.
struct FarEnd {
  std::unique_ptr<Link> link;
  std::deque<v1::FromController> received;
  // An executor's new commands, by log frame; frames without any are left out.
  std::deque<std::vector<Command>> commands;
  std::optional<LogFollower> follower;
  bool closed = false;

  void OnFrame(const Frame& frame) {
    if (frame.type == kLogFrame) return OnLogFrame(frame.payload);
    v1::FromController message;
    ASSERT_TRUE(UnpackFrame(frame, &message).ok());
    if (message.has_registered()) follower.emplace(message.registered().executor());
    received.push_back(std::move(message));
  }
  void OnLogFrame(const std::string& bytes) {
    const auto frame = DecodeLogFrame(bytes);
    ASSERT_TRUE(frame.ok() && follower) << frame.status();
    const auto fresh = follower->Take(*frame);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    if (fresh->empty()) return;
    commands.emplace_back();
    for (const LogFrame::Received& entry : *fresh) {
      auto command = DecodeCommand(entry.body);
      ASSERT_TRUE(command.ok()) << command.status();
      commands.back().push_back(*std::move(command));
      ASSERT_TRUE(follower->Ended(entry.header.number, false).ok());
    }
  }
  void ReportLog() { SendLogReport(EncodeLogReport(follower->Next())); }
  void SendLogReport(std::string bytes) {
    Frame frame;
    frame.type = kLogReportFrame;
    frame.payload = std::move(bytes);
    link->Send(std::move(frame));
  }

  void Send(const v1::ToController& message) { link->Send(PackFrame(message)); }
  // The next message; there must be one.
  v1::FromController Next() {
    if (received.empty()) {
      ADD_FAILURE() << "nothing received";
      return {};
    }
    v1::FromController out = received.front();
    received.pop_front();
    return out;
  }
};

class WorkerHubTest : public ::testing::Test, public WorkerHubEvents {
 protected:
  WorkerHubTest() {
    options_.controller = Incarnation(77);
    options_.data_endpoint = ":4711";
    options_.deadline = std::chrono::milliseconds(10000);
    hub_ = std::make_unique<WorkerHub>(loop_, options_, this, [this] { return now_; });
  }

  absl::StatusOr<ExecutorId> OnExecutorUp(const ExecutorSpec& spec) override {
    if (!refuse_.ok()) return refuse_;
    up_.push_back(spec.incarnation.value);
    if (on_up_ != nullptr) on_up_();
    return ExecutorId(static_cast<uint32_t>(1 + spec.worker.back() - '0'));  // w0: 1
  }
  void OnExecutorLost(ExecutorId executor, const absl::Status& cause) override {
    EXPECT_EQ(cause.code(), absl::StatusCode::kDataLoss);
    lost_.emplace_back(executor.value, Text(cause));
  }
  void OnCrowded(ExecutorId executor) override { crowded_.push_back(executor.value); }
  void OnCallback(ExecutorId, CallbackCall) override {}
  void OnCallbackGivenUp(ExecutorId, uint64_t) override {}
  void OnLaunchesEnded(std::vector<NodeId> nodes) override {
    ended_.insert(ended_.end(), nodes.begin(), nodes.end());
  }
  void OnReport(ExecutorId executor, Incarnation incarnation, Report report) override {
    reports_.emplace_back(executor.value, incarnation.value);
  }

  // Runs the loop until it has nothing to do.
  void Settle() {
    for (int quiet = 0; quiet < 8; ++quiet) {
      loop_.Post("settle", [this] { loop_.Stop(); });
      loop_.Run();
    }
  }
  void Advance(std::chrono::milliseconds time) {  // in steps, as a running controller would
    for (std::chrono::milliseconds step(100); time.count() > 0; time -= step) {
      now_ += std::min(step, time);
      hub_->Tick();
      Settle();
    }
  }

  std::unique_ptr<FarEnd> Connect() {
    auto pair = MakeLinkPair(loop_);
    auto far = std::make_unique<FarEnd>();
    far->link = std::move(pair.second);
    far->link->on_frame = [f = far.get()](const Frame& frame) { f->OnFrame(frame); };
    far->link->on_closed = [f = far.get()](absl::Status) { f->closed = true; };
    hub_->Accept(std::move(pair.first));
    return far;
  }
  std::unique_ptr<FarEnd> ConnectExecutor(const std::string& worker, uint64_t incarnation,
                                          int64_t pid = 100, const std::string& island = "island0",
                                          const std::string& host = "h") {
    auto far = Connect();
    v1::ToController message;
    auto* const registration = message.mutable_register_executor();
    registration->set_protocol(kLinkProtocol);
    registration->set_host(host);
    registration->set_pid(pid);
    ExecutorSpec spec;
    spec.worker = worker;
    spec.island = island;
    spec.incarnation = Incarnation(incarnation);
    spec.runtime = "fake";
    spec.platform_name = "cpu";
    spec.memory_kinds = {"device"};
    spec.num_devices = 2;
    spec.data_endpoint = worker + ":1";
    spec.data_key = {1, 2};
    ToProto(spec, registration->mutable_spec());
    far->Send(message);
    Settle();
    return far;
  }
  std::unique_ptr<FarEnd> ConnectSupervisor(const std::string& worker, int64_t pid = 10,
                                            bool compiler = true,
                                            const std::string& island = "island0") {
    auto far = Connect();
    v1::ToController message;
    auto* const registration = message.mutable_register_worker();
    registration->set_protocol(kLinkProtocol);
    registration->set_worker(worker);
    registration->set_island(island);
    registration->set_incarnation(5);
    registration->set_host("h");
    registration->set_pid(pid);
    registration->set_has_compiler(compiler);
    far->Send(message);
    Settle();
    return far;
  }
  void Beat(FarEnd& far, bool crowded = false) {
    v1::ToController message;
    message.mutable_heartbeat()->set_sequence(1);
    message.mutable_heartbeat()->set_crowded(crowded);
    far.Send(message);
    Settle();
  }
  void Died(FarEnd& supervisor, uint64_t incarnation, const std::string& cause) {
    v1::ToController message;
    message.mutable_executor_died()->set_incarnation(incarnation);
    message.mutable_executor_died()->set_signal(9);
    message.mutable_executor_died()->set_cause(cause);
    message.mutable_executor_died()->add_last_lines("a log line");
    message.mutable_executor_died()->add_last_lines(
        R"({"ts":1.5,"level":"error","component":"executor","msg":"out of \"luck\""})");
    supervisor.Send(message);
    Settle();
  }

  EventLoop loop_;
  WorkerHubOptions options_;
  WorkerHub::Clock::time_point now_{std::chrono::hours(1)};
  std::unique_ptr<WorkerHub> hub_;
  absl::Status refuse_;
  std::function<void()> on_up_;
  std::vector<uint64_t> up_;
  std::vector<std::pair<uint32_t, std::string>> lost_;
  std::vector<uint32_t> crowded_;
  std::vector<NodeId> ended_;
  std::vector<std::pair<uint32_t, uint64_t>> reports_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_FIXTURE_FOR_TEST_H_
