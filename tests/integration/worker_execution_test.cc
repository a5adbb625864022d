// SPDX-License-Identifier: Apache-2.0
// Real executors do real work for a controller that the test plays.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/worker_harness.h"
#include "worker/executor/runtime/native/test_native_programs.h"
#include "worker/executor/runtime/pjrt/test_programs.h"

namespace fairway::test {
namespace {

using testing::HasSubstr;

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), 4 * values.size()};
}

std::vector<float> ToFloats(std::string_view bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), 4 * out.size());
  return out;
}

// One executor, and the counters of the controller that talks to it.
class Talk {
 public:
  Talk(PlayedController& controller, const std::string& name)
      : controller_(controller),
        executor_(controller.WaitForExecutor(name)),
        supervisor_(controller.WaitForSupervisor(name)) {}

  SeenExecutor& executor() { return *executor_; }
  SeenSupervisor& supervisor() { return *supervisor_; }
  bool ok() const { return executor_ != nullptr && supervisor_ != nullptr; }

  // Waits until the code is loaded: before that the controller launches nothing that runs it (G2).
  ExecutableId Install(const std::string& program, const v1::CompileOptions& options,
                       std::vector<int32_t> devices = {}) {
    const v1::LinkCompileResponse response = controller_.Compile(*supervisor_, program, options);
    EXPECT_EQ(response.status().code(), 0) << response.status().message();
    const ExecutableId id = InstallCode(response.code(), response.checksum(), std::move(devices));
    EXPECT_EQ(WaitInstalled(id), absl::OkStatus());
    return id;
  }
  ExecutableId InstallCode(const std::string& code, const std::string& checksum,
                           std::vector<int32_t> devices = {}) {
    const ExecutableId id(++next_);
    executor_->Send(InstallExecutable{
        id, std::make_shared<std::string>(code), checksum, std::move(devices), {}});
    return id;
  }
  absl::Status WaitInstalled(ExecutableId id) {
    if (!controller_.Until([&] { return executor_->Installed(id) != nullptr; }))
      return absl::DeadlineExceededError("x");
    return executor_->Installed(id)->status;
  }

