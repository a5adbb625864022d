// SPDX-License-Identifier: Apache-2.0
// The additions of the fake runtime to the interface; tests/conformance tests the interface itself.
#include "worker/executor/runtime/fake/fake_runtime.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using Record = FakeRuntime::LaunchRecord;

std::shared_ptr<Blob> Floats(std::vector<float> values) {
  return Blob::Copy({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

TEST(FakeProgramTest, TextRoundTrip) {
  const std::string text =
      "fake add\nname step\ndevices 0,1\nin f32[4,2] tiles 2,1 donated\nin f32[4,2]\nout "
      "f32[4,2]\n";
  auto program = FakeProgram::Parse(text);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->ToText(), text);
  auto failing = FakeProgram::Parse("fake fail\nerror 14 island lost\nout f32[]\n");
  ASSERT_TRUE(failing.ok()) << failing.status();
  EXPECT_EQ(failing->error, absl::UnavailableError("island lost"));
  EXPECT_EQ(FakeProgram::Parse(failing->ToText())->error, failing->error);
}

TEST(FakeProgramTest, WhatIsNoProgramIsRefused) {
  for (const char* text : {"", "garbage", "fake nonsense", "fake add\nin f32[2]\nout f32[3]\n",
                           "fake add\nin bf16[2]\nout bf16[2]\n", "fake identity\nout f32[2]\n",
                           "fake identity\nin f99[2]\n", "fake identity\nin f32[-1]\n",
                           "fake identity\nin f32[2\n", "fake identity\nin f32[2] tiles 1,2\n",
                           "fake identity\ndevices 1,x\n", "fake identity\nin f32[2] doanted\n",
                           "fake allreduce\nin f32[2]\nin f32[2]\nout f32[2]\n"}) {
    EXPECT_EQ(FakeProgram::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

class FakeRuntimeTest : public ::testing::Test {
 protected:
  std::shared_ptr<LoadedExecutable> Load(FakeRuntime& runtime, const std::string& text) {
    auto loaded = runtime.Load(text, {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *loaded : nullptr;
  }
  LaunchRequest Request(LoadedExecutable* executable, std::vector<int> devices,
                        std::vector<std::vector<DeviceBuffer*>> inputs, uint64_t launch_id) {
    LaunchRequest request;
    request.executable = executable;
    request.devices = std::move(devices);
    request.inputs = std::move(inputs);
    request.launch_id = launch_id;
    return request;
  }
  absl::AnyInvocable<void(absl::Status)> Note(const std::string& name) {
    return [this, name](absl::Status status) { ended_.push_back(name + " " + Describe(status)); };
  }
  std::vector<std::string> ended_;
};

TEST_F(FakeRuntimeTest, ManualModeEndsLaunchesOneByOneInOrder) {
  FakeRuntime runtime(2, /*manual=*/true);
  auto program = Load(runtime, "fake identity\ndevices any\nin f32[1]\nout f32[1]\n");
  auto x = runtime.FromHost(Floats({1}), DType::kF32, Shape{{1}}, 0, "").value();
  auto first = runtime.Launch(Request(program.get(), {0}, {{x.get()}}, 1), Note("first")).value();
  auto second =
      runtime.Launch(Request(program.get(), {0}, {{first.outputs[0][0].get()}}, 2), Note("second"))
          .value();
  auto third = runtime.Launch(Request(program.get(), {0}, {{x.get()}}, 3), Note("third")).value();
  EXPECT_EQ(runtime.under_way(), 3);
  EXPECT_TRUE(ended_.empty());
  ASSERT_TRUE(runtime.EndNext());
  EXPECT_EQ(ended_, (std::vector<std::string>{"first OK"}));
  runtime.FailNext(absl::DataLossError("cosmic ray"));
  runtime.EndAll();
  EXPECT_EQ(ended_,
            (std::vector<std::string>{"first OK", "second DATA_LOSS: cosmic ray", "third OK"}));
  EXPECT_FALSE(runtime.EndNext());
  EXPECT_EQ(
      runtime.launches(),
      (std::vector<Record>{{1, "identity", {0}}, {2, "identity", {0}}, {3, "identity", {0}}}));
}

TEST_F(FakeRuntimeTest, ABlockedProgramEndsOnlyWhenTold) {
  FakeRuntime runtime(1);
  auto block = Load(runtime, "fake block\ndevices any\nin f32[1]\nout f32[1]\n");
  auto add = Load(runtime, "fake add\ndevices any\nin f32[1]\nin f32[1]\nout f32[1]\n");
  auto x = runtime.FromHost(Floats({1}), DType::kF32, Shape{{1}}, 0, "").value();
  auto blocked = runtime.Launch(Request(block.get(), {0}, {{x.get()}}, 1), Note("block")).value();
  DeviceBuffer* y = blocked.outputs[0][0].get();
  auto sum = runtime.Launch(Request(add.get(), {0}, {{y, y}}, 2), Note("add")).value();
  EXPECT_TRUE(ended_.empty());
  EXPECT_TRUE(runtime.EndNext());
  EXPECT_EQ(ended_, (std::vector<std::string>{"block OK", "add OK"}));
}

TEST_F(FakeRuntimeTest, BrokenRulesOfGangsAreRecorded) {
  FakeRuntime runtime(2);
  auto sum = Load(runtime, "fake allreduce\ndevices 0,1\nin f32[1]\nout f32[1]\n");
  auto a = runtime.FromHost(Floats({1}), DType::kF32, Shape{{1}}, 0, "").value();
  auto b = runtime.FromHost(Floats({2}), DType::kF32, Shape{{1}}, 1, "").value();
  auto late = runtime.Expect(DType::kF32, Shape{{1}}, 1).value();
  auto launch = [&](DeviceBuffer* on1, uint64_t id) {
    return runtime.Launch(Request(sum.get(), {0, 1}, {{a.get()}, {on1}}, id), Note("gang"))
        .status()
        .code();
  };
  EXPECT_EQ(launch(late.buffer.get(), 1), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(launch(b.get(), 5), absl::StatusCode::kOk);
  EXPECT_EQ(launch(b.get(), 4), absl::StatusCode::kFailedPrecondition);
  late.fulfil(absl::UnavailableError("lost"));
  EXPECT_EQ(launch(late.buffer.get(), 6), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime.violations(),
            (std::vector<std::string>{
                "gang 1: argument 0 on device 1 is not ready", "device 0: gang 4 after gang 5",
                "gang 6: argument 0 on device 1 has failed: UNAVAILABLE: lost"}));
  EXPECT_EQ(runtime.launches().size(), 1u);
}

TEST_F(FakeRuntimeTest, LiveBuffersAreCounted) {
  FakeRuntime runtime(1);
  auto program = Load(runtime, "fake identity\ndevices any\nin f32[4] donated\nout f32[4]\n");
  auto x = runtime.FromHost(Floats({1, 2, 3, 4}), DType::kF32, Shape{{4}}, 0, "").value();
  EXPECT_EQ(runtime.live_bytes(), 16);
  auto result = runtime.Launch(Request(program.get(), {0}, {{x.get()}}, 1), Note("x")).value();
  EXPECT_EQ(runtime.live_buffers(), 1) << "the output; the input was donated";
  x.reset();
  EXPECT_EQ(runtime.live_buffers(), 1);
  result.outputs.clear();
  EXPECT_EQ(runtime.live_buffers(), 0);
  EXPECT_EQ(runtime.live_bytes(), 0);
}

}  // namespace
}  // namespace fairway
