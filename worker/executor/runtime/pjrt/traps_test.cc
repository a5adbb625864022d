// SPDX-License-Identifier: Apache-2.0
// One test for each way in which a PJRT plugin goes wrong silently, or fatally, and that this
// process survives. Those that end the process are in fatal_traps_test.cc.
#include <fstream>
#include <iterator>
#include <optional>

#include <gtest/gtest.h>

#include "pjrt_c_api.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/executable.h"
#include "worker/executor/runtime/pjrt/launch_id.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using test::Awaited;
using test::BlobOf;
using test::ReadAll;
using test::Running;
using Floats = std::vector<float>;

class TrapsTest : public ::testing::Test {
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

  template <typename T>
  std::unique_ptr<DeviceBuffer> Put(const std::vector<T>& values, DType dtype,
                                    std::vector<int64_t> dims, int device = 0) {
    auto buffer = runtime_->FromHost(BlobOf(values), dtype, Shape{std::move(dims)}, device, "");
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }

  LaunchRequest Request(LoadedExecutable* executable,
                        std::vector<std::vector<DeviceBuffer*>> inputs,
                        std::vector<int> devices = {0}) {
    LaunchRequest request;
    request.executable = executable;
    request.devices = std::move(devices);
    request.inputs = std::move(inputs);
    request.launch_id = ++last_id_;
    return request;
  }

  std::shared_ptr<pjrt::Client> client_;
  std::unique_ptr<Compiler> compiler_;
  std::unique_ptr<PjrtRuntime> runtime_;
  uint64_t last_id_ = 0;
};

TEST_F(TrapsTest, LaunchIdsAreNeverZeroAndDifferBetweenNeighbours) {
  constexpr uint64_t kPeriod = (uint64_t{1} << 31) - 1;
  EXPECT_EQ(pjrt::LaunchIdForPjrt(1), 2);
  EXPECT_EQ(pjrt::LaunchIdForPjrt(kPeriod - 1), 2147483647);
  EXPECT_EQ(pjrt::LaunchIdForPjrt(kPeriod), 1);
  EXPECT_EQ(pjrt::LaunchIdForPjrt(~uint64_t{0}), 1 + static_cast<int>(~uint64_t{0} % kPeriod));
  for (uint64_t id : {uint64_t{1}, kPeriod - 2, kPeriod - 1, kPeriod, ~uint64_t{0} - 1}) {
    EXPECT_GT(pjrt::LaunchIdForPjrt(id), 0);
    EXPECT_NE(pjrt::LaunchIdForPjrt(id), pjrt::LaunchIdForPjrt(id + 1));
  }
}