  GroupPart Part(Shape shape, const std::vector<int32_t>& devices, DType dtype = DType::kF32) {
    GroupPart part;
    part.group = GroupId(++next_);
    part.dtype = dtype;
    for (size_t i = 0; i < devices.size(); ++i)
      part.shards.push_back({static_cast<int32_t>(i), devices[i], shape});
    return part;
  }
  // Sends a receive of `part` from `sources`. Returns its seq.
  uint64_t Receive(const GroupPart& part, std::vector<ShardSource> sources, TransferId transfer) {
    PrepareReceive receive;
    receive.node = NodeId(++next_);
    receive.seq = ++seq_;
    receive.transfer = transfer;
    receive.out = part;
    receive.sources = std::move(sources);
    executor_->Send(receive);
    return receive.seq;
  }
  // Puts shards of `part` with these bytes, inside the command.
  uint64_t Put(const GroupPart& part, const std::vector<std::string>& bytes) {
    std::vector<ShardSource> sources;
    for (const std::string& b : bytes) {
      ShardSource source;
      source.kind = ShardSource::Kind::kInline;
      source.bytes = Blob::Copy(b);
      sources.push_back(source);
    }
    return Receive(part, std::move(sources), TransferId());
  }
  // The same through the controller's data port.
  uint64_t Upload(const GroupPart& part, const std::vector<std::string>& bytes) {
    const TransferId transfer(++next_);
    std::vector<ShardSource> sources;
    for (size_t i = 0; i < bytes.size(); ++i) {
      controller_.uploads[{transfer, static_cast<int32_t>(i)}] = Blob::Copy(bytes[i]);
      ShardSource source;
      source.kind = ShardSource::Kind::kController;
      source.index = static_cast<int32_t>(i);
      source.ticket = TicketFor(controller_.data_key(), transfer, executor_->spec.incarnation);
      sources.push_back(source);
    }
    return Receive(part, std::move(sources), transfer);
  }
  uint64_t Run(ExecutableId executable, const std::vector<int32_t>& devices,
               const std::vector<GroupPart>& inputs, const std::vector<GroupPart>& outputs,
               bool launch = true) {
    PrepareLaunch prepare;
    prepare.node = NodeId(++next_);
    prepare.seq = ++seq_;
    prepare.executable = executable;
    prepare.devices = devices;
    for (size_t d = 0; d < devices.size(); ++d) {
      auto& row = prepare.inputs.emplace_back();
      for (const GroupPart& part : inputs) row.push_back({part.group, part.shards[d].shard});
    }
    prepare.outputs = outputs;
    executor_->Send(prepare);
    last_node_ = prepare.node;
    if (launch) Go(prepare.node, devices.size() > 1, outputs);
    return prepare.seq;
  }
  void Go(NodeId node, bool gang, const std::vector<GroupPart>& outputs) {
    Launch launch;
    launch.node = node;
    launch.launch_id = LaunchId(++launch_);
    launch.gang = gang;
    for (const GroupPart& part : outputs) {
      if (part.shards[0].shape.num_elements() <= 1024)
        launch.inline_shards.push_back({part.group, part.shards[0].shard});
    }
    executor_->Send(launch);
  }
  absl::Status Wait(uint64_t seq) {
    if (!controller_.Until([&] { return executor_->Finished(seq) || executor_->closed; })) {
      return absl::DeadlineExceededError("waited a minute in a test");
    }
    return executor_->closed ? absl::UnavailableError("the executor went away")
                             : executor_->Failure(seq);
  }
  TransferId Offer(const GroupPart& part) {
    PrepareSend send;
    send.transfer = TransferId(++next_);
    for (const LocalShard& shard : part.shards)
      send.items.push_back({shard.shard, {part.group, shard.shard}});
    executor_->Send(send);
    return send.transfer;
  }
  NodeId last_node() const { return last_node_; }

 private:
  PlayedController& controller_;
  SeenExecutor* executor_;
  SeenSupervisor* supervisor_;
  NodeId last_node_;
  uint64_t next_ = 0;
  uint64_t seq_ = 0;
  uint64_t launch_ = 0;
};

class WorkerExecution : public testing::Test {
 protected:
  std::unique_ptr<WorkerProcess> StartWorker(const std::string& name, int devices,
                                             const std::string& runtime = "pjrt") {
    return std::make_unique<WorkerProcess>(std::vector<std::string>{
        "--controller=" + controller_.address(), "--name=" + name, "--island=i0",
        fmt::format("--devices={}", devices), "--runtime=" + runtime});
  }
  PlayedController controller_;
};

