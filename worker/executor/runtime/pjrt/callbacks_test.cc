// SPDX-License-Identifier: Apache-2.0
// Programs that call functions of their client, with the real plugin: on one device, in a gang
// between collectives, in loops, with calls that fail or take long.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <gtest/gtest.h>

#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"
#include "worker/ffi/host_calls.h"

namespace fairway {
namespace {

using test::BlobOf;
using test::ReadAll;
using test::Running;
using Floats = std::vector<float>;

constexpr char kCall[] =
    R"({api_version = 4 : i32, has_side_effect = true, backend_config = {function = 7 : i64})";

// x -> f(x) + 1
std::string OneCall() {
  return fmt::format(R"(module @one_call {{
  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
    %0 = stablehlo.custom_call @fairway_callback(%x) {}}} : (tensor<2xf32>) -> tensor<2xf32>
    %one = stablehlo.constant dense<1.0> : tensor<2xf32>
    %1 = stablehlo.add %0, %one : tensor<2xf32>
    return %1 : tensor<2xf32>
  }}
}})",
                     kCall);
}

// Calls f until it returns 1.
std::string UntilOne() {
  return fmt::format(R"(module @until_one {{
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %r = stablehlo.while(%y = %x) : tensor<f32>
    cond {{
      %c = stablehlo.compare NE, %y, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %z = stablehlo.custom_call @fairway_callback(%y) {}}} : (tensor<f32>) -> tensor<f32>
      stablehlo.return %z : tensor<f32>
    }}
    return %r : tensor<f32>
  }}
}})",
                     kCall);
}

// One float per device -> f(their sum), on device 0; each device adds its own; the sum of that.
std::string CallBetweenSums(int devices) {
  return fmt::format(R"(module @call_between_sums attributes {{mhlo.num_partitions = {0} : i32}} {{
  func.func public @main(%x: tensor<{0}xf32> {{mhlo.sharding = "{{devices=[{0}]<=[{0}]}}"}})
      -> (tensor<f32> {{mhlo.sharding = "{{replicated}}"}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{0}xf32>, tensor<f32>) -> tensor<f32>
    %1 = stablehlo.custom_call @fairway_callback(%0) {1},
        mhlo.sharding = "{{maximal device=0}}"}} : (tensor<f32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<{0}xf32>
    %3 = stablehlo.add %x, %2 : tensor<{0}xf32>
    %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{0}xf32>, tensor<f32>) -> tensor<f32>
    return %4 : tensor<f32>
  }}
}})",
                     devices, kCall);
}

// A client whose function is `f`.
class Client final : public ffi::HostCalls {
 public:
  explicit Client(std::function<absl::Status(const ffi::Call&)> f) : f_(std::move(f)) {}
  absl::Status Run(uint64_t launch_id, const ffi::Call& call) override {
    ++calls;
    launch = launch_id;
    device = call.device;
    return f_(call);
  }
  std::atomic<int> calls = 0;
  std::atomic<uint64_t> launch = 0;
  std::atomic<int64_t> device = -1;

 private:
  const std::function<absl::Status(const ffi::Call&)> f_;
};

// f doubles.
absl::Status Double(const ffi::Call& call) {
  EXPECT_EQ(ffi::AttributeOr(call, "function", -1), 7);
  int64_t count = 1;
  for (const int64_t extent : call.args[0].dims) count *= extent;
  for (int64_t i = 0; i < count; ++i) call.rets[0].as<float>()[i] = 2 * call.args[0].as<float>()[i];
  return absl::OkStatus();
}

