// SPDX-License-Identifier: Apache-2.0
// Bytes put into buffers, read from them, and copied between devices.
#include "tests/conformance/runtime_conformance.h"

namespace fairway::conformance {
namespace {

using test::Awaited;

TEST_P(RuntimeConformance, BytesComeBackAsTheyWere) {
  struct Case {
    DType dtype;
    Shape shape;
  };
  const std::vector<Case> cases = {
      {DType::kF32, Shape{}},          {DType::kF32, Shape{{3, 5}}},   {DType::kF64, Shape{{7}}},
      {DType::kBF16, Shape{{2, 3}}},   {DType::kF16, Shape{{9}}},      {DType::kPred, Shape{{5}}},
      {DType::kS8, Shape{{64}}},       {DType::kU64, Shape{{2}}},      {DType::kC64, Shape{{2, 2}}},
      {DType::kC128, Shape{{1}}},      {DType::kF8E4M3FN, Shape{{4}}}, {DType::kF32, Shape{{0}}},
      {DType::kF32, Shape{{4, 0, 3}}},
  };
  for (const Case& c : cases) {
    for (int device : {0, kDevices - 1}) BytesComeBack(c.dtype, c.shape, device);
  }
}

TEST_P(RuntimeConformance, LargeBytesComeBackAsTheyWere) {
  BytesComeBack(DType::kS32, Shape{{128, 257}}, 0);
  BytesComeBack(DType::kU8, Shape{{3 << 20}}, kDevices - 1);
}

TEST_P(RuntimeConformance, FromHostChecksItsArguments) {
  auto code_of = [&](size_t bytes, DType dtype, const Shape& shape, int device,
                     std::string_view kind) {
    return runtime().FromHost(Blob::Make(bytes), dtype, shape, device, kind).status().code();
  };
  EXPECT_EQ(code_of(15, DType::kF32, Shape{{4}}, 0, ""), kInvalid);
  EXPECT_EQ(code_of(17, DType::kF32, Shape{{4}}, 0, ""), kInvalid);
  EXPECT_EQ(code_of(16, DType::kF32, Shape{{-4}}, 0, ""), kInvalid);
  EXPECT_EQ(code_of(0, DType::kToken, Shape{}, 0, ""), kInvalid);
  EXPECT_EQ(code_of(16, DType::kF32, Shape{{4}}, kDevices, ""), kInvalid);
  EXPECT_EQ(code_of(16, DType::kF32, Shape{{4}}, -1, ""), kInvalid);
  EXPECT_EQ(code_of(16, DType::kF32, Shape{{4}}, 0, "no such memory"), kInvalid);
  EXPECT_EQ(runtime().FromHost(nullptr, DType::kF32, Shape{{4}}, 0, "").status().code(), kInvalid);
}

TEST_P(RuntimeConformance, EveryMemoryKindHoldsBytes) {
  for (const std::string& kind : runtime().info().memory_kinds) {
    auto buffer = runtime().FromHost(test::BlobOf(Floats{1, 2}), DType::kF32, Shape{{2}}, 1, kind);
    ASSERT_TRUE(buffer.ok()) << kind << ": " << buffer.status();
    EXPECT_EQ(Read(**buffer).value(), (Floats{1, 2})) << kind;
    auto copy = runtime().CopyToDevice(**buffer, 1, "");
    ASSERT_TRUE(copy.ok()) << kind << ": " << copy.status();
    EXPECT_EQ(Read(**copy).value(), (Floats{1, 2})) << kind;
  }
}

TEST_P(RuntimeConformance, AViewOutlivesItsBuffer) {
  auto buffer = Put({5, 6, 7});
  auto view = test::ReadView(runtime(), *buffer);
  ASSERT_TRUE(view.ok()) << view.status();
  buffer.reset();
  float last;
  std::memcpy(&last, view->bytes.data() + 8, 4);
  EXPECT_EQ(last, 7);
}

TEST_P(RuntimeConformance, ACopyIsACopy) {
  auto add = Load(Program::kDonatingAdd, test::OneDevice());
  for (int device : {0, 1}) {
    auto x = Put({1, 2, 3, 4}), one = Put({1, 1, 1, 1});
    auto copy = runtime().CopyToDevice(*x, device, "");
    ASSERT_TRUE(copy.ok()) << copy.status();
    ASSERT_TRUE(test::WaitReady(**copy).ok());
    // The launch writes into x's own bytes, but must not write into the copy's.
    auto result = test::Run(runtime(), Request(add.get(), {{x.get(), one.get()}}));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Read(**copy).value(), (Floats{1, 2, 3, 4}));
  }
}

TEST_P(RuntimeConformance, ACopyOfWhatIsNotThereYet) {
  for (int device : {0, 1}) {
    auto late = Expect(4, 0);
    auto copy = runtime().CopyToDevice(*late.buffer, device, "");
    ASSERT_TRUE(copy.ok()) << copy.status();
    Awaited<absl::Status> ready;
    (*copy)->OnReady(ready.Callback());
    late.buffer.reset();
    EXPECT_FALSE(ready.HasCome());
    late.fulfil(test::BlobOf(Floats{1, 2, 3, 4}));
    EXPECT_TRUE(ready.Get().ok());
    EXPECT_EQ(Read(**copy).value(), (Floats{1, 2, 3, 4}));
  }
}

TEST_P(RuntimeConformance, ACopyOfWhatFailsHasItsError) {
  const absl::Status lost = absl::UnavailableError("peer gone");
  for (int device : {0, 1}) {
    auto late = Expect(4, 0);
    auto before = runtime().CopyToDevice(*late.buffer, device, "");
    ASSERT_TRUE(before.ok()) << before.status();
    late.fulfil(lost);
    EXPECT_EQ(test::WaitReady(**before), lost);
    auto after = runtime().CopyToDevice(*late.buffer, device, "");
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ(Read(**after).status(), lost);
  }
}

TEST_P(RuntimeConformance, CopyChecksItsArguments) {
  auto x = Put({1});
  EXPECT_EQ(runtime().CopyToDevice(*x, kDevices, "").status().code(), kInvalid);
  EXPECT_EQ(runtime().CopyToDevice(*x, 0, "no such memory").status().code(), kInvalid);
}

TEST_P(RuntimeConformance, OnReadyCallsEveryCallbackOnce) {
  auto late = Expect(1, 0);
  std::atomic<int> calls{0};
  for (int i = 0; i < 10; ++i)
    late.buffer->OnReady([&](absl::Status status) { calls += status.ok() ? 1 : 100; });
  EXPECT_EQ(calls, 0);
  late.fulfil(test::BlobOf(Floats{1}));
  ASSERT_TRUE(test::WaitReady(*late.buffer).ok());
  EXPECT_TRUE(test::Eventually([&] { return calls == 10; }));
  late.buffer->OnReady([&](absl::Status) { ++calls; });
  EXPECT_EQ(calls, 11) << "a ready buffer says so at once";
}

TEST_P(RuntimeConformance, WhatComesOfARuntimeMayOutliveIt) {
  auto add = Load(Program::kAdd, test::OneDevice());
  auto x = Put({1, 2, 3, 4});
  auto result = test::Run(runtime(), Request(add.get(), {{x.get(), x.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  auto view = test::ReadView(runtime(), *result->outputs[0][0]);
  ASSERT_TRUE(view.ok());
  backend_->CloseRuntime();
  float first;
  std::memcpy(&first, view->bytes.data(), 4);
  EXPECT_EQ(first, Computed({2})[0]);
}

}  // namespace
}  // namespace fairway::conformance