TEST_F(WorkerExecution, AnAddFromUploadToFetch) {
  auto worker = StartWorker("a", 2);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  SeenExecutor& executor = talk.executor();
  const ExecutableId add = talk.Install(Add("4xf32"), Portable(), {1});

  const GroupPart x = talk.Part(Shape{{4}}, {1});
  const GroupPart y = talk.Part(Shape{{4}}, {1});
  const GroupPart sum = talk.Part(Shape{{4}}, {1});
  EXPECT_EQ(talk.Wait(talk.Put(x, {Floats({1, 2, 3, 4})})), absl::OkStatus());
  EXPECT_EQ(talk.Wait(talk.Upload(y, {Floats({10, 20, 30, 40})})), absl::OkStatus());
  EXPECT_EQ(talk.Wait(talk.Run(add, {1}, {x, y}, {sum})), absl::OkStatus());
  auto inlined = executor.Inlined({sum.group, 0});
  ASSERT_NE(inlined, nullptr);
  EXPECT_THAT(ToFloats(inlined->view()), testing::ElementsAre(11, 22, 33, 44));
  // Three shards of 16 bytes are on device 1. Inline results and uploads do not count as fetches.
  ASSERT_TRUE(controller_.Until([&] { return executor.heartbeat.buffers() == 3; }));
  EXPECT_EQ(executor.heartbeat.device_bytes(0), 0);
  EXPECT_EQ(executor.heartbeat.device_bytes(1), 48);
  EXPECT_EQ(executor.heartbeat.fetches_served(), 0u);
  ASSERT_EQ(executor.heartbeat.pulled_size(), 1);
  EXPECT_EQ(executor.heartbeat.pulled(0).bytes(), 16u);

  auto fetched = controller_.Fetch(executor, talk.Offer(sum), 0, 16);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_THAT(ToFloats((*fetched)->view()), testing::ElementsAre(11, 22, 33, 44));
  ASSERT_TRUE(controller_.Until([&] { return executor.heartbeat.fetches_served() == 1; }));
  EXPECT_EQ(executor.heartbeat.served_bytes(), 16u);

  executor.Send(FreeGroups{{x.group, y.group, sum.group}});
  executor.Send(DropExecutable{add});
  ASSERT_TRUE(controller_.Until(
      [&] { return executor.heartbeat.buffers() == 0 && executor.heartbeat.executables() == 0; }));
  EXPECT_EQ(executor.heartbeat.device_bytes(1), 0);
}

// f32[n] -> the result of the client's function 7 for it.
std::string CallsBack(int64_t n) {
  return fmt::format(R"(module @calls_back {{
  func.func public @main(%x: tensor<{0}xf32>) -> tensor<{0}xf32> {{
    %0 = stablehlo.custom_call @fairway_callback(%x) {{api_version = 4 : i32, has_side_effect = true,
        backend_config = {{function = 7 : i64}}}} : (tensor<{0}xf32>) -> tensor<{0}xf32>
    return %0 : tensor<{0}xf32>
  }}
}})",
                     n);
}

TEST_F(WorkerExecution, AProgramCallsAFunctionOfItsClientAndOtherDevicesGoOn) {
  auto worker = StartWorker("a", 2);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  SeenExecutor& executor = talk.executor();
  const ExecutableId calls = talk.Install(CallsBack(2), Portable(), {0});
  const ExecutableId add = talk.Install(Add("2xf32"), Portable(), {1});
  const GroupPart x = talk.Part(Shape{{2}}, {0}), y = talk.Part(Shape{{2}}, {1});
  const GroupPart made = talk.Part(Shape{{2}}, {0}), sum = talk.Part(Shape{{2}}, {1});
  EXPECT_EQ(talk.Wait(talk.Put(x, {Floats({3, 4})})), absl::OkStatus());
  EXPECT_EQ(talk.Wait(talk.Put(y, {Floats({5, 6})})), absl::OkStatus());
  const uint64_t waits = talk.Run(calls, {0}, {x}, {made});
  ASSERT_TRUE(controller_.Until([&] { return !executor.callbacks.empty(); }));
  const CallbackCall& call = executor.callbacks[0];
  EXPECT_EQ(call.launch, LaunchId(1));
  EXPECT_EQ(call.function, 7u);
  EXPECT_EQ(call.device, 0);
  EXPECT_THAT(ToFloats(call.arguments.at(0).bytes->view()), testing::ElementsAre(3, 4));
  EXPECT_EQ(talk.Wait(talk.Run(add, {1}, {y, y}, {sum})), absl::OkStatus());
  EXPECT_FALSE(executor.Finished(waits));
  executor.Answer({call.call, absl::OkStatus(), {Blob::Copy(Floats({30, 40}))}, {}});
  EXPECT_EQ(talk.Wait(waits), absl::OkStatus());
  EXPECT_THAT(ToFloats(executor.Inlined({made.group, 0})->view()), testing::ElementsAre(30, 40));

  // An error of the function becomes the launch's error, and the launch has no results.
  const GroupPart nothing = talk.Part(Shape{{2}}, {0});
  const uint64_t fails = talk.Run(calls, {0}, {x}, {nothing});
  ASSERT_TRUE(controller_.Until([&] { return executor.callbacks.size() == 2; }));
  executor.Answer({executor.callbacks[1].call, absl::AbortedError("ValueError: no"), {}, {}});
  EXPECT_EQ(talk.Wait(fails), absl::AbortedError("ValueError: no"));
  EXPECT_EQ(executor.Inlined({nothing.group, 0}), nullptr);
}