// Holds calls until it is opened.
class Gate {
 public:
  void Wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    opened_.wait(lock, [&] { return open_; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  int waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
  int waiting_ = 0;
};

class CallbacksTest : public ::testing::Test {
 protected:
  void Open(int num_devices) {
    auto client = pjrt::Client::Create(test::ConfigOfTests(num_devices));
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *client;
    compiler_ = MakePjrtCompiler(client_);
    runtime_ = MakePjrtRuntime(client_);
  }

  std::shared_ptr<LoadedExecutable> Load(const std::string& program,
                                         const v1::CompileOptions& options) {
    auto compiled = compiler_->Compile(program, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return nullptr;
    auto loaded = runtime_->Load(compiled->code, {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *loaded : nullptr;
  }

  std::unique_ptr<DeviceBuffer> Put(const Floats& values, std::vector<int64_t> dims, int device) {
    auto buffer =
        runtime_->FromHost(BlobOf(values), DType::kF32, Shape{std::move(dims)}, device, "");
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }

  LaunchRequest Request(LoadedExecutable* executable,
                        std::vector<std::vector<DeviceBuffer*>> inputs, std::vector<int> devices,
                        std::shared_ptr<ffi::HostCalls> calls) {
    LaunchRequest request;
    request.executable = executable;
    request.devices = std::move(devices);
    request.inputs = std::move(inputs);
    request.launch_id = ++last_id_;
    request.host_calls = std::move(calls);
    return request;
  }

  // A gang on devices 0 to 3, each with the float 1 + its number.
  LaunchRequest Gang(LoadedExecutable* executable, std::shared_ptr<ffi::HostCalls> calls) {
    std::vector<std::vector<DeviceBuffer*>> inputs;
    for (int d = 0; d < 4; ++d) {
      held_.push_back(Put({1.0F + static_cast<float>(d)}, {1}, d));
      inputs.push_back({held_.back().get()});
    }
    return Request(executable, std::move(inputs), {0, 1, 2, 3}, std::move(calls));
  }

  std::shared_ptr<pjrt::Client> client_;
  std::unique_ptr<Compiler> compiler_;
  std::unique_ptr<PjrtRuntime> runtime_;
  std::vector<std::unique_ptr<DeviceBuffer>> held_;
  uint64_t last_id_ = 40;
};

TEST_F(CallbacksTest, AProgramOfOneDeviceGetsWhatTheFunctionMade) {
  Open(2);
  auto program = Load(OneCall(), test::OneDevice(1));
  ASSERT_NE(program, nullptr);
  EXPECT_FALSE(program->brief()) << "the event loop would wait for a client";
  auto client = std::make_shared<Client>(Double);
  auto x = Put({3, 4}, {2}, 1);
  auto result = test::Run(*runtime_, Request(program.get(), {{x.get()}}, {1}, client));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*ReadAll<float>(*runtime_, *result->outputs[0][0]), (Floats{7, 9}));
  EXPECT_EQ(client->calls, 1);
  EXPECT_EQ(client->launch, 41u);
  EXPECT_EQ(client->device, 1);
}

// The plugin's packing of types smaller than a byte is the one of ReadElements and WriteElements.
TEST_F(CallbacksTest, ElementsOfLessThanAByteArePackedFromTheLowestBitsOn) {
  Open(1);
  struct Case {
    DType dtype;
    std::string name;
    std::vector<int8_t> elements;
    std::vector<uint8_t> packed;
  };
  for (const Case& one : {Case{DType::kS4, "i4", {7, 9, 8}, {0x97, 0x08}},
                          Case{DType::kU4, "ui4", {7, 9, 8}, {0x97, 0x08}},
                          Case{DType::kS2, "i2", {0, 1, 3, 2, 2}, {0xb4, 0x02}},
                          Case{DType::kU2, "ui2", {0, 1, 3, 2, 2}, {0xb4, 0x02}},
                          Case{DType::kF4E2M1FN, "f4E2M1FN", {1, 15, 4}, {0xf1, 0x04}}}) {
    const std::string type = fmt::format("tensor<{}x{}>", one.elements.size(), one.name);
    auto program = Load(fmt::format(R"(module @packed {{
  func.func public @main(%x: {0}) -> {0} {{
    %0 = stablehlo.custom_call @fairway_callback(%x) {1}}} : ({0}) -> {0}
    return %0 : {0}
  }}
}})",
                                    type, kCall),
                        test::OneDevice());
    ASSERT_NE(program, nullptr) << one.name;
    std::vector<uint8_t> seen;
    std::vector<int8_t> elements(one.elements.size());
    auto client = std::make_shared<Client>([&](const ffi::Call& call) {
      const uint8_t* bytes = call.args[0].as<uint8_t>();
      seen.assign(bytes, bytes + ffi::MemoryBytes(call.args[0]));
      ffi::ReadElements(call.args[0], reinterpret_cast<char*>(elements.data()));
      std::vector<int8_t> back(elements.rbegin(), elements.rend());
      ffi::WriteElements(reinterpret_cast<const char*>(back.data()), call.rets[0]);
      return absl::OkStatus();
    });
    const Shape shape{{static_cast<int64_t>(one.elements.size())}};
    auto x = runtime_->FromHost(BlobOf(one.elements), one.dtype, shape, 0, "");
    ASSERT_TRUE(x.ok()) << x.status();
    auto result = test::Run(*runtime_, Request(program.get(), {{x->get()}}, {0}, client));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(seen, one.packed) << one.name;
    EXPECT_EQ(elements, one.elements) << one.name;
    auto got = ReadAll<int8_t>(*runtime_, *result->outputs[0][0]);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, std::vector<int8_t>(one.elements.rbegin(), one.elements.rend())) << one.name;
  }
}

