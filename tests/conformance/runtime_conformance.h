// SPDX-License-Identifier: Apache-2.0
// The fixture of the conformance suite: one set of cases, run on every runtime.
#ifndef FAIRWAY_TESTS_CONFORMANCE_RUNTIME_CONFORMANCE_H_
#define FAIRWAY_TESTS_CONFORMANCE_RUNTIME_CONFORMANCE_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/runtime_backend.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway::conformance {

using Floats = std::vector<float>;

class RuntimeConformance : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  static constexpr int kDevices = 4;
  static constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

  void SetUp() override {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    name = name.substr(0, name.find('/'));
    const auto off = GetParam().off.find(name);
    if (off != GetParam().off.end()) GTEST_SKIP() << ReasonText(off->second);
    backend_ = GetParam().open(kDevices);
    ASSERT_NE(backend_, nullptr) << "no " << GetParam().name << " runtime";
  }

  Runtime& runtime() { return backend_->runtime(); }

  std::shared_ptr<LoadedExecutable> Load(Program program, const v1::CompileOptions& options,
                                         const std::vector<int>& devices = {}) {
    auto compiled = backend_->Compile(program, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return nullptr;
    auto loaded = runtime().Load(compiled->code, devices);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *loaded : nullptr;
  }

  std::unique_ptr<DeviceBuffer> Put(const Floats& values, int device = 0) {
    return Put(values, Shape{{static_cast<int64_t>(values.size())}}, device);
  }
  std::unique_ptr<DeviceBuffer> Put(const Floats& values, const Shape& shape, int device) {
    auto buffer = runtime().FromHost(test::BlobOf(values), DType::kF32, shape, device, "");
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }
  RuntimeBackend::Incoming Expect(int elements, int device) {
    auto incoming = backend_->Expect(DType::kF32, Shape{{elements}}, device);
    EXPECT_TRUE(incoming.ok()) << incoming.status();
    return incoming.ok() ? *std::move(incoming) : RuntimeBackend::Incoming{};
  }

  // Returns `values`, which a program should compute, or zeros where the runtime computes nothing.
  static Floats Computed(Floats values) {
    if (!GetParam().computes) std::fill(values.begin(), values.end(), 0.0f);
    return values;
  }

  // Puts bytes onto a device, reads them back, and compares.
  void BytesComeBack(DType dtype, const Shape& shape, int device) {
    SCOPED_TRACE(ToString(dtype, shape) + " on " + std::to_string(device));
    std::string bytes(static_cast<size_t>(ByteSize(dtype, shape).value()), '\0');
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(dtype == DType::kPred ? i % 2 : i * 7);
    auto buffer = runtime().FromHost(Blob::Copy(bytes), dtype, shape, device, "");
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_TRUE(test::WaitReady(**buffer).ok());
    auto view = test::ReadView(runtime(), **buffer);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->bytes, bytes);
  }

  absl::StatusOr<Floats> Read(DeviceBuffer& buffer) {
    return test::ReadAll<float>(runtime(), buffer);
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

  std::unique_ptr<RuntimeBackend> backend_;
  uint64_t last_id_ = 0;
};

}  // namespace fairway::conformance

#endif  // FAIRWAY_TESTS_CONFORMANCE_RUNTIME_CONFORMANCE_H_
