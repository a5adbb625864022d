// SPDX-License-Identifier: Apache-2.0
// Loading and launching.
#include "tests/conformance/runtime_conformance.h"

#include <thread>

namespace fairway::conformance {
namespace {

using test::Awaited;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

const std::vector<int> kAll = {0, 1, 2, 3};

TEST_P(RuntimeConformance, InfoIsFilled) {
  const RuntimeInfo& info = runtime().info();
  const bool cuda = GetParam().name == "cuda";  // a plugin of another kind
  EXPECT_EQ(info.name, cuda ? "pjrt" : GetParam().name);
  EXPECT_EQ(info.num_devices, kDevices);
  EXPECT_EQ(info.platform_name, cuda ? "cuda" : "cpu");
  EXPECT_EQ(info.device_kind, cuda ? "NVIDIA H200" : "cpu");
  EXPECT_EQ(info.target_config.empty(), !cuda);
  ASSERT_FALSE(info.memory_kinds.empty());
  EXPECT_EQ(info.memory_kinds[0], "device");
  if (info.has_compiler) {
    EXPECT_FALSE(info.stablehlo_current.empty());
    EXPECT_FALSE(info.stablehlo_minimum.empty());
  }
}

TEST_P(RuntimeConformance, LoadRefusesWhatIsNoCodeOrNoDevice) {
  EXPECT_EQ(runtime().Load("", {}).status().code(), kInvalid);
  EXPECT_EQ(runtime().Load("garbage", {}).status().code(), kInvalid);
  auto compiled = backend_->Compile(Program::kAdd, test::OneDevice());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(runtime().Load(compiled->code, {kDevices}).status().code(), kInvalid);
  EXPECT_EQ(runtime().Load(compiled->code, {-1}).status().code(), kInvalid);
  EXPECT_EQ(runtime().Load(compiled->code, {0, 1}).status().code(), kInvalid);
  compiled = backend_->Compile(Program::kPsum, test::Spmd(2));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(runtime().Load(compiled->code, {1, 1}).status().code(), kInvalid);
  EXPECT_EQ(runtime().Load(compiled->code, {1}).status().code(), kInvalid);
}

TEST_P(RuntimeConformance, AProgramOfOneDevice) {
  auto add = Load(Program::kAdd, test::OneDevice());
  auto x = Put({1, 2, 3, 4}), y = Put({10, 20, 30, 40});
  auto result = test::Run(runtime(), Request(add.get(), {{x.get(), y.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->outputs.size(), 1u);
  ASSERT_EQ(result->outputs[0].size(), 1u);
  EXPECT_TRUE(test::WaitReady(*result->outputs[0][0]).ok());
  EXPECT_EQ(Read(*result->outputs[0][0]).value(), Computed({11, 22, 33, 44}));
  EXPECT_EQ(Read(*x).value(), (Floats{1, 2, 3, 4}));
}

TEST_P(RuntimeConformance, ABufferMayBeListedTwice) {
  auto add = Load(Program::kAdd, test::OneDevice());
  auto x = Put({1, 2, 3, 4});
  auto result = test::Run(runtime(), Request(add.get(), {{x.get(), x.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Read(*result->outputs[0][0]).value(), Computed({2, 4, 6, 8}));
}

TEST_P(RuntimeConformance, PortableCodeRunsOnAnyDevice) {
  auto add = Load(Program::kAdd, test::Portable());
  for (int device = 0; device < kDevices; ++device) {
    auto x = Put({1, 2, 3, 4}, device);
    auto result = test::Run(runtime(), Request(add.get(), {{x.get(), x.get()}}, {device}));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Read(*result->outputs[0][0]).value(), Computed({2, 4, 6, 8}));
  }
  auto x = Put({1, 2, 3, 4}, 1);
  EXPECT_EQ(
      runtime().Launch(Request(add.get(), {{x.get(), x.get()}}, {0}), nullptr).status().code(),
      kInvalid);
}

TEST_P(RuntimeConformance, LoadReplacesTheDevices) {
  auto add = Load(Program::kAdd, test::OneDevice(0), {2});
  auto x = Put({1, 2, 3, 4}, 2);
  auto result = test::Run(runtime(), Request(add.get(), {{x.get(), x.get()}}, {2}));
  ASSERT_TRUE(result.ok()) << result.status();
  auto sum =
      test::Run(runtime(), Request(add.get(), {{result->outputs[0][0].get(), x.get()}}, {2}));
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(Read(*sum->outputs[0][0]).value(), Computed({3, 6, 9, 12}));
}

TEST_P(RuntimeConformance, WrongArgumentsAreRefusedAndNothingRuns) {
  auto add = Load(Program::kDonatingAdd, test::OneDevice());
  auto x = Put({1, 2, 3, 4}), y = Put({1, 1, 1, 1}), elsewhere = Put({1, 2, 3, 4}, 1);
  auto square = Put({1, 2, 3, 4}, Shape{{2, 2}}, 0);
  auto ints =
      runtime().FromHost(Blob::Copy(std::string(16, '\0')), DType::kS32, Shape{{4}}, 0, "").value();
  bool called = false;
  auto code_of = [&](const LaunchRequest& request) {
    return runtime().Launch(request, [&](absl::Status) { called = true; }).status().code();
  };
  EXPECT_EQ(code_of(Request(add.get(), {{x.get()}})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), y.get(), y.get()}})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), nullptr}})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), square.get()}})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), ints.get()}})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), elsewhere.get()}})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), y.get()}}, {1})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), y.get()}}, {kDevices})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {{x.get(), y.get()}}, {})), kInvalid);
  EXPECT_EQ(code_of(Request(add.get(), {})), kInvalid);
  EXPECT_EQ(code_of(Request(nullptr, {{x.get(), y.get()}})), kInvalid);
  LaunchRequest kept = Request(add.get(), {{x.get(), y.get()}});
  kept.non_donatable = {2};
  EXPECT_EQ(code_of(kept), kInvalid);
  EXPECT_FALSE(called);
  EXPECT_EQ(Read(*x).value(), (Floats{1, 2, 3, 4})) << "a refused launch took its input over";
}

