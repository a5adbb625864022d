// SPDX-License-Identifier: Apache-2.0
// Values whose dimensions lie in memory in another order than the default.
#include "worker/executor/runtime/pjrt/relayout.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "pjrt_c_api.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using Floats = std::vector<float>;

TEST(CopyElementsTest, PutsDimensionsInAnyOrder) {
  const std::vector<int64_t> dims = {2, 3, 4};
  std::vector<int16_t> dense(24);
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<int16_t>(i);
  const pjrt::DimensionOrder order = {1, 0, 2};  // dimension 1 is the fastest
  std::vector<int16_t> moved(24), back(24);
  const auto* from = reinterpret_cast<const char*>(dense.data());
  pjrt::CopyElements(from, {}, reinterpret_cast<char*>(moved.data()), order, dims, 2);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(moved[j + 3 * i + 6 * k], dense[12 * i + 4 * j + k]);
    }
  }
  pjrt::CopyElements(reinterpret_cast<const char*>(moved.data()), order,
                     reinterpret_cast<char*>(back.data()), {}, dims, 2);
  EXPECT_EQ(back, dense);
}

// For every width, and beyond the squares that are copied at once.
TEST(CopyElementsTest, MovesEachElementToItsPlaceInEveryOrder) {
  const std::vector<int64_t> dims = {18, 3, 1, 35};
  const auto place = [&](const pjrt::DimensionOrder& order, const std::vector<int64_t>& index) {
    int64_t at = 0, stride = 1;
    for (const int64_t d : order) {
      at += stride * index[d];
      stride *= dims[d];
    }
    return at;
  };
  constexpr int64_t kCount = 18 * 3 * 35;
  const pjrt::DimensionOrder dense = {3, 2, 1, 0};
  for (const int64_t width : {1, 2, 3, 4, 8, 16}) {
    std::string from(kCount * width, '\0');
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 2654435761u >> 13);
    pjrt::DimensionOrder order = {0, 1, 2, 3};
    do {
      std::string to(from.size(), '\0'), back(from.size(), '\0');
      pjrt::CopyElements(from.data(), {}, to.data(), order, dims, width);
      for (int64_t i = 0; i < kCount; ++i) {
        const std::vector<int64_t> index = {i / 105, i / 35 % 3, 0, i % 35};
        ASSERT_EQ(to.substr(place(order, index) * width, width),
                  from.substr(place(dense, index) * width, width));
      }
      pjrt::CopyElements(to.data(), order, back.data(), {}, dims, width);
      ASSERT_EQ(back, from);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(CopyElementsTest, ScalarsAreCopiedAndEmptyValuesTouchNothing) {
  const char from = 'x';
  char to = '-';
  pjrt::CopyElements(&from, {}, &to, {}, {3, 0}, 1);
  EXPECT_EQ(to, '-');
  pjrt::CopyElements(&from, {}, &to, {}, {}, 1);
  EXPECT_EQ(to, 'x');
}

class RelayoutTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = pjrt::Client::Create(test::ConfigOfTests(2));
    ASSERT_TRUE(client.ok()) << client.status();
    compiler_ = MakePjrtCompiler(*client);
    runtime_ = MakePjrtRuntime(*client);
  }

  // x * 2, with the layouts of argument and result.
  std::shared_ptr<LoadedExecutable> Doubled(const std::string& in, const std::string& out,
                                            bool donate = false,
                                            const std::string& type = "2x3xf32") {
    const std::string program = fmt::format(
        R"(module {{
      func.func public @main(%x: tensor<{3}> {{mhlo.layout_mode = "{0}"{1}}})
          -> (tensor<{3}> {{mhlo.layout_mode = "{2}"}}) {{
        %0 = stablehlo.add %x, %x : tensor<{3}>
        return %0 : tensor<{3}> }} }})",
        in, donate ? ", tf.aliasing_output = 0 : i32" : "", out, type);
    auto compiled = compiler_->Compile(program, test::OneDevice(0));
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return nullptr;
    auto loaded = runtime_->Load(compiled->code, {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *loaded : nullptr;
  }

  std::unique_ptr<DeviceBuffer> Put(const Floats& values) {
    auto buffer = runtime_->FromHost(test::BlobOf(values), DType::kF32, Shape{{2, 3}}, 0, "");
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  Floats Read(DeviceBuffer& buffer) {
    auto values = test::ReadAll<float>(*runtime_, buffer);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : Floats();
  }

  std::unique_ptr<DeviceBuffer> Run(LoadedExecutable* executable, DeviceBuffer& input) {
    LaunchRequest request;
    request.executable = executable;
    request.devices = {0};
    request.inputs = {{&input}};
    request.launch_id = ++last_id_;
    test::Awaited<absl::Status> done;
    auto launched = runtime_->Launch(request, done.Callback());
    EXPECT_TRUE(launched.ok()) << launched.status();
    if (!launched.ok()) return nullptr;
    EXPECT_TRUE(done.Get().ok());
    return std::move(launched->outputs[0][0]);
  }

  std::unique_ptr<Compiler> compiler_;
  std::unique_ptr<PjrtRuntime> runtime_;
  uint64_t last_id_ = 0;
};

const Floats kValues = {1, 2, 3, 4, 5, 6};
const Floats kDoubled = {2, 4, 6, 8, 10, 12};

TEST_F(RelayoutTest, AResultInAnotherOrderIsReadMajorToMinor) {
  const auto executable = Doubled("default", "{0,1}");
  ASSERT_NE(executable, nullptr);
  const auto input = Put(kValues);
  const auto output = Run(executable.get(), *input);
  ASSERT_NE(output, nullptr);
  EXPECT_EQ(Read(*output), kDoubled);
}

// The thread that ends the launches of all sessions must not spend time on it.
TEST_F(RelayoutTest, ALargeResultIsPutInOrderOnAThreadOfItsOwn) {
  const auto executable = Doubled("default", "{0,1}", false, "512x300xf32");
  ASSERT_NE(executable, nullptr);
  Floats values(512 * 300);
  std::iota(values.begin(), values.end(), 0.f);
  auto late = runtime_->Expect(DType::kF32, Shape{{512, 300}}, 0, "");
  ASSERT_TRUE(late.ok()) << late.status();
  LaunchRequest request;
  request.executable = executable.get();
  request.devices = {0};
  request.inputs = {{late->buffer.get()}};
  request.launch_id = 1;
  std::thread::id ends_launches, gives_the_view;
  test::Awaited<absl::Status> done;
  auto launched =
      runtime_->Launch(request, [&, done = done.Callback()](absl::Status status) mutable {
        ends_launches = std::this_thread::get_id();
        std::move(done)(std::move(status));
      });
  ASSERT_TRUE(launched.ok()) << launched.status();
  test::Awaited<absl::StatusOr<HostView>> read;
  runtime_->Read(*launched->outputs[0][0],
                 [&, read = read.Callback()](absl::StatusOr<HostView> view) mutable {
                   gives_the_view = std::this_thread::get_id();
                   std::move(read)(std::move(view));
                 });
  late->fulfil(test::BlobOf(values));
  EXPECT_TRUE(done.Get().ok());
  runtime_.reset();
  EXPECT_TRUE(read.HasCome());  // the runtime is not destroyed before
  const auto view = read.Get();
  ASSERT_TRUE(view.ok()) << view.status();
  for (float& value : values) value *= 2;
  EXPECT_EQ(view->bytes, test::BlobOf(values)->view());
  EXPECT_NE(gives_the_view, ends_launches);
}

TEST_F(RelayoutTest, AnArgumentFromElsewhereIsPutInTheOrderOfTheProgram) {
  const auto executable = Doubled("{0,1}", "default");
  ASSERT_NE(executable, nullptr);
  const auto input = Put(kValues);
  const auto output = Run(executable.get(), *input);
  ASSERT_NE(output, nullptr);
  EXPECT_EQ(Read(*output), kDoubled);
  EXPECT_EQ(Read(*input), kValues);
}

TEST_F(RelayoutTest, AnArgumentThatIsStillComputedIsWaitedFor) {
  const auto executable = Doubled("{0,1}", "default");
  ASSERT_NE(executable, nullptr);
  auto late = runtime_->Expect(DType::kF32, Shape{{2, 3}}, 0, "");
  ASSERT_TRUE(late.ok()) << late.status();
  std::thread sender([&] { late->fulfil(test::BlobOf(kValues)); });
  const auto output = Run(executable.get(), *late->buffer);
  sender.join();
  ASSERT_NE(output, nullptr);
  EXPECT_EQ(Read(*output), kDoubled);
}

TEST_F(RelayoutTest, AnArgumentThatFailsWhileItIsWaitedForPassesItsErrorOn) {
  const auto executable = Doubled("{0,1}", "default");
  ASSERT_NE(executable, nullptr);
  auto late = runtime_->Expect(DType::kF32, Shape{{2, 3}}, 0, "");
  ASSERT_TRUE(late.ok()) << late.status();
  std::thread sender([&] { late->fulfil(absl::UnavailableError("lost")); });
  LaunchRequest request;
  request.executable = executable.get();
  request.devices = {0};
  request.inputs = {{late->buffer.get()}};
  request.launch_id = 1;
  const auto run = test::Run(*runtime_, request);
  sender.join();
  EXPECT_EQ(Describe(run.status()), "UNAVAILABLE: lost");
}

TEST_F(RelayoutTest, ADonatedArgumentFromElsewhereIsTakenOver) {
  const auto executable = Doubled("{0,1}", "{0,1}", true);
  ASSERT_NE(executable, nullptr);
  const auto input = Put(kValues);
  const auto output = Run(executable.get(), *input);
  ASSERT_NE(output, nullptr);
  EXPECT_EQ(Read(*output), kDoubled);
  LaunchRequest again;
  again.executable = executable.get();
  again.devices = {0};
  again.inputs = {{input.get()}};
  again.launch_id = 9;
  EXPECT_FALSE(runtime_->Launch(again, [](absl::Status) {}).ok());
}

TEST_F(RelayoutTest, CopiesKeepTheOrderOrHaveTheDefaultAndReadAlike) {
  const auto executable = Doubled("default", "{0,1}");
  const auto takes_it = Doubled("{0,1}", "{0,1}");
  ASSERT_NE(executable, nullptr);
  ASSERT_NE(takes_it, nullptr);
  const auto input = Put(kValues);
  const auto output = Run(executable.get(), *input);
  ASSERT_NE(output, nullptr);
  for (const int device : {0, 1}) {
    auto copy = runtime_->CopyToDevice(*output, device, "");
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ(Read(**copy), kDoubled) << device;
    if (device != 0) continue;
    const auto twice = Run(takes_it.get(), **copy);
    ASSERT_NE(twice, nullptr);
    EXPECT_EQ(Read(*twice), (Floats{4, 8, 12, 16, 20, 24}));
  }
}

// core/dtype.h has PJRT's numbers without its header.
TEST(PjrtTypesTest, AreThoseOfTheTable) {
  const std::pair<PJRT_Buffer_Type, DType> kTypes[] = {
      {PJRT_Buffer_Type_PRED, DType::kPred},
      {PJRT_Buffer_Type_S2, DType::kS2},
      {PJRT_Buffer_Type_S4, DType::kS4},
      {PJRT_Buffer_Type_S8, DType::kS8},
      {PJRT_Buffer_Type_S16, DType::kS16},
      {PJRT_Buffer_Type_S32, DType::kS32},
      {PJRT_Buffer_Type_S64, DType::kS64},
      {PJRT_Buffer_Type_U2, DType::kU2},
      {PJRT_Buffer_Type_U4, DType::kU4},
      {PJRT_Buffer_Type_U8, DType::kU8},
      {PJRT_Buffer_Type_U16, DType::kU16},
      {PJRT_Buffer_Type_U32, DType::kU32},
      {PJRT_Buffer_Type_U64, DType::kU64},
      {PJRT_Buffer_Type_F4E2M1FN, DType::kF4E2M1FN},
      {PJRT_Buffer_Type_F8E3M4, DType::kF8E3M4},
      {PJRT_Buffer_Type_F8E4M3, DType::kF8E4M3},
      {PJRT_Buffer_Type_F8E4M3FN, DType::kF8E4M3FN},
      {PJRT_Buffer_Type_F8E4M3B11FNUZ, DType::kF8E4M3B11FNUZ},
      {PJRT_Buffer_Type_F8E4M3FNUZ, DType::kF8E4M3FNUZ},
      {PJRT_Buffer_Type_F8E5M2, DType::kF8E5M2},
      {PJRT_Buffer_Type_F8E5M2FNUZ, DType::kF8E5M2FNUZ},
      {PJRT_Buffer_Type_F8E8M0FNU, DType::kF8E8M0FNU},
      {PJRT_Buffer_Type_F16, DType::kF16},
      {PJRT_Buffer_Type_BF16, DType::kBF16},
      {PJRT_Buffer_Type_F32, DType::kF32},
      {PJRT_Buffer_Type_F64, DType::kF64},
      {PJRT_Buffer_Type_C64, DType::kC64},
      {PJRT_Buffer_Type_C128, DType::kC128},
  };
  for (const auto& [number, dtype] : kTypes) {
    EXPECT_EQ(PjrtTypeOf(dtype), static_cast<int32_t>(number)) << Name(dtype);
    EXPECT_EQ(DTypeFromPjrtType(number), dtype) << Name(dtype);
  }
  EXPECT_EQ(DTypeFromPjrtType(PJRT_Buffer_Type_TOKEN), DType::kToken);
}

}  // namespace
}  // namespace fairway