TEST_F(WorkerExecution, LargeArgumentsAndResultsOfCallbacksArePulled) {
  constexpr int64_t kFloats = 100000, kBytes = 4 * kFloats;
  auto worker = StartWorker("a", 1);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  SeenExecutor& executor = talk.executor();
  const ExecutableId calls = talk.Install(CallsBack(kFloats), Portable(), {0});
  const GroupPart x = talk.Part(Shape{{kFloats}}, {0}), made = talk.Part(Shape{{kFloats}}, {0});
  std::vector<float> values(kFloats);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(talk.Wait(talk.Upload(x, {Floats(values)})), absl::OkStatus());
  const uint64_t seq = talk.Run(calls, {0}, {x}, {made});
  ASSERT_TRUE(controller_.Until([&] { return !executor.callbacks.empty(); }));
  const uint64_t call = executor.callbacks[0].call;
  EXPECT_EQ(executor.callbacks[0].arguments.at(0).bytes, nullptr);
  // Numbers of calls can be guessed.
  EXPECT_EQ(
      controller_.FetchWith({1, 2}, executor, CallbackTransfer(call), 0, kBytes).status().code(),
      absl::StatusCode::kPermissionDenied);
  const auto argument = controller_.Fetch(executor, CallbackTransfer(call), 0, kBytes);
  ASSERT_TRUE(argument.ok()) << argument.status();
  EXPECT_EQ((*argument)->view(), Floats(values));
  std::reverse(values.begin(), values.end());
  controller_.uploads[{CallbackTransfer(5), 0}] = Blob::Copy(Floats(values));
  executor.Answer(
      {call,
       absl::OkStatus(),
       {},
       CallbackTransfer(5),
       TicketFor(controller_.data_key(), CallbackTransfer(5), executor.spec.incarnation)});
  EXPECT_EQ(talk.Wait(seq), absl::OkStatus());
  const auto result = controller_.Fetch(executor, talk.Offer(made), 0, kBytes);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)->view(), Floats(values));
  // The controller no longer serves it.
  EXPECT_FALSE(controller_.Fetch(executor, CallbackTransfer(call), 0, kBytes).ok());
}

TEST_F(WorkerExecution, AbandonedCallsAndThoseOfALostControllerEndAtOnce) {
  auto worker = StartWorker("a", 1);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  SeenExecutor& executor = talk.executor();
  const ExecutableId calls = talk.Install(CallsBack(2), Portable(), {0});
  const GroupPart x = talk.Part(Shape{{2}}, {0});
  EXPECT_EQ(talk.Wait(talk.Put(x, {Floats({3, 4})})), absl::OkStatus());
  const uint64_t seq = talk.Run(calls, {0}, {x}, {talk.Part(Shape{{2}}, {0})});
  ASSERT_TRUE(controller_.Until([&] { return !executor.callbacks.empty(); }));
  executor.Send(AbandonLaunch{LaunchId(1), LaunchId(1), absl::DataLossError("another was lost")});
  EXPECT_EQ(talk.Wait(seq), absl::DataLossError("another was lost"));
  ASSERT_TRUE(controller_.Until([&] { return !executor.given_up.empty(); }));
  EXPECT_THAT(executor.given_up, testing::ElementsAre(executor.callbacks[0].call));

  // Waiting calls end with the link. The executor registers anew once nothing runs.
  talk.Run(calls, {0}, {x}, {talk.Part(Shape{{2}}, {0})});
  ASSERT_TRUE(controller_.Until([&] { return executor.callbacks.size() == 2; }));
  executor.link->Close();
  EXPECT_NE(controller_.WaitForExecutor("a", 2), nullptr);
}

