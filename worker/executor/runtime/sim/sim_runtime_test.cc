// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/sim/sim_runtime.h"

#include <atomic>
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/executor/runtime/native/test_native_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using test::Awaited;
using test::Parameter;
using test::Result;
using test::Step;

std::string Sleep(std::chrono::nanoseconds time) {
  return Parameter(DType::kF32, "4") +
         Step("sleep", "0", fmt::format("nanoseconds: {}", time.count())) + Result(1);
}

class SimRuntimeTest : public ::testing::Test {
 protected:
  std::shared_ptr<LoadedExecutable> Load(const std::string& text, std::vector<int> devices = {}) {
    v1::NativeCode code;
    *code.mutable_program() = test::NativeFromText(text);
    for (const int device : devices) code.add_devices(device);
    auto loaded = runtime_.Load(code.SerializeAsString(), {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.value_or(nullptr);
  }
  std::unique_ptr<DeviceBuffer> Put(int device = 0) {
    return runtime_.FromHost(test::BlobOf<float>({1, 2, 3, 4}), DType::kF32, Shape{{4}}, device, "")
        .value();
  }
  LaunchRequest Request(const std::shared_ptr<LoadedExecutable>& code, uint64_t id,
                        std::vector<std::vector<DeviceBuffer*>> inputs,
                        std::vector<int> devices = {0}) {
    LaunchRequest request;
    request.executable = code.get();
    request.devices = std::move(devices);
    request.inputs = std::move(inputs);
    request.launch_id = id;
    return request;
  }

  SimRuntime runtime_{2};
};

TEST_F(SimRuntimeTest, ADeclaredTimePassesAndCostsNoProcessor) {
  const auto nap = Load(Parameter(DType::kF32, "4") + Step("busy_wait", "0", "nanoseconds: 50000") +
                        Step("sleep", "1", "nanoseconds: 50000") + Result(2) + "repeat: 3000");
  const auto x = Put();
  const auto begin = Clock::now();
  const std::clock_t used = std::clock();
  ASSERT_TRUE(test::Run(runtime_, Request(nap, 1, {{x.get()}})).ok());
  EXPECT_GE(Clock::now() - begin, 300ms);
  EXPECT_LT(std::clock() - used, CLOCKS_PER_SEC / 10);
}

// A launch that the executor got in time is not late because a thread was.
TEST_F(SimRuntimeTest, TimesAreThoseOfTheDeviceNotOfWhenItsThreadGotRoundToIt) {
  const auto nap = Load(Sleep(5ms));
  const auto told = Clock::now();
  runtime_.NoteLaunch(1);
  runtime_.NoteLaunch(2);
  const auto both_told = Clock::now();
  const auto x = Put();
  auto first = test::Run(runtime_, Request(nap, 1, {{x.get()}}));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GE(Clock::now() - told, 5ms);
  ASSERT_TRUE(test::Eventually([&] { return Clock::now() - both_told > 15ms; }));
  DeviceBuffer* y = first->outputs[0][0].get();
  std::atomic<bool> ended = false;
  ASSERT_TRUE(runtime_.Launch(Request(nap, 2, {{y}}), [&](absl::Status) { ended = true; }).ok());
  EXPECT_TRUE(ended) << "it began 5 ms and ended 10 ms after it was told";

  // The executor gets this one now.
  const auto again = Clock::now();
  runtime_.NoteLaunch(3);
  ASSERT_TRUE(test::Run(runtime_, Request(nap, 3, {{y}})).ok());
  EXPECT_GE(Clock::now() - again, 5ms);
}

TEST_F(SimRuntimeTest, AChainLaunchedAheadTakesItsTimes) {
  const auto nap = Load(Sleep(1ms));
  const auto begin = Clock::now();
  std::unique_ptr<DeviceBuffer> x = Put();
  Awaited<absl::Status> last;
  for (uint64_t id = 1; id <= 50; ++id) {
    auto result = runtime_.Launch(
        Request(nap, id, {{x.get()}}),
        id < 50 ? absl::AnyInvocable<void(absl::Status)>([](absl::Status) {}) : last.Callback());
    ASSERT_TRUE(result.ok()) << result.status();
    x = std::move(result->outputs[0][0]);
  }

  EXPECT_TRUE(last.Get().ok());
  EXPECT_GE(Clock::now() - begin, 50ms);
}

TEST_F(SimRuntimeTest, ResultsAreZerosAndTakeNoMemory) {
  // 80 GB, beside a small value that is only passed on.
  const auto code =
      Load(Parameter(DType::kF32, "4") + Parameter(DType::kF32, "100000, 0") +
           Parameter(DType::kF32, "0, 200000") + Step("matmul", "1, 2") + Result(3) + Result(0));
  const auto x = Put();
  const auto a = runtime_.FromHost(Blob::Make(0), DType::kF32, Shape{{100000, 0}}, 0, "").value();
  const auto b = runtime_.FromHost(Blob::Make(0), DType::kF32, Shape{{0, 200000}}, 0, "").value();
  auto result = test::Run(runtime_, Request(code, 1, {{x.get(), a.get(), b.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  auto large = test::ReadView(runtime_, *result->outputs[0][0]);
  ASSERT_TRUE(large.ok()) << large.status();
  ASSERT_EQ(large->bytes.size(), 80'000'000'000u);
  EXPECT_EQ(large->bytes.front(), 0);
  EXPECT_EQ(large->bytes.back(), 0);
  EXPECT_EQ(test::ReadAll<float>(runtime_, *result->outputs[0][1]).value(),
            std::vector<float>(4, 0.0f));
}

TEST_F(SimRuntimeTest, SmallBuffersKeepTheirBytesLargeOnesDoNot) {
  const auto bytes_of = [&](size_t count) {
    const std::vector<char> ones(count, 1);
    auto buffer = runtime_.FromHost(test::BlobOf(ones), DType::kS8,
                                    Shape{{static_cast<int64_t>(count)}}, 0, "");
    auto copy = runtime_.CopyToDevice(**buffer, 1, "");
    const auto view = test::ReadView(runtime_, **copy).value();
    EXPECT_EQ(view.bytes.size(), count);
    return view.bytes.front();
  };
  EXPECT_EQ(bytes_of(SimRuntime::kKeptBytes), 1);
  EXPECT_EQ(bytes_of(SimRuntime::kKeptBytes + 1), 0);
}

TEST_F(SimRuntimeTest, WhatIsUnderWayAtTheEndDoesNotHoldItUp) {
  Awaited<absl::Status> done;
  {
    SimRuntime runtime(1);
    const auto nap = Load(Sleep(1h));
    const auto x =
        runtime.FromHost(test::BlobOf<float>({1, 2, 3, 4}), DType::kF32, Shape{{4}}, 0, "").value();
    ASSERT_TRUE(runtime.Launch(Request(nap, 1, {{x.get()}}), done.Callback()).ok());
  }
  EXPECT_TRUE(done.Get().ok());
}

}  // namespace
}  // namespace fairway