TEST_F(CallbacksTest, AFailedCallFailsTheLaunchWithItsOwnStatus) {
  Open(1);
  auto program = Load(OneCall(), test::OneDevice());
  auto client = std::make_shared<Client>(
      [](const ffi::Call&) { return absl::NotFoundError("KeyError: 'x'\n  at line 3"); });
  auto x = Put({3, 4}, {2}, 0);
  auto running = test::Start(*runtime_, Request(program.get(), {{x.get()}}, {0}, client));
  ASSERT_TRUE(running.ok()) << running.status();
  EXPECT_EQ(running->done.Get(), absl::NotFoundError("KeyError: 'x'\n  at line 3"));
  EXPECT_EQ(test::WaitReady(*running->result.outputs[0][0]).code(), absl::StatusCode::kNotFound);
  // The failure does not affect the next launch.
  auto well = std::make_shared<Client>(Double);
  EXPECT_TRUE(test::Run(*runtime_, Request(program.get(), {{x.get()}}, {0}, well)).ok());
}

TEST_F(CallbacksTest, NothingIsCalledWithWhatComesOfAFailedCall) {
  Open(1);
  auto program = Load(OneCall(), test::OneDevice());
  auto add = Load(test::Add("2xf32"), test::OneDevice());
  auto gate = std::make_shared<Gate>();
  auto fails = std::make_shared<Client>([gate](const ffi::Call&) {
    gate->Wait();
    return absl::AbortedError("ValueError: no");
  });
  auto well = std::make_shared<Client>(Double);
  auto x = Put({3, 4}, {2}, 0);
  // Each is launched ahead of its input, by the one launch thread of the device.
  absl::StatusOr<Running> first, second, third;
  std::thread device([&] {
    first = test::Start(*runtime_, Request(program.get(), {{x.get()}}, {0}, fails));
    if (!first.ok()) return;
    DeviceBuffer* made = first->result.outputs[0][0].get();
    second = test::Start(*runtime_, Request(add.get(), {{made, made}}, {0}, nullptr));
    if (!second.ok()) return;
    made = second->result.outputs[0][0].get();
    third = test::Start(*runtime_, Request(program.get(), {{made}}, {0}, well));
  });
  EXPECT_TRUE(test::Eventually([&] { return gate->waiting() > 0; }));
  gate->Open();
  device.join();
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(second->done.Get(), absl::AbortedError("ValueError: no"));
  EXPECT_EQ(third->done.Get(), absl::AbortedError("ValueError: no"));
  EXPECT_EQ(well->calls, 0);
}