TEST_F(TrapsTest, AGangWithoutALaunchIdIsRefused) {
  Open(2);
  auto psum = Load(test::Psum(2), test::Spmd(2));
  auto a = Put<float>({1}, DType::kF32, {1}, 0);
  auto b = Put<float>({2}, DType::kF32, {1}, 1);
  LaunchRequest request = Request(psum.get(), {{a.get()}, {b.get()}}, {0, 1});
  request.launch_id = 0;
  EXPECT_EQ(test::Run(*runtime_, request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TrapsTest, ASecondClientInTheProcessIsRefused) {
  Open(1);
  auto second = pjrt::Client::Create(test::ConfigOfTests(1));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
  runtime_.reset();
  compiler_.reset();
  client_.reset();
  EXPECT_TRUE(pjrt::Client::Create(test::ConfigOfTests(1)).ok());
}

TEST_F(TrapsTest, ArgumentStructsArePaddedAndThePluginTakesThem) {
  Open(1);
  pjrt::Padded<PJRT_Client_PlatformName_Args> padded;
  EXPECT_EQ(padded->struct_size, sizeof(PJRT_Client_PlatformName_Args) + 256);
  padded->client = client_->raw();
  EXPECT_TRUE(pjrt::Call(client_->api(), client_->api()->PJRT_Client_PlatformName, padded).ok());
  // The case for the padding: the plugin refuses a struct shorter than its own.
  PJRT_Client_PlatformName_Args shorter{};
  shorter.struct_size = offsetof(PJRT_Client_PlatformName_Args, platform_name);
  shorter.client = client_->raw();
  absl::Status refused =
      pjrt::Consume(client_->api(), client_->api()->PJRT_Client_PlatformName(&shorter));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
}

TEST_F(TrapsTest, TwiceTheDevicesAreCreatedAndHalfAreExposed) {
  Open(3);
  EXPECT_EQ(runtime_->info().num_devices, 3);
  pjrt::Padded<PJRT_Client_AddressableDevices_Args> args;
  args->client = client_->raw();
  ASSERT_TRUE(
      pjrt::Call(client_->api(), client_->api()->PJRT_Client_AddressableDevices, args).ok());
  EXPECT_EQ(args->num_addressable_devices, 6u);
  EXPECT_FALSE(runtime_->FromHost(Blob::Make(4), DType::kF32, Shape{}, 3, "").ok());
  v1::CompileOptions options = test::OneDevice(3);
  EXPECT_EQ(compiler_->Compile(test::Add("4xf32"), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TrapsTest, UnknownCreateOptionsAreRefusedByUs) {
  PjrtConfig config = test::ConfigOfTests(1);
  config.create_options["asynchronous"] = true;
  absl::Status status = pjrt::Client::Create(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  config.create_options.clear();
  config.create_options["cpu_device_count"] = int64_t{2};
  EXPECT_FALSE(pjrt::Client::Create(config).ok());
  config.kind = "cuda";
  config.create_options.clear();
  config.create_options["memory_fraction"] = int64_t{1};
  status = CheckPjrtConfig(config);
  EXPECT_NE(Text(status).find("is a float"), std::string::npos) << status;
}

TEST_F(TrapsTest, AMissingPluginOrALibraryThatIsNoneIsAnError) {
  PjrtConfig config = test::ConfigOfTests(1);
  config.plugin_path = "/nonexistent/plugin.so";
  EXPECT_EQ(pjrt::Client::Create(config).status().code(), absl::StatusCode::kNotFound);
  config.plugin_path = "libc.so.6";
  EXPECT_EQ(pjrt::Client::Create(config).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(TrapsTest, EmptyCompileOptionsNeverReachThePlugin) {
  Open(1);
  auto refused = compiler_->Compile(test::Add("4xf32"), v1::CompileOptions());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
}

TEST_F(TrapsTest, AWrongDtypeOfTheRightSizeIsRefused) {
  Open(1);
  auto add = Load(test::Add("4xf32"), test::OneDevice());
  auto floats = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto ints = Put<int32_t>({1, 2, 3, 4}, DType::kS32, {4});
  auto result = test::Run(*runtime_, Request(add.get(), {{floats.get(), ints.get()}}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(
      Text(result.status()).find("argument 1 on device 0 is s32[4], the program takes f32[4]"),
      std::string::npos)
      << result.status();
}

TEST_F(TrapsTest, AWrongShapeOfTheRightSizeIsRefused) {
  Open(1);
  auto add = Load(test::Add("4xf32"), test::OneDevice());
  auto good = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto square = Put<float>({1, 2, 3, 4}, DType::kF32, {2, 2});
  auto result = test::Run(*runtime_, Request(add.get(), {{good.get(), square.get()}}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
}

TEST_F(TrapsTest, BlocksAreUsedInPlaceWithoutACopy) {
  Open(1);
  std::shared_ptr<Blob> blob = Blob::Make(1 << 20);
  std::memset(blob->data(), 0, blob->size());
  const char* address = blob->data();
  std::weak_ptr<Blob> watch = blob;
  auto buffer = runtime_->FromHost(std::move(blob), DType::kF32, Shape{{1 << 18}}, 0, "");
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(runtime_->forced_copies(), 0);
  auto view = test::ReadView(*runtime_, **buffer);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->bytes.data(), address);
  EXPECT_FALSE(watch.expired());
  view = HostView{};
  buffer->reset();
  EXPECT_TRUE(test::Eventually([&] { return watch.expired(); })) << "the block outlives the buffer";
}

TEST_F(TrapsTest, SmallBlocksAreUsedInPlaceToo) {
  Open(1);
  auto scalar = Put<float>({1}, DType::kF32, {});
  auto empty = Put<float>({}, DType::kF32, {0});
  EXPECT_EQ(runtime_->forced_copies(), 0);
  EXPECT_EQ(ReadAll<float>(*runtime_, *empty).value(), Floats{});
  EXPECT_EQ(ReadAll<float>(*runtime_, *scalar).value(), Floats{1});
}

TEST_F(TrapsTest, ADonatingProgramWritesIntoTheBlock) {
  Open(1);
  auto twice = Load(test::DonatingDouble("4096xf32"), test::OneDevice());
  std::shared_ptr<Blob> blob = BlobOf(Floats(4096, 3));
  const char* address = blob->data();
  std::weak_ptr<Blob> watch = blob;
  auto buffer = runtime_->FromHost(std::move(blob), DType::kF32, Shape{{4096}}, 0, "").value();
  auto result = test::Run(*runtime_, Request(twice.get(), {{buffer.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  auto view = test::ReadView(*runtime_, *result->outputs[0][0]);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->bytes.data(), address) << "the output is not in the donated block";
  float first;
  std::memcpy(&first, view->bytes.data(), 4);
  EXPECT_EQ(first, 6);
  buffer.reset();
  EXPECT_FALSE(watch.expired()) << "the output lost its bytes";
  view = HostView{};
  result->outputs.clear();
  EXPECT_TRUE(test::Eventually([&] { return watch.expired(); })) << "the block outlives the output";
}

TEST_F(TrapsTest, UseAfterDonationIsRefusedWithOurText) {
  Open(1);
  auto twice = Load(test::DonatingDouble("4xf32"), test::OneDevice());
  auto buffer = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  ASSERT_TRUE(test::Run(*runtime_, Request(twice.get(), {{buffer.get()}})).ok());
  auto again = test::Run(*runtime_, Request(twice.get(), {{buffer.get()}}));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kInvalidArgument) << again.status();
  EXPECT_NE(Text(again.status()).find("donated"), std::string::npos) << again.status();
  EXPECT_EQ(ReadAll<float>(*runtime_, *buffer).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime_->CopyToDevice(*buffer, 0, "").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TrapsTest, ADonatedInputThatIsBeingReadKeepsItsBytes) {
  Open(1);
  auto twice = Load(test::DonatingDouble("4xf32"), test::OneDevice());
  auto buffer = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto view = test::ReadView(*runtime_, *buffer);
  ASSERT_TRUE(view.ok());
  auto result = test::Run(*runtime_, Request(twice.get(), {{buffer.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  float first;
  std::memcpy(&first, view->bytes.data(), 4);
  EXPECT_EQ(first, 1) << "a reader saw the donating program's output";
  EXPECT_EQ(ReadAll<float>(*runtime_, *result->outputs[0][0]).value(), (Floats{2, 4, 6, 8}));
  EXPECT_EQ(ReadAll<float>(*runtime_, *buffer).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TrapsTest, ABufferListedTwiceIsNotWrittenInto) {
  Open(1);
  auto add = Load(test::DonatingAdd("4xf32"), test::OneDevice());
  auto buffer = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto result = test::Run(*runtime_, Request(add.get(), {{buffer.get(), buffer.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ReadAll<float>(*runtime_, *result->outputs[0][0]).value(), (Floats{2, 4, 6, 8}));
}

TEST_F(TrapsTest, SubByteElementsAreTheLowBitsOfAByteEachOnTheHost) {
  Open(2);
  auto buffer = Put<int8_t>({1, -2, 7, -8, 3}, DType::kS4, {5});
  const std::vector<int8_t> wanted = {1, 14, 7, 8, 3};  // as in JAX and ml_dtypes
  EXPECT_EQ(ReadAll<int8_t>(*runtime_, *buffer).value(), wanted);
  for (int device : {1, 0}) {
    auto copy = runtime_->CopyToDevice(*buffer, device, "");
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ(ReadAll<int8_t>(*runtime_, **copy).value(), wanted);
  }
}

TEST_F(TrapsTest, TheCodeOfAnErrorSurvivesThePlugin) {
  Open(1);
  auto add = Load(test::Add("4xf32"), test::OneDevice());
  auto other = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto incoming = runtime_->Expect(DType::kF32, Shape{{4}}, 0, "");
  ASSERT_TRUE(incoming.ok()) << incoming.status();
  auto first = test::Start(*runtime_, Request(add.get(), {{incoming->buffer.get(), other.get()}}));
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = test::Start(*runtime_,
                            Request(add.get(), {{other.get(), first->result.outputs[0][0].get()}}));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(first->done.HasCome());
  incoming->fulfil(absl::UnavailableError("island lost"));
  EXPECT_EQ(first->done.Get(), absl::UnavailableError("island lost"));
  EXPECT_EQ(second->done.Get(), absl::UnavailableError("island lost"));
  EXPECT_EQ(test::WaitReady(*second->result.outputs[0][0]), absl::UnavailableError("island lost"));
  EXPECT_EQ(ReadAll<float>(*runtime_, *second->result.outputs[0][0]).status(),
            absl::UnavailableError("island lost"));
}

TEST_F(TrapsTest, ALateInputIsWaitedForByAProgramOfOneDevice) {
  Open(1);
  auto add = Load(test::Add("4xf32"), test::OneDevice());
  auto other = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto incoming = runtime_->Expect(DType::kF32, Shape{{4}}, 0, "").value();
  auto running = test::Start(*runtime_, Request(add.get(), {{incoming.buffer.get(), other.get()}}));
  ASSERT_TRUE(running.ok()) << running.status();
  EXPECT_FALSE(running->done.HasCome());
  incoming.fulfil(BlobOf(Floats{10, 20, 30, 40}));
  EXPECT_TRUE(running->done.Get().ok());
  EXPECT_EQ(ReadAll<float>(*runtime_, *running->result.outputs[0][0]).value(),
            (Floats{11, 22, 33, 44}));
}

TEST_F(TrapsTest, BytesThatAreGivenUpPoison) {
  Open(1);
  auto add = Load(test::DonatingAdd("4xf32"), test::OneDevice());
  auto other = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto incoming = runtime_->Expect(DType::kF32, Shape{{4}}, 0, "").value();
  auto running = test::Start(*runtime_, Request(add.get(), {{incoming.buffer.get(), other.get()}}));
  ASSERT_TRUE(running.ok()) << running.status();
  incoming.fulfil = nullptr;
  EXPECT_EQ(running->done.Get().code(), absl::StatusCode::kCancelled);
}

TEST_F(TrapsTest, DestroyingABufferDonatedToAWaitingProgramDoesNotBlock) {
  Open(1);
  auto add = Load(test::DonatingAdd("4xf32"), test::OneDevice());
  auto other = Put<float>({1, 2, 3, 4}, DType::kF32, {4});
  auto incoming = runtime_->Expect(DType::kF32, Shape{{4}}, 0, "").value();
  auto running = test::Start(*runtime_, Request(add.get(), {{incoming.buffer.get(), other.get()}}));
  ASSERT_TRUE(running.ok()) << running.status();
  incoming.buffer.reset();
  other.reset();
  incoming.fulfil(BlobOf(Floats{1, 1, 1, 1}));
  EXPECT_TRUE(running->done.Get().ok());
  EXPECT_EQ(ReadAll<float>(*runtime_, *running->result.outputs[0][0]).value(),
            (Floats{2, 3, 4, 5}));
}

TEST_F(TrapsTest, ABufferWithoutBytesIsRefused) {
  Open(1);
  EXPECT_EQ(runtime_->FromHost(Blob::Make(0), DType::kToken, Shape{}, 0, "").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TrapsTest, AGangWithAnInputNotReadyIsRefused) {
  Open(2);
  auto psum = Load(test::Psum(2), test::Spmd(2));
  auto a = Put<float>({1}, DType::kF32, {1}, 0);
  auto late = runtime_->Expect(DType::kF32, Shape{{1}}, 1, "").value();
  LaunchRequest request = Request(psum.get(), {{a.get()}, {late.buffer.get()}}, {0, 1});
  auto refused = test::Run(*runtime_, request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
  late.fulfil(BlobOf(Floats{2}));
  ASSERT_TRUE(test::WaitReady(*late.buffer).ok());
  auto result = test::Run(*runtime_, request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ReadAll<float>(*runtime_, *result->outputs[1][0]).value(), Floats{3});
}

TEST_F(TrapsTest, AGangWithAFailedInputIsRefused) {
  Open(2);
  auto psum = Load(test::Psum(2), test::Spmd(2));
  auto a = Put<float>({1}, DType::kF32, {1}, 0);
  auto late = runtime_->Expect(DType::kF32, Shape{{1}}, 1, "").value();
  late.fulfil(absl::DataLossError("executor 3 died"));
  auto refused =
      test::Run(*runtime_, Request(psum.get(), {{a.get()}, {late.buffer.get()}}, {0, 1}));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Text(refused.status()).find("executor 3 died"), std::string::npos) << refused.status();
}

TEST_F(TrapsTest, CodeWithAFlippedByteOrOfAnotherPluginIsRefused) {
  Open(1);
  auto compiled = compiler_->Compile(test::Add("4xf32"), test::OneDevice());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(runtime_->Load("garbage", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(runtime_->Load(compiled->code.substr(0, compiled->code.size() / 2), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string other = compiled->code;
  const size_t at = other.find(client_->identity());
  ASSERT_NE(at, std::string::npos);
  other[at] = 'X';
  auto refused = runtime_->Load(other, {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Text(refused.status()).find("another plugin"), std::string::npos) << refused.status();
  for (const std::string& name :
       {client_->identity(), other.substr(at, client_->identity().size())})
    EXPECT_NE(Text(refused.status()).find(name), std::string::npos) << refused.status();
}

// Otherwise a host could get code for another processor, which ends at the first instruction that
// it lacks.
TEST_F(TrapsTest, TheVersionTellsOfThePluginAndTheProcessor) {
  constexpr std::string_view kOne = "processor\t: 0\ncpu MHz\t\t: 3.1\nflags\t\t: fpu avx512f\n";
  constexpr std::string_view kSame = "processor\t: 0\ncpu MHz\t\t: 2\nflags\t\t: fpu avx512f\n";
  constexpr std::string_view kOther = "processor\t: 0\ncpu MHz\t\t: 3.1\nflags\t\t: fpu\n";
  constexpr std::string_view kArm = "processor\t: 0\nFeatures\t: fp asimd\n";
  EXPECT_EQ(pjrt::CpuFeatures(kOne), pjrt::CpuFeatures(kSame));
  EXPECT_NE(pjrt::CpuFeatures(kOne), pjrt::CpuFeatures(kOther));
  EXPECT_NE(pjrt::CpuFeatures(kArm), pjrt::CpuFeatures(""));

  Open(1);
  std::ifstream file("/proc/cpuinfo");
  const std::string cpuinfo{std::istreambuf_iterator<char>(file), {}};
  const pjrt::Plugin& plugin = client_->plugin();
  const std::string tail =
      fmt::format("; PJRT {}.{}; StableHLO {}; CPU {}", plugin.api_major, plugin.api_minor,
                  plugin.stablehlo_current, pjrt::CpuFeatures(cpuinfo));
  EXPECT_TRUE(client_->identity().ends_with(tail)) << client_->identity();
  // The part by which the controller shares code.
  EXPECT_TRUE(runtime_->info().platform_version.ends_with(tail))
      << runtime_->info().platform_version;
}

TEST_F(TrapsTest, AThousandQueuedPsums) {
  Open(8);
  auto psum = Load(test::Psum(8), test::Spmd(8));
  std::vector<std::unique_ptr<DeviceBuffer>> shards;
  std::vector<std::vector<DeviceBuffer*>> inputs;
  std::vector<int> devices;
  for (int d = 0; d < 8; ++d) {
    shards.push_back(Put<float>({static_cast<float>(d)}, DType::kF32, {1}, d));
    inputs.push_back({shards.back().get()});
    devices.push_back(d);
  }
  std::vector<Running> running;
  for (int i = 0; i < 1000; ++i) {
    auto started = test::Start(*runtime_, Request(psum.get(), inputs, devices));
    ASSERT_TRUE(started.ok()) << started.status();
    running.push_back(*std::move(started));
  }
  for (Running& gang : running) {
    ASSERT_TRUE(gang.done.Get().ok());
    for (auto& outputs : gang.result.outputs) {
      ASSERT_EQ(ReadAll<float>(*runtime_, *outputs[0]).value(), Floats{28});
    }
  }
}

// XLA runs what is called for one device behind what was called for it before. A gang that was
// called so would hold up this thread.
TEST_F(TrapsTest, AGangThatMeetsBrieflyDoesNotWaitForAProgramOfOneDevice) {
  Open(2);
  auto add = Load(test::Add("2xf32"), test::Portable());
  auto psum = Load(test::Psum(2), test::Spmd(2));
  EXPECT_TRUE(static_cast<pjrt::Executable&>(*psum).meets_briefly());
  EXPECT_FALSE(static_cast<pjrt::Executable&>(*add).meets_briefly());
  auto a = Put<float>({1}, DType::kF32, {1}, 0), b = Put<float>({2}, DType::kF32, {1}, 1);
  auto late = runtime_->Expect(DType::kF32, Shape{{2}}, 1, "").value();
  std::optional<Running> waiting;
  for (const bool alone : {true, false, true}) {
    if (!alone) {
      auto started =
          test::Start(*runtime_, Request(add.get(), {{late.buffer.get(), late.buffer.get()}}, {1}));
      ASSERT_TRUE(started.ok()) << started.status();
      waiting = *std::move(started);
    } else if (waiting.has_value()) {
      EXPECT_FALSE(waiting->done.HasCome());
      late.fulfil(BlobOf(Floats{3, 4}));
      EXPECT_TRUE(waiting->done.Get().ok());
    }
    auto result = test::Run(*runtime_, Request(psum.get(), {{a.get()}, {b.get()}}, {0, 1}));
    ASSERT_TRUE(result.ok()) << result.status();
    for (auto& outputs : result->outputs)
      EXPECT_EQ(ReadAll<float>(*runtime_, *outputs[0]).value(), Floats{3});
  }
}

TEST_F(TrapsTest, OnlySmallCodeIsBrief) {
  Open(2);
  const auto brief = [&](const std::string& program, const v1::CompileOptions& options) {
    auto loaded = Load(program, options);
    return loaded != nullptr && loaded->brief();
  };
  EXPECT_TRUE(brief(test::Add("4xf32"), test::Portable()));
  EXPECT_TRUE(brief(test::DonatingDouble("f32"), test::OneDevice()));
  EXPECT_TRUE(brief(test::ShardedDouble(2), test::Spmd(2)));
  EXPECT_TRUE(brief(R"(module @transpose {
  func.func public @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
    %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    return %0 : tensor<3x2xf32>
  }
})",
                    test::Portable()))
      << "the plugin tells no flops of it";
  EXPECT_FALSE(brief(test::Add("4000xf32"), test::Portable())) << "XLA gives it to its pool";
  EXPECT_FALSE(brief(test::Psum(2), test::Spmd(2))) << "it waits for the other device";
  EXPECT_FALSE(brief(R"(module @loop {
  func.func public @main(%n: tensor<i32>) -> tensor<i32> {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %n, %s = %zero) : tensor<i32>, tensor<i32>
      cond {
        %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %next = stablehlo.subtract %i, %one : tensor<i32>
        %sum = stablehlo.add %s, %i : tensor<i32>
        stablehlo.return %next, %sum : tensor<i32>, tensor<i32>
      }
    return %r#1 : tensor<i32>
  }
})",
                     test::Portable()))
      << "its argument says how long it takes";
}

TEST_F(TrapsTest, AGangWithoutCollectivesRunsOnEachOfItsDevices) {
  Open(3);
  auto twice = Load(test::ShardedDouble(2), test::Spmd(2));
  EXPECT_TRUE(static_cast<pjrt::Executable&>(*twice).separable());
  auto moved =
      runtime_->Load(compiler_->Compile(test::ShardedDouble(2), test::Spmd(2))->code, {2, 1});
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_FALSE(static_cast<pjrt::Executable&>(*Load(test::Psum(2), test::Spmd(2))).separable());
  const std::vector<std::pair<LoadedExecutable*, std::vector<int>>> runs = {{twice.get(), {0, 1}},
                                                                            {moved->get(), {2, 1}}};
  for (const auto& [executable, devices] : runs) {
    auto a = Put<float>({1, 2}, DType::kF32, {2}, devices[0]);
    auto b = Put<float>({3, 4}, DType::kF32, {2}, devices[1]);
    const LaunchRequest request = Request(executable, {{a.get()}, {b.get()}}, devices);
    auto result = test::Run(*runtime_, request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(ReadAll<float>(*runtime_, *result->outputs[0][0]).value(), (Floats{2, 4}));
    EXPECT_EQ(ReadAll<float>(*runtime_, *result->outputs[1][0]).value(), (Floats{6, 8}));
    EXPECT_FALSE(test::Run(*runtime_, request).ok()) << "the inputs were taken over";
  }
}

TEST_F(TrapsTest, AGangWithoutCollectivesIsGivenInputsThatAreStillToCome) {
  Open(2);
  auto twice = Load(test::ShardedDouble(2), test::Spmd(2));
  for (const bool fails : {false, true}) {
    auto a = Put<float>({1, 2}, DType::kF32, {2}, 0);
    auto late = runtime_->Expect(DType::kF32, Shape{{2}}, 1, "").value();
    auto first =
        test::Start(*runtime_, Request(twice.get(), {{a.get()}, {late.buffer.get()}}, {0, 1}));
    ASSERT_TRUE(first.ok()) << first.status();
    auto second = test::Start(*runtime_, Request(twice.get(),
                                                 {{first->result.outputs[0][0].get()},
                                                  {first->result.outputs[1][0].get()}},
                                                 {0, 1}));
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_FALSE(second->done.HasCome());
    if (fails) {
      late.fulfil(absl::UnavailableError("island lost"));
      EXPECT_EQ(first->done.Get(), absl::UnavailableError("island lost"));
      EXPECT_EQ(second->done.Get(), absl::UnavailableError("island lost"));
      EXPECT_EQ(test::WaitReady(*second->result.outputs[1][0]),
                absl::UnavailableError("island lost"));
      auto third = test::Start(*runtime_, Request(twice.get(),
                                                  {{second->result.outputs[0][0].get()},
                                                   {second->result.outputs[1][0].get()}},
                                                  {0, 1}));
      ASSERT_TRUE(third.ok()) << third.status();
      EXPECT_EQ(third->done.Get(), absl::UnavailableError("island lost"));
    } else {
      late.fulfil(BlobOf(Floats{3, 4}));
      EXPECT_TRUE(second->done.Get().ok());
      EXPECT_EQ(ReadAll<float>(*runtime_, *second->result.outputs[0][0]).value(), (Floats{4, 8}));
      EXPECT_EQ(ReadAll<float>(*runtime_, *second->result.outputs[1][0]).value(), (Floats{12, 16}));
    }
  }
}

TEST_F(TrapsTest, InheritedXlaFlagsThatMayBeUnknownAreDropped) {
  PjrtConfig config = test::ConfigOfTests(1);
  config.kind = "cuda";
  EXPECT_EQ(
      XlaFlags(config,
               "--xla_dump_to=/x --no_such_flag=1 --xla_cpu_collective_call_terminate_timeout_"
               "seconds=3"),
      "--xla_cpu_collective_call_warn_stuck_timeout_seconds=60 "
      "--xla_cpu_collective_call_terminate_timeout_seconds=86400 --xla_dump_to=/x");
}

}  // namespace
}  // namespace fairway