TEST_F(WorkerExecution, GangsRunInOrderAThousandTimes) {
  auto worker = StartWorker("a", 4);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  const std::vector<int32_t> devices = {0, 1, 2, 3};
  const ExecutableId psum = talk.Install(DonatingPsum(4), Spmd(4));
  GroupPart x = talk.Part(Shape{{1}}, devices);
  talk.Put(x, {Floats({1}), Floats({2}), Floats({3}), Floats({4})});
  constexpr int kGangs = 1000;
  uint64_t last = 0;
  for (int i = 0; i < kGangs; ++i) {
    const GroupPart y = talk.Part(Shape{{1}}, devices);
    last = talk.Run(psum, devices, {x}, {y}, false);
    // As at the controller, a gang is launched once its inputs are ready.
    const NodeId node = talk.last_node();
    ASSERT_EQ(talk.Wait(last - 1), absl::OkStatus()) << i;
    talk.Go(node, true, i + 1 == kGangs ? std::vector{y} : std::vector<GroupPart>{});
    talk.executor().Send(FreeGroups{{x.group}});
    x = y;
    if (i == 10) {  // before the floats overflow, begin anew
      const GroupPart again = talk.Part(Shape{{1}}, devices);
      talk.Put(again, {Floats({0}), Floats({0}), Floats({0}), Floats({0})});
      x = again;
    }
  }
  EXPECT_EQ(talk.Wait(last), absl::OkStatus());
  ASSERT_NE(talk.executor().Inlined({x.group, 0}), nullptr);
  EXPECT_THAT(ToFloats(talk.executor().Inlined({x.group, 0})->view()), testing::ElementsAre(0));
  ASSERT_TRUE(
      controller_.Until([&] { return talk.executor().heartbeat.gangs_launched() == kGangs; }));
}

TEST_F(WorkerExecution, NativeProgramsRunOnTheHostRuntime) {
  auto worker = StartWorker("a", 4, "host");
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  EXPECT_EQ(talk.executor().spec.runtime, "host");
  const std::vector<int32_t> devices = {3, 1, 0, 2};
  // A round: the sum over the devices, divided by 4, plus 1 on each.
  const std::string program = Parameter(DType::kF32, "4", "4", true) +
                              Parameter(DType::kF32, "4", "4") + Step("all_reduce", "0") +
                              Step("scale", "2", "factor: 0.25") + Step("add", "3, 1") +
                              Result(4, "4") + "repeat: 100";
  const ExecutableId steps =
      talk.Install(NativeFromText(program).SerializeAsString(), Spmd(4), devices);
  const GroupPart x = talk.Part(Shape{{1}}, devices);
  const GroupPart one = talk.Part(Shape{{1}}, devices);
  const GroupPart y = talk.Part(Shape{{1}}, devices);
  talk.Put(x, {Floats({4}), Floats({20}), Floats({300}), Floats({4000})});
  ASSERT_EQ(talk.Wait(talk.Put(one, {Floats({1}), Floats({1}), Floats({1}), Floats({1})})),
            absl::OkStatus());
  ASSERT_EQ(talk.Wait(talk.Run(steps, devices, {x, one}, {y})), absl::OkStatus());
  const TransferId transfer = talk.Offer(y);
  for (int i = 0; i < 4; ++i) {
    auto shard = controller_.Fetch(talk.executor(), transfer, i, 4);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_THAT(ToFloats((*shard)->view()), testing::ElementsAre(1181)) << i;
  }
}

