// SPDX-License-Identifier: Apache-2.0
// ExecutorSession over the fake runtime, whose launches end when the test says so.
#include "worker/executor/executor_session.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "async/run_until.h"
#include "wire/sequence_codec.h"
#include "worker/compiler/checksum.h"
#include "worker/executor/runtime/fake/fake_runtime.h"

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

FakeProgram::Value Floats(int64_t count) { return {DType::kF32, Shape{{count}}, false, {}}; }

std::string Program(const std::string& op, std::vector<int> devices, int inputs, int outputs,
                    bool separable = false) {
  FakeProgram program;
  program.op = op;
  program.name = op;
  program.devices = std::move(devices);
  program.inputs.assign(inputs, Floats(2));
  program.outputs.assign(outputs, Floats(2));
  program.separable = separable;
  return program.ToText();
}

GroupPart Part(uint64_t group, const std::vector<int32_t>& devices) {
  GroupPart part;
  part.group = GroupId(group);
  part.dtype = DType::kF32;
  for (size_t i = 0; i < devices.size(); ++i) {
    part.shards.push_back({static_cast<int32_t>(i), devices[i], Shape{{2}}});
  }
  return part;
}

std::vector<float> Values(std::string_view bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), 4 * out.size());
  return out;
}

class ExecutorSessionTest : public testing::Test {
 protected:
  explicit ExecutorSessionTest(ArrivalRule gang_inputs = ArrivalRule::kReady)
      : runtime_(4, true, gang_inputs) {}
  void SetUp() override { Open({}); }
  void Open(std::vector<BlockingPool*> buffer_makers) {
    auto session = ExecutorSession::Open(
        {&loop_, &runtime_, &blocking_, &launches_, 1, nullptr, std::move(buffer_makers)},
        Incarnation(5), "127.0.0.1:0", "127.0.0.1",
        [this](Report report) { Take(std::move(report)); });
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  void Take(Report report) {
    through_ = report.finished_through;
    for (const uint64_t seq : report.finished) finished_.push_back(seq);
    for (auto& failure : report.failures) failures_[failure.seq] = failure.status;
    for (auto& inlined : report.inlined) inlined_.push_back(std::move(inlined));
    for (auto& installed : report.installed) installed_[installed.executable] = installed.status;
  }
  // Passes a command in the loop, as frames do.
  void Command(fairway::Command command) {
    loop_.Post("command", [this, command = std::move(command)]() mutable {
      session_->OnCommand(std::move(command));
    });
  }
  bool Until(std::function<bool()> holds) { return RunUntil(loop_, std::move(holds)); }
  // Installs it and waits until it is loaded, as the controller does.
  void Install(uint64_t id, const std::string& code) {
    Command(InstallExecutable{
        ExecutableId(id), std::make_shared<std::string>(code), Sha256Hex(code), {}, {}});
    ASSERT_TRUE(Until([this, id] { return installed_.contains(ExecutableId(id)); }));
  }
  // Two floats on each device of `part`.
  void Put(const GroupPart& part, float value) {
    PrepareReceive receive;
    receive.node = NodeId(++node_);
    receive.seq = ++seq_;
    receive.out = part;
    const std::vector<float> values = {value, value + 1};
    for (size_t i = 0; i < part.shards.size(); ++i) {
      ShardSource source;
      source.kind = ShardSource::Kind::kInline;
      source.bytes = Blob::Copy({reinterpret_cast<const char*>(values.data()), 8});
      receive.sources.push_back(source);
    }
    Command(receive);
    const uint64_t seq = seq_;
    ASSERT_TRUE(Until([this, seq] { return Finished(seq); }));
  }
  bool Finished(uint64_t seq) const {
    return seq <= through_ || std::find(finished_.begin(), finished_.end(), seq) != finished_.end();
  }
  // Prepares and launches; returns the seq.
  uint64_t Run(uint64_t executable, const std::vector<int32_t>& devices,
               const std::vector<GroupPart>& inputs, const std::vector<GroupPart>& outputs,
               bool ahead = false) {
    PrepareLaunch prepare;
    prepare.node = NodeId(++node_);
    prepare.seq = ++seq_;
    prepare.executable = ExecutableId(executable);
    prepare.devices = devices;
    for (size_t d = 0; d < devices.size(); ++d) {
      auto& row = prepare.inputs.emplace_back();
      for (const GroupPart& part : inputs) row.push_back({part.group, part.shards[d].shard});
    }
    prepare.outputs = outputs;
    Launch launch;
    launch.node = prepare.node;
    launch.launch_id = LaunchId(++launch_);
    launch.gang = devices.size() > 1;
    launch.ahead = ahead;
    for (const GroupPart& part : outputs) launch.inline_shards.push_back({part.group, 0});
    Command(std::move(prepare));
    Command(std::move(launch));
    return seq_;
  }

  EventLoop loop_;
  FakeRuntime runtime_;
  BlockingPool blocking_{"test", 2};
  LaunchQueues launches_{&runtime_, 4};
  std::unique_ptr<ExecutorSession> session_;
  uint64_t node_ = 0, seq_ = 0, launch_ = 0;
  uint64_t through_ = 0;
  std::vector<uint64_t> finished_;
  std::map<uint64_t, absl::Status> failures_;
  std::vector<Report::Inlined> inlined_;
  std::map<ExecutableId, absl::Status> installed_;
};

TEST_F(ExecutorSessionTest, WhatIsLaunchedBeforeItsCodeIsLoadedFails) {
  const GroupPart x = Part(1, {0, 1});
  const GroupPart z = Part(2, {3});
  Put(x, 1);
  Put(z, 1);
  Install(8, Program("add", {3}, 1, 1));
  // From here on loading waits until the pool is free again.
  std::promise<void> go;
  const std::shared_future<void> free = go.get_future().share();
  for (int i = 0; i < 2; ++i) blocking_.Run([free] { free.wait(); });
  const std::string code = Program("identity", {0, 1}, 1, 1);
  Command(InstallExecutable{
      ExecutableId(9), std::make_shared<std::string>(code), Sha256Hex(code), {}, {}});
  const uint64_t early = Run(9, {0, 1}, {x}, {Part(3, {0, 1})});
  const uint64_t other = Run(8, {3}, {z}, {Part(5, {3})});
  ASSERT_TRUE(Until([&] {
    runtime_.EndAll();
    return Finished(early) && Finished(other);
  }));
  EXPECT_EQ(failures_[early].message(), "node 3: executable 9 is not loaded here");
  EXPECT_FALSE(failures_.contains(other));
  EXPECT_THAT(session_->counters().device_bytes, ElementsAre(8, 8, 0, 16));
  EXPECT_EQ(session_->launches_in_flight(), 0u);
  go.set_value();
  ASSERT_TRUE(Until([&] { return installed_.contains(ExecutableId(9)); }));
  const uint64_t late = Run(9, {0, 1}, {x}, {Part(4, {0, 1})});
  ASSERT_TRUE(Until([&] {
    runtime_.EndAll();
    return Finished(late);
  }));
  EXPECT_FALSE(failures_.contains(late));
}

TEST_F(ExecutorSessionTest, GangsWhoseDevicesDoNotWaitForEachOtherAreHandedOverAtOnce) {
  const GroupPart x = Part(1, {0, 1});
  Put(x, 1);
  Install(7, Program("add", {0, 1}, 2, 1, true));
  const GroupPart y = Part(2, {0, 1}), z = Part(3, {0, 1});
  Run(7, {0, 1}, {x, x}, {y});
  const uint64_t last = Run(7, {0, 1}, {y, x}, {z}, true);
  ASSERT_TRUE(Until([&] { return runtime_.under_way() == 2; }));
  EXPECT_EQ(through_, 1u);
  ASSERT_TRUE(Until([&] {
    runtime_.EndAll();
    return Finished(last);
  }));
  ASSERT_EQ(inlined_.size(), 2u);
  EXPECT_THAT(Values(inlined_[1].bytes->view()), ElementsAre(3, 6));
  EXPECT_THAT(runtime_.violations(), IsEmpty());
  EXPECT_THAT(failures_, IsEmpty());
}

// Devices that compute in the order of their launches, like GPUs.
class ExecutorSessionOnStreamsTest : public ExecutorSessionTest {
 protected:
  ExecutorSessionOnStreamsTest() : ExecutorSessionTest(ArrivalRule::kExternal) {}
};

TEST_F(ExecutorSessionOnStreamsTest, AChainOfGangsWithCollectivesIsHandedOverAtOnce) {
  constexpr int kGangs = 100;
  const GroupPart first = Part(1, {0, 1});
  Put(first, 1);
  Install(7, Program("allreduce", {0, 1}, 1, 1));
  uint64_t last = 0;
  for (uint64_t i = 1; i <= kGangs; ++i)
    last = Run(7, {0, 1}, {Part(i, {0, 1})}, {Part(i + 1, {0, 1})}, i > 1);
  ASSERT_TRUE(Until([&] { return runtime_.under_way() == kGangs; }));
  EXPECT_EQ(through_, 1u) << "none has ended";
  ASSERT_TRUE(Until([&] {
    runtime_.EndAll();
    return Finished(last);
  }));
  ASSERT_EQ(inlined_.size(), size_t{kGangs});
  EXPECT_THAT(Values(inlined_[0].bytes->view()), ElementsAre(2, 4));
  EXPECT_THAT(Values(inlined_[1].bytes->view()), ElementsAre(4, 8));
  EXPECT_THAT(runtime_.violations(), IsEmpty());
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(ExecutorSessionOnStreamsTest, AGangBehindOneThatCouldNotBeLaunchedIsNotLaunched) {
  const GroupPart x = Part(1, {0, 1}), y = Part(2, {0, 1}), z = Part(3, {0, 1});
  Put(x, 1);
  Install(7, Program("allreduce", {0, 1}, 1, 1));
  // It has one argument too many; the runtime reports that when it is launched.
  const uint64_t refused = Run(7, {0, 1}, {x, x}, {y});
  const uint64_t behind = Run(7, {0, 1}, {y}, {z}, true);
  const uint64_t other = Run(7, {0, 1}, {x}, {Part(4, {0, 1})});
  ASSERT_TRUE(Until([&] {
    runtime_.EndAll();
    return Finished(refused) && Finished(behind) && Finished(other);
  }));
  EXPECT_EQ(failures_.size(), 2u);
  EXPECT_EQ(failures_[behind], failures_[refused]);
  EXPECT_EQ(runtime_.launches().size(), 1u);
  EXPECT_THAT(runtime_.violations(), IsEmpty());
}

TEST_F(ExecutorSessionTest, ADeviceWhoseMemoryIsWaitedForHoldsUpNoOther) {
  BlockingPool full("full", 1), free("free", 1);
  Open({&full, &free});
  std::promise<void> go;
  full.Run([held = go.get_future().share()] { held.wait(); });
  PrepareReceive waits;
  waits.node = NodeId(++node_);
  waits.seq = ++seq_;
  waits.out = Part(1, {0});
  waits.sources.push_back({.kind = ShardSource::Kind::kInline, .bytes = Blob::Copy("8 bytes.")});
  Command(waits);
  Put(Part(2, {1}), 1);
  EXPECT_FALSE(Finished(waits.seq));
  go.set_value();
  EXPECT_TRUE(Until([&] { return Finished(waits.seq); }));
  EXPECT_THAT(failures_, IsEmpty());
  session_ = nullptr;  // before the pools
}

TEST_F(ExecutorSessionTest, DamagedCodeIsNotLoaded) {
  const GroupPart x = Part(1, {0});
  Put(x, 1);
  Command(InstallExecutable{
      ExecutableId(7), std::make_shared<std::string>(Program("add", {0}, 1, 1)), "feed", {}, {}});
  ASSERT_TRUE(Until([&] { return installed_.contains(ExecutableId(7)); }));
  const uint64_t seq = Run(7, {0}, {x}, {Part(2, {0})});
  ASSERT_TRUE(Until([&] { return Finished(seq); }));
  EXPECT_EQ(installed_[ExecutableId(7)].code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(failures_[seq].message(), "node 2: executable 7 is not loaded here");
  EXPECT_THAT(runtime_.launches(), IsEmpty());
}

TEST_F(ExecutorSessionTest, OutputsComeInlineWhenTheLaunchEnds) {
  const GroupPart x = Part(1, {2});
  const GroupPart y = Part(2, {2});
  Put(x, 1);
  Install(7, Program("add", {2}, 2, 1));
  const uint64_t seq = Run(7, {2}, {x, x}, {y});
  ASSERT_TRUE(Until([&] { return runtime_.under_way() == 1; }));
  EXPECT_EQ(session_->launches_in_flight(), 1u);
  EXPECT_FALSE(Finished(seq));
  EXPECT_THAT(session_->counters().device_bytes, ElementsAre(0, 0, 16, 0));
  runtime_.EndAll();
  ASSERT_TRUE(Until([&] { return Finished(seq); }));
  ASSERT_EQ(inlined_.size(), 1u);
  EXPECT_THAT(Values(inlined_[0].bytes->view()), ElementsAre(2, 4));
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_EQ(session_->launches_in_flight(), 0u);
}

// A branch that returns its argument, and a loop of no rounds.
TEST_F(ExecutorSessionTest, WhatIsSeveralShardsIsNotDonatedWithOneOfThem) {
  const GroupPart x = Part(1, {0}), y = Part(2, {0}), z = Part(3, {0});
  Put(x, 1);
  auto sequence = std::make_shared<Sequence>();
  sequence->registers = sequence->outputs = 1;
  Instruction output;
  output.op = Instruction::Op::kOutput;
  output.inputs = output.outputs = {0};
  sequence->instructions = {output};
  Command(InstallSequence{ExecutableId(6), nullptr, std::make_shared<const std::string>("?")});
  Command(InstallSequence{ExecutableId(7), nullptr,
                          std::make_shared<const std::string>(EncodeSequence(*sequence))});
  ASSERT_TRUE(Until([&] { return installed_.size() == 2; }));
  EXPECT_EQ(installed_[ExecutableId(6)].code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(installed_[ExecutableId(7)].ok());
  FakeProgram taking;
  taking.op = "identity";
  taking.inputs = taking.outputs = {Floats(2)};
  taking.inputs[0].donated = true;
  Install(8, taking.ToText());
  Install(9, Program("identity", {0}, 1, 1));
  const uint64_t same = Run(7, {0}, {x}, {y});
  ASSERT_TRUE(Until([&] { return Finished(same); }));
  EXPECT_THAT(session_->counters().device_bytes, ElementsAre(8, 0, 0, 0));
  Command(FreeGroups{{y.group}});
  ASSERT_TRUE(Until([&] { return session_->counters().buffers == 1; }));
  EXPECT_THAT(session_->counters().device_bytes, ElementsAre(8, 0, 0, 0)) << "x has them still";

  Run(7, {0}, {x}, {y});
  const uint64_t taken = Run(8, {0}, {y}, {z});
  const auto ended = [&](uint64_t seq) {
    return [this, seq] {
      runtime_.EndAll();
      return Finished(seq);
    };
  };
  ASSERT_TRUE(Until(ended(taken)));
  Command(FreeGroups{{y.group}});
  inlined_.clear();
  ASSERT_TRUE(Until(ended(Run(9, {0}, {x}, {Part(4, {0})}))));
  EXPECT_THAT(failures_, IsEmpty());
  ASSERT_EQ(inlined_.size(), 1u);
  EXPECT_THAT(Values(inlined_[0].bytes->view()), ElementsAre(1, 2));
  // The buffer is one shard again, so the launch takes it over.
  ASSERT_TRUE(Until(ended(Run(8, {0}, {x}, {Part(5, {0})}))));
  EXPECT_EQ(runtime_.live_buffers(), 3) << "z and two results";
  Command(FreeGroups{{x.group, z.group, GroupId(4), GroupId(5)}});
  ASSERT_TRUE(Until([&] { return session_->counters().buffers == 0; }));
  EXPECT_THAT(session_->counters().device_bytes, ElementsAre(0, 0, 0, 0));
}

TEST_F(ExecutorSessionTest, WhatIsFreedInFlightLeavesNothing) {
  const GroupPart x = Part(1, {0});
  const GroupPart y = Part(2, {0});
  Put(x, 1);
  Install(7, Program("add", {0}, 2, 1));
  const uint64_t seq = Run(7, {0}, {x, x}, {y});
  ASSERT_TRUE(Until([&] { return runtime_.under_way() == 1; }));
  Command(FreeGroups{{x.group, y.group}});
  ASSERT_TRUE(Until([&] { return session_->counters().buffers == 0; }));
  runtime_.EndAll();
  ASSERT_TRUE(Until([&] { return Finished(seq); }));
  EXPECT_EQ(session_->counters().buffers, 0u);
  EXPECT_THAT(session_->counters().device_bytes, ElementsAre(0, 0, 0, 0));
  EXPECT_TRUE(Until([&] { return runtime_.live_buffers() == 0; }));
}

TEST_F(ExecutorSessionTest, AFailedLaunchPoisonsItsOutputsAndFreesTheirMemory) {
  const GroupPart x = Part(1, {0});
  const GroupPart y = Part(2, {0});
  Put(x, 1);
  Install(7, Program("add", {0}, 2, 1));
  runtime_.FailNext(absl::InternalError("device on fire"));
  const uint64_t seq = Run(7, {0}, {x, x}, {y});
  ASSERT_TRUE(Until([&] {
    runtime_.EndAll();
    return Finished(seq);
  }));
  EXPECT_EQ(failures_[seq].message(), "device on fire");
  EXPECT_THAT(session_->counters().device_bytes, ElementsAre(8, 0, 0, 0));
  EXPECT_THAT(inlined_, IsEmpty());
}

TEST_F(ExecutorSessionTest, EndingWithLaunchesInFlightLeavesNothing) {
  const GroupPart x = Part(1, {0, 1});
  const GroupPart y = Part(2, {0, 1});
  Put(x, 1);
  Install(7, Program("allreduce", {0, 1}, 1, 1));
  Run(7, {0, 1}, {x}, {y});
  ASSERT_TRUE(Until([&] { return runtime_.under_way() == 1; }));
  session_->End();
  EXPECT_EQ(session_->launches_in_flight(), 1u);
  EXPECT_EQ(session_->counters().buffers, 0u);
  const size_t reports = finished_.size();
  runtime_.EndAll();
  ASSERT_TRUE(Until([&] { return session_->launches_in_flight() == 0; }));
  session_ = nullptr;
  EXPECT_TRUE(Until([&] { return runtime_.live_buffers() == 0; }));
  EXPECT_EQ(finished_.size(), reports);
}

TEST_F(ExecutorSessionTest, WhatWaitsForItsTurnStillRunsWhenTheControllerIsGone) {
  const GroupPart x = Part(1, {0, 1});
  Put(x, 1);
  Install(7, Program("allreduce", {0, 1}, 1, 1));
  for (uint64_t group = 2; group <= 4; ++group) Run(7, {0, 1}, {x}, {Part(group, {0, 1})});
  ASSERT_TRUE(Until([&] { return runtime_.under_way() == 2; }));
  session_->Drain();
  EXPECT_EQ(session_->launches_in_flight(), 3u);
  const uint64_t before = through_;
  ASSERT_TRUE(Until([&] {
    runtime_.EndAll();
    return session_->launches_in_flight() == 0;
  }));
  EXPECT_EQ(runtime_.launches().size(), 3u);
  EXPECT_EQ(through_, before);
  EXPECT_THAT(runtime_.violations(), IsEmpty());
}

TEST_F(ExecutorSessionTest, DestroyedInTheMiddleOfEverything) {
  const GroupPart x = Part(1, {0});
  Put(x, 1);
  Install(7, Program("add", {0}, 2, 1));
  Run(7, {0}, {x, x}, {Part(2, {0})});
  ASSERT_TRUE(Until([&] { return runtime_.under_way() == 1; }));
  PrepareReceive receive;
  receive.node = NodeId(++node_);
  receive.seq = ++seq_;
  receive.out = Part(3, {0});
  receive.sources.resize(1);
  receive.sources[0].kind = ShardSource::Kind::kPeer;
  receive.sources[0].endpoint = session_->data_endpoint();
  receive.sources[0].incarnation = Incarnation(5);
  Command(receive);
  // Right behind the command: the source has not refused it yet, for want of a ticket.
  loop_.Post("test", [&] { session_ = nullptr; });
  ASSERT_TRUE(Until([&] { return session_ == nullptr; }));
  runtime_.EndAll();
  RunUntil(
      loop_, [] { return false; }, std::chrono::milliseconds(50));
  EXPECT_THAT(failures_, IsEmpty());
}

}  // namespace
}  // namespace fairway