TEST_F(CallbacksTest, ALoopThatWaitsForAFunctionEndsWhenItFails) {
  Open(1);
  auto program = Load(UntilOne(), test::OneDevice());
  auto client = std::make_shared<Client>([](const ffi::Call& call) {
    const float x = *call.args[0].as<float>();
    if (x < 6) return absl::UnavailableError("gone");
    *call.rets[0].as<float>() = x - 1;
    return absl::OkStatus();
  });
  auto x = Put({9}, {}, 0);
  auto result = test::Run(*runtime_, Request(program.get(), {{x.get()}}, {0}, client));
  EXPECT_EQ(result.status(), absl::UnavailableError("gone"));
  EXPECT_EQ(client->calls, 5) << "after a failure nothing is called";
}

TEST_F(CallbacksTest, AGangOfFourWaitsForTheFunctionBetweenTwoSums) {
  Open(4);
  auto program = Load(CallBetweenSums(4), test::Spmd(4));
  ASSERT_NE(program, nullptr);
  EXPECT_FALSE(program->separable());
  auto gate = std::make_shared<Gate>();
  auto client = std::make_shared<Client>([gate](const ffi::Call& call) {
    gate->Wait();
    return Double(call);
  });
  std::optional<absl::StatusOr<Running>> running;
  std::thread sequencer([&] { running = test::Start(*runtime_, Gang(program.get(), client)); });
  EXPECT_TRUE(test::Eventually([&] { return gate->waiting() > 0; }));
  // Another device is not held up in the meantime.
  auto one = Load(OneCall(), test::OneDevice(3));
  auto x = Put({3, 4}, {2}, 3);
  auto free =
      test::Run(*runtime_, Request(one.get(), {{x.get()}}, {3}, std::make_shared<Client>(Double)));
  EXPECT_TRUE(free.ok()) << free.status();
  gate->Open();
  sequencer.join();
  ASSERT_TRUE(running->ok()) << running->status();
  ASSERT_TRUE((*running)->done.Get().ok());
  for (int d = 0; d < 4; ++d)
    EXPECT_EQ(*ReadAll<float>(*runtime_, *(*running)->result.outputs[d][0]), Floats{90}) << d;
  EXPECT_EQ(client->calls, 1);
  EXPECT_EQ(client->device, 0);
}

TEST_F(CallbacksTest, AFailedCallInAGangFailsItAndTheNextGangRuns) {
  Open(4);
  auto program = Load(CallBetweenSums(4), test::Spmd(4));
  auto fails = std::make_shared<Client>(
      [](const ffi::Call&) { return absl::AbortedError("ValueError: no"); });
  auto result = test::Run(*runtime_, Gang(program.get(), fails));
  EXPECT_EQ(result.status(), absl::AbortedError("ValueError: no"));
  auto well = test::Run(*runtime_, Gang(program.get(), std::make_shared<Client>(Double)));
  ASSERT_TRUE(well.ok()) << well.status();
  EXPECT_EQ(*ReadAll<float>(*runtime_, *well->outputs[2][0]), Floats{90});
}

TEST_F(CallbacksTest, WithoutAClientTheLaunchFailsAndSaysSo) {
  Open(1);
  auto program = Load(OneCall(), test::OneDevice());
  auto x = Put({3, 4}, {2}, 0);
  auto result = test::Run(*runtime_, Request(program.get(), {{x.get()}}, {0}, nullptr));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented) << result.status();
}

TEST_F(CallbacksTest, ACallWithoutANumberDoesNotCompile) {
  Open(1);
  std::string text = OneCall();
  text.replace(text.find("function"), 8, "funktion");
  auto compiled = compiler_->Compile(text, test::OneDevice());
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Text(compiled.status()).find("\"function\" is missing"), std::string::npos)
      << compiled.status();
}

}  // namespace
}  // namespace fairway