TEST_F(WorkerExecution, GangsGiveTheRightSum) {
  auto worker = StartWorker("a", 4);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  const std::vector<int32_t> devices = {3, 1, 0, 2};
  const ExecutableId psum = talk.Install(Psum(4), Spmd(4), devices);
  const GroupPart x = talk.Part(Shape{{1}}, devices);
  const GroupPart sum = talk.Part(Shape{}, devices);
  ASSERT_EQ(talk.Wait(talk.Put(x, {Floats({1}), Floats({20}), Floats({300}), Floats({4000})})),
            absl::OkStatus());
  ASSERT_EQ(talk.Wait(talk.Run(psum, devices, {x}, {sum})), absl::OkStatus());
  const TransferId transfer = talk.Offer(sum);
  for (int i = 0; i < 4; ++i) {
    auto shard = controller_.Fetch(talk.executor(), transfer, i, 4);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_THAT(ToFloats((*shard)->view()), testing::ElementsAre(4321)) << i;
  }
}

TEST_F(WorkerExecution, ShardsMoveBetweenDevicesAndExecutors) {
  auto first = StartWorker("a", 2);
  auto second = StartWorker("b", 2);
  Talk a(controller_, "a");
  Talk b(controller_, "b");
  ASSERT_TRUE(a.ok() && b.ok());
  // 4 MiB go to device 0 of a, then to its device 1, and from there to b.
  std::vector<float> values(1 << 20);
  std::iota(values.begin(), values.end(), 0.5f);
  const std::string bytes = Floats(values);
  const GroupPart x = a.Part(Shape{{1 << 20}}, {0});
  const GroupPart copy = a.Part(Shape{{1 << 20}}, {1});
  ASSERT_EQ(a.Wait(a.Upload(x, {bytes})), absl::OkStatus());
  ShardSource local;
  local.shard = {x.group, 0};
  ASSERT_EQ(a.Wait(a.Receive(copy, {local}, TransferId())), absl::OkStatus());
  a.executor().Send(FreeGroups{{x.group}});

  // The receiver asks before the sender has been told of the transfer.
  const GroupPart far = b.Part(Shape{{1 << 20}}, {1});
  const TransferId transfer(1000);
  ShardSource peer;
  peer.kind = ShardSource::Kind::kPeer;
  peer.endpoint = a.executor().spec.data_endpoint;
  peer.incarnation = a.executor().spec.incarnation;
  const auto ticket = [&](TransferId of) {
    return TicketFor(a.executor().spec.data_key, of, b.executor().spec.incarnation);
  };
  peer.ticket = ticket(transfer);
  const uint64_t seq = b.Receive(far, {peer}, transfer);
  a.executor().Send(PrepareSend{transfer, {{0, {copy.group, 0}}}});
  ASSERT_EQ(b.Wait(seq), absl::OkStatus());
  auto fetched = controller_.Fetch(b.executor(), b.Offer(far), 0, bytes.size());
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_TRUE((*fetched)->view() == bytes);
  ASSERT_TRUE(
      controller_.Until([&] { return a.executor().heartbeat.served_bytes() == bytes.size(); }));
  EXPECT_EQ(a.executor().heartbeat.fetches_served(), 0u);
  ASSERT_TRUE(controller_.Until([&] {
    const v1::Heartbeat& beat = b.executor().heartbeat;
    return beat.pulled_size() == 1 && beat.pulled(0).bytes() == bytes.size();
  }));
  EXPECT_EQ(b.executor().heartbeat.pulled(0).endpoint(), a.executor().spec.data_endpoint);

  // A request to another incarnation is refused; a dead one is unreachable.
  ShardSource stale = peer;
  stale.incarnation = Incarnation(peer.incarnation.value + 1);
  EXPECT_EQ(b.Wait(b.Receive(b.Part(Shape{{1 << 20}}, {0}), {stale}, transfer)).code(),
            absl::StatusCode::kAborted);
  // A ticket of another transfer gets nothing, and the right one still does.
  ShardSource wrong = peer;
  wrong.ticket = ticket(TransferId(1001));
  const absl::Status refused = b.Wait(b.Receive(b.Part(Shape{{1 << 20}}, {0}), {wrong}, transfer));
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("with a wrong ticket"));
  EXPECT_EQ(b.Wait(b.Receive(b.Part(Shape{{1 << 20}}, {0}), {peer}, transfer)), absl::OkStatus());
  ShardSource later = peer;
  later.ticket = ticket(TransferId(1001));
  const uint64_t waiting = b.Receive(b.Part(Shape{{1 << 20}}, {0}), {later}, TransferId(1001));
  ::kill(static_cast<pid_t>(a.executor().registration.pid()), SIGKILL);
  EXPECT_EQ(b.Wait(waiting).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(b.Wait(b.Receive(b.Part(Shape{{1 << 20}}, {0}), {peer}, transfer)).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(WorkerExecution, WhatIsWrongIsReportedAndTheExecutorGoesOn) {
  auto worker = StartWorker("a", 2);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  SeenExecutor& executor = talk.executor();
  // A program that does not compile: the error keeps the compiler's text.
  const auto bad =
      controller_.Compile(talk.supervisor(), "module @m { this is no program }", OneDevice());
  EXPECT_EQ(bad.status().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(bad.status().message().empty());
  // Code that was damaged.
  const auto good = controller_.Compile(talk.supervisor(), Add("4xf32"), OneDevice());
  ASSERT_EQ(good.status().code(), 0);
  std::string flipped = good.code();
  flipped[flipped.size() / 2] ^= 1;
  EXPECT_EQ(talk.WaitInstalled(talk.InstallCode(flipped, good.checksum())).code(),
            absl::StatusCode::kDataLoss);
  const ExecutableId add = talk.InstallCode(good.code(), good.checksum());
  EXPECT_EQ(talk.WaitInstalled(add), absl::OkStatus());
  // Launches of unknown code, with an unknown input, of a wrong shape.
  const GroupPart x = talk.Part(Shape{{4}}, {0});
  ASSERT_EQ(talk.Wait(talk.Put(x, {Floats({1, 2, 3, 4})})), absl::OkStatus());
  const GroupPart out = talk.Part(Shape{{4}}, {0});
  EXPECT_THAT(std::string(talk.Wait(talk.Run(ExecutableId(999), {0}, {x, x}, {out})).message()),
              HasSubstr("999"));
  const GroupPart missing = talk.Part(Shape{{4}}, {0});
  EXPECT_FALSE(talk.Wait(talk.Run(add, {0}, {x, missing}, {talk.Part(Shape{{4}}, {0})})).ok());
  const GroupPart small = talk.Part(Shape{{2}}, {0});
  ASSERT_EQ(talk.Wait(talk.Put(small, {Floats({1, 2})})), absl::OkStatus());
  EXPECT_EQ(talk.Wait(talk.Run(add, {0}, {x, small}, {talk.Part(Shape{{4}}, {0})})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(talk.Wait(talk.Run(add, {0}, {x}, {talk.Part(Shape{{4}}, {0})})).code(),
            absl::StatusCode::kInvalidArgument);
  // The controller does not have this upload.
  ShardSource nothing;
  nothing.kind = ShardSource::Kind::kController;
  nothing.ticket = TicketFor(controller_.data_key(), TransferId(4242), executor.spec.incarnation);
  EXPECT_EQ(talk.Wait(talk.Receive(talk.Part(Shape{{4}}, {0}), {nothing}, TransferId(4242))).code(),
            absl::StatusCode::kNotFound);
  // A pull of a failed shard gets its error.
  auto poison = controller_.Fetch(executor, talk.Offer(out), 0, 16);
  EXPECT_EQ(poison.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(poison.status().message()), HasSubstr("999"));
  // The executor still works.
  const GroupPart sum = talk.Part(Shape{{4}}, {0});
  EXPECT_EQ(talk.Wait(talk.Run(add, {0}, {x, x}, {sum})), absl::OkStatus());
  EXPECT_THAT(ToFloats(executor.Inlined({sum.group, 0})->view()), testing::ElementsAre(2, 4, 6, 8));
  EXPECT_FALSE(executor.closed);
  EXPECT_EQ(talk.supervisor().deaths.size(), 0u);
}

TEST_F(WorkerExecution, WorkForAnotherExecutorOrGarbageEndsTheRegistration) {
  auto worker = StartWorker("a", 1);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  talk.executor().Send(FreeGroups{}, kExecutorId + 1);
  ASSERT_TRUE(controller_.Until([&] { return talk.executor().closed; }));
  SeenExecutor* second = controller_.WaitForExecutor("a", 2);
  ASSERT_NE(second, nullptr);
  Frame garbage;
  garbage.type = 1;
  garbage.payload = "\xff\xff garbage";
  second->link->Send(std::move(garbage));
  ASSERT_TRUE(controller_.Until([&] { return second->closed; }));
  SeenExecutor* third = controller_.WaitForExecutor("a", 3);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->registration.pid(), talk.executor().registration.pid());
}

TEST_F(WorkerExecution, ALostLinkFreesEverythingAfterTheLaunchesInFlight) {
  auto worker = StartWorker("a", 1);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  const ExecutableId loop = talk.Install(LongLoop(1000), OneDevice());
  const GroupPart x = talk.Part(Shape{{256, 256}}, {0});
  ASSERT_EQ(talk.Wait(talk.Put(x, {std::string(256 * 256 * 4, '\0')})), absl::OkStatus());
  talk.Run(loop, {0}, {x}, {talk.Part(Shape{{256, 256}}, {0})});
  ASSERT_TRUE(controller_.Until([&] { return talk.executor().heartbeat.launches() == 1; }));
  controller_.loop().Post("drop", [&] { talk.executor().link = nullptr; });
  SeenExecutor* second = controller_.WaitForExecutor("a", 2);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->heartbeat.buffers(), 0u);
  EXPECT_EQ(second->heartbeat.executables(), 0u);
  EXPECT_EQ(second->heartbeat.device_bytes(0), 0);
  EXPECT_EQ(second->spec.highest_launch_id, 1u);
  EXPECT_EQ(second->registration.pid(), talk.executor().registration.pid());
}

TEST_F(WorkerExecution, TermLetsLaunchesInFlightEndAndReports) {
  auto worker = StartWorker("a", 1);
  Talk talk(controller_, "a");
  ASSERT_TRUE(talk.ok());
  const ExecutableId loop = talk.Install(LongLoop(1000), OneDevice());
  const GroupPart x = talk.Part(Shape{{256, 256}}, {0});
  ASSERT_EQ(talk.Wait(talk.Put(x, {std::string(256 * 256 * 4, '\0')})), absl::OkStatus());
  const uint64_t seq = talk.Run(loop, {0}, {x}, {talk.Part(Shape{{256, 256}}, {0})});
  ASSERT_TRUE(controller_.Until([&] { return talk.executor().heartbeat.launches() == 1; }));
  worker->Signal(SIGTERM);
  ASSERT_TRUE(
      controller_.Until([&] { return worker->Ended().has_value() && talk.executor().closed; }));
  EXPECT_TRUE(WIFEXITED(*worker->Ended()));
  EXPECT_EQ(WEXITSTATUS(*worker->Ended()), 0);
  EXPECT_TRUE(talk.executor().Finished(seq));
  EXPECT_EQ(talk.executor().Failure(seq), absl::OkStatus());
}

}  // namespace
}  // namespace fairway::test