TEST_P(RuntimeConformance, DonationConsumesTheInput) {
  auto add = Load(Program::kDonatingAdd, test::OneDevice());
  auto x = Put({1, 2, 3, 4}), y = Put({10, 10, 10, 10});
  auto result = test::Run(runtime(), Request(add.get(), {{x.get(), y.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Read(*result->outputs[0][0]).value(), Computed({11, 12, 13, 14}));
  EXPECT_EQ(Read(*x).status().code(), kPrecondition);
  EXPECT_EQ(Read(*y).value(), (Floats{10, 10, 10, 10}));
  EXPECT_EQ(runtime().Launch(Request(add.get(), {{x.get(), y.get()}}), nullptr).status().code(),
            kInvalid);
  EXPECT_EQ(runtime().CopyToDevice(*x, 1, "").status().code(), kPrecondition);
}

TEST_P(RuntimeConformance, ANonDonatableInputSurvives) {
  auto add = Load(Program::kDonatingAdd, test::OneDevice());
  auto x = Put({1, 2, 3, 4}), y = Put({10, 10, 10, 10});
  LaunchRequest request = Request(add.get(), {{x.get(), y.get()}});
  request.non_donatable = {0};
  for (int i = 0; i < 3; ++i) {
    auto result = test::Run(runtime(), request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Read(*result->outputs[0][0]).value(), Computed({11, 12, 13, 14}));
  }
  EXPECT_EQ(Read(*x).value(), (Floats{1, 2, 3, 4}));
}

TEST_P(RuntimeConformance, AChainOfDonations) {
  auto add = Load(Program::kDonatingAdd, test::OneDevice());
  auto one = Put({1, 1, 1, 1});
  std::unique_ptr<DeviceBuffer> x = Put({0, 0, 0, 0});
  for (int i = 0; i < 200; ++i) {
    auto result = runtime().Launch(Request(add.get(), {{x.get(), one.get()}}), [](absl::Status) {});
    ASSERT_TRUE(result.ok()) << result.status();
    x = std::move(result->outputs[0][0]);
  }
  EXPECT_EQ(Read(*x).value(), Computed({200, 200, 200, 200}));
}

TEST_P(RuntimeConformance, WhatIsReadMayBeDestroyedAfterLaunch) {
  Floats sum;
  Awaited<absl::StatusOr<HostView>> view;
  {
    auto add = Load(Program::kAdd, test::OneDevice());
    auto late = Expect(4, 0);
    auto x = Put({1, 2, 3, 4});
    auto result =
        runtime().Launch(Request(add.get(), {{late.buffer.get(), x.get()}}), [](absl::Status) {});
    ASSERT_TRUE(result.ok()) << result.status();
    runtime().Read(*result->outputs[0][0], view.Callback());
    x.reset();
    add.reset();
    late.buffer.reset();
    result->outputs.clear();
    EXPECT_FALSE(view.HasCome());
    late.fulfil(test::BlobOf(Floats{1, 1, 1, 1}));
  }
  auto bytes = view.Get();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  sum.resize(4);
  ASSERT_EQ(bytes->bytes.size(), 16u);
  std::memcpy(sum.data(), bytes->bytes.data(), 16);
  EXPECT_EQ(sum, Computed({2, 3, 4, 5}));
}

TEST_P(RuntimeConformance, PoisonPassesThroughProgramsWithItsCode) {
  auto add = Load(Program::kDonatingAdd, test::OneDevice());
  auto one = Put({1, 1, 1, 1});
  auto late = Expect(4, 0);
  DeviceBuffer* x = late.buffer.get();
  std::vector<test::Running> chain;
  for (int i = 0; i < 20; ++i) {
    auto running = test::Start(runtime(), Request(add.get(), {{x, one.get()}}));
    ASSERT_TRUE(running.ok()) << running.status();
    x = running->result.outputs[0][0].get();
    chain.push_back(*std::move(running));
  }
  const absl::Status lost = absl::DataLossError("executor 2 died");
  late.fulfil(lost);
  for (test::Running& running : chain) EXPECT_EQ(running.done.Get(), lost);
  EXPECT_EQ(test::WaitReady(*x), lost);
  EXPECT_EQ(Read(*x).status(), lost);
  // A launch on an input that is known to have failed is poisoned at once.
  auto after = test::Start(runtime(), Request(add.get(), {{x, one.get()}}));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->done.Get(), lost);
  EXPECT_EQ(Read(*after->result.outputs[0][0]).status(), lost);
}

TEST_P(RuntimeConformance, AGangSumsOverItsDevices) {
  auto psum = Load(Program::kPsum, test::Spmd(kDevices));
  std::vector<std::unique_ptr<DeviceBuffer>> shards;
  std::vector<std::vector<DeviceBuffer*>> inputs;
  for (int d : kAll) {
    shards.push_back(Put({static_cast<float>(1 << d)}, d));
    inputs.push_back({shards.back().get()});
  }
  for (int i = 0; i < 50; ++i) {
    auto result = test::Run(runtime(), Request(psum.get(), inputs, kAll));
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->outputs.size(), 4u);
    for (auto& outputs : result->outputs) EXPECT_EQ(Read(*outputs[0]).value(), Computed({15}));
  }
}

TEST_P(RuntimeConformance, AGangOnOtherDevicesInAnotherOrder) {
  auto psum = Load(Program::kPsum, test::Spmd(2), {3, 1});
  auto on3 = Put({3}, 3), on1 = Put({1}, 1);
  auto result = test::Run(runtime(), Request(psum.get(), {{on3.get()}, {on1.get()}}, {3, 1}));
  ASSERT_TRUE(result.ok()) << result.status();
  for (auto& outputs : result->outputs) EXPECT_EQ(Read(*outputs[0]).value(), Computed({4}));
  LaunchRequest swapped = Request(psum.get(), {{on1.get()}, {on3.get()}}, {1, 3});
  EXPECT_EQ(runtime().Launch(swapped, nullptr).status().code(), kInvalid);
}

TEST_P(RuntimeConformance, ADonatingGang) {
  auto psum = Load(Program::kDonatingPsum, test::Spmd(kDevices));
  std::vector<std::unique_ptr<DeviceBuffer>> shards;
  for (int d : kAll) shards.push_back(Put({1}, d));
  for (int i = 0; i < 5; ++i) {
    std::vector<std::vector<DeviceBuffer*>> inputs;
    for (auto& shard : shards) inputs.push_back({shard.get()});
    auto result = test::Run(runtime(), Request(psum.get(), inputs, kAll));
    ASSERT_TRUE(result.ok()) << result.status();
    for (int d : kAll) EXPECT_EQ(Read(*shards[d]).status().code(), kPrecondition);
    for (int d : kAll) shards[d] = std::move(result->outputs[d][0]);
  }
  for (auto& shard : shards) EXPECT_EQ(Read(*shard).value(), Computed({1024}));
}

TEST_P(RuntimeConformance, AGangWithALateInputWaitsOnlyWhereThatHoldsUpNobody) {
  auto psum = Load(Program::kPsum, test::Spmd(2));
  auto x = Put({1}, 0);
  auto late = Expect(1, 1);
  auto request = [&] { return Request(psum.get(), {{x.get()}, {late.buffer.get()}}, {0, 1}); };
  const absl::Status lost = absl::UnavailableError("lost");
  if (psum->separable()) {
    auto waiting = test::Start(runtime(), request());
    ASSERT_TRUE(waiting.ok()) << waiting.status();
    late.fulfil(lost);
    EXPECT_EQ(waiting->done.Get(), lost);
    for (auto& outputs : waiting->result.outputs) EXPECT_EQ(Read(*outputs[0]).status(), lost);
  } else if (runtime().info().gang_inputs == ArrivalRule::kExternal) {
    // The stream waits for inputs; only a launch on a known failure does not begin.
    auto waiting = test::Start(runtime(), request());
    ASSERT_TRUE(waiting.ok()) << waiting.status();
    late.fulfil(test::BlobOf(Floats{2}));
    EXPECT_TRUE(waiting->done.Get().ok());
    for (auto& outputs : waiting->result.outputs)
      EXPECT_EQ(Read(*outputs[0]).value(), Computed({3}));
    auto failed = Expect(1, 1);
    failed.fulfil(lost);
    EXPECT_EQ(test::WaitReady(*failed.buffer), lost);
    auto never =
        test::Start(runtime(), Request(psum.get(), {{x.get()}, {failed.buffer.get()}}, {0, 1}));
    ASSERT_TRUE(never.ok()) << never.status();
    EXPECT_EQ(never->done.Get(), lost);
    for (auto& outputs : never->result.outputs) EXPECT_EQ(Read(*outputs[0]).status(), lost);
  } else {
    EXPECT_EQ(runtime().Launch(request(), nullptr).status().code(), kPrecondition);
    late.fulfil(lost);
    absl::Status refused = runtime().Launch(request(), nullptr).status();
    EXPECT_EQ(refused.code(), kPrecondition);
    EXPECT_NE(Text(refused).find("UNAVAILABLE: lost"), std::string::npos) << refused;
  }
  LaunchRequest no_id = Request(psum.get(), {{x.get()}, {x.get()}}, {0, 1});
  no_id.launch_id = 0;
  EXPECT_EQ(runtime().Launch(no_id, nullptr).status().code(), kInvalid);
}

// An event loop launches brief programs itself: Launch must not wait, and the end comes within it.
TEST_P(RuntimeConformance, WhatIsBriefEndsWithinLaunch) {
  auto add = Load(Program::kAdd, test::Portable());
  auto x = Put({1, 2, 3, 4}), y = Put({10, 20, 30, 40});
  ASSERT_TRUE(test::WaitReady(*x).ok() && test::WaitReady(*y).ok());
  ASSERT_EQ(add->brief(), GetParam().has_brief);
  for (int i = 0; i < 100; ++i) {
    Awaited<absl::StatusOr<std::thread::id>> ended;
    auto result = runtime().Launch(
        Request(add.get(), {{x.get(), y.get()}}),
        [end = ended.Callback()](const absl::Status&) mutable { end(std::this_thread::get_id()); });
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(ended.HasCome() || !add->brief());
    const auto thread = ended.Get();
    ASSERT_TRUE(thread.ok()) << thread.status();
    if (add->brief()) ASSERT_EQ(*thread, std::this_thread::get_id());
    x = std::move(result->outputs[0][0]);
  }
  EXPECT_EQ(Read(*x).value(), Computed({1001, 2002, 3003, 4004}));
}

TEST_P(RuntimeConformance, LateInputsInParallelThreads) {
  auto add = Load(Program::kAdd, test::Portable());
  constexpr int kRounds = 200;
  std::vector<std::thread> threads;
  std::vector<float> sums(kDevices, 0);
  for (int device = 0; device < kDevices; ++device) {
    threads.emplace_back([&, device] {
      auto one = Put({1, 1, 1, 1}, device);
      auto late = Expect(4, device);
      std::unique_ptr<DeviceBuffer> x = std::move(late.buffer);
      std::thread sender([&] { late.fulfil(test::BlobOf(Floats{0, 0, 0, 0})); });
      for (int i = 0; i < kRounds; ++i) {
        LaunchRequest request;
        request.executable = add.get();
        request.devices = {device};
        request.inputs = {{x.get(), one.get()}};
        request.launch_id = 1 + i;
        auto result = runtime().Launch(request, [](absl::Status) {});
        if (!result.ok()) break;
        x = std::move(result->outputs[0][0]);
      }
      sums[device] = Read(*x).value_or(Floats{-1})[0];
      sender.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, Computed({kRounds, kRounds, kRounds, kRounds}));
}

TEST_P(RuntimeConformance, GangsBesideProgramsOfOneDevice) {
  auto add = Load(Program::kDonatingAdd, test::Portable());
  auto psum = Load(Program::kPsum, test::Spmd(kDevices));
  constexpr int kAdds = 1000, kGangs = 200;
  Floats sums(kDevices, 0);
  std::vector<std::thread> threads;
  for (int device = 0; device < kDevices; ++device) {
    threads.emplace_back([&, device] {
      auto one = Put({1, 1, 1, 1}, device);
      auto x = Put({0, 0, 0, 0}, device);
      for (int i = 0; i < kAdds; ++i) {
        LaunchRequest request;
        request.executable = add.get();
        request.devices = {device};
        request.inputs = {{x.get(), one.get()}};
        request.launch_id = 1;
        auto result = runtime().Launch(request, [](absl::Status) {});
        if (!result.ok()) return;
        x = std::move(result->outputs[0][0]);
      }
      sums[device] = Read(*x).value_or(Floats{-1})[0];
    });
  }
  std::vector<std::unique_ptr<DeviceBuffer>> shards;
  std::vector<std::vector<DeviceBuffer*>> inputs;
  for (int d : kAll) {
    shards.push_back(Put({static_cast<float>(1 << d)}, d));
    inputs.push_back({shards.back().get()});
  }
  int right = 0;
  for (int i = 0; i < kGangs; ++i) {
    auto result = test::Run(runtime(), Request(psum.get(), inputs, kAll));
    if (!result.ok()) break;
    for (auto& outputs : result->outputs)
      right += Read(*outputs[0]).value_or(Floats{-1}) == Computed({15});
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kGangs * kDevices);
  EXPECT_EQ(sums, Computed(Floats(kDevices, kAdds)));
}

}  // namespace
}  // namespace fairway::conformance
