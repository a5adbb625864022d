// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/runtime_backend.h"

#include <cstdlib>

#include <fmt/format.h>

#include "base/log.h"
#include "worker/compiler/fake_compiler.h"
#include "worker/compiler/native_compiler.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/fake/fake_runtime.h"
#include "worker/executor/runtime/host/host_runtime.h"
#include "worker/executor/runtime/native/test_native_programs.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"
#include "worker/executor/runtime/sim/sim_runtime.h"

namespace fairway::conformance {
namespace {

using namespace std::chrono_literals;

class PjrtBackend final : public RuntimeBackend {
 public:
  PjrtBackend(std::shared_ptr<pjrt::Client> client, std::unique_ptr<Compiler> compiler)
      : compiler_(std::move(compiler)), runtime_(MakePjrtRuntime(std::move(client))) {}

  Runtime& runtime() override { return *runtime_; }
  absl::StatusOr<CompileResult> Compile(Program program,
                                        const v1::CompileOptions& options) override {
    const int devices = static_cast<int>(options.num_replicas() * options.num_partitions());
    switch (program) {
      case Program::kAdd:
      case Program::kStableHlo:
        return compiler_->Compile(test::Add("4xf32"), options);
      case Program::kDonatingAdd:
        return compiler_->Compile(test::DonatingAdd("4xf32"), options);
      case Program::kPsum:
        return compiler_->Compile(test::Psum(devices), options);
      case Program::kDonatingPsum:
        return compiler_->Compile(test::DonatingPsum(devices), options);
      case Program::kWait:
        break;
    }
    return InvalidArgument("no such program");
  }
  absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device) override {
    FAIRWAY_ASSIGN_OR_RETURN(PjrtRuntime::Incoming incoming,
                             runtime_->Expect(dtype, shape, device, ""));
    return Incoming{std::move(incoming.buffer), std::move(incoming.fulfil)};
  }
  void CloseRuntime() override { runtime_.reset(); }

 private:
  const std::unique_ptr<Compiler> compiler_;
  std::unique_ptr<PjrtRuntime> runtime_;
};

class FakeBackend final : public RuntimeBackend {
 public:
  explicit FakeBackend(int num_devices)
      : compiler_(MakeFakeCompiler()), runtime_(std::make_unique<FakeRuntime>(num_devices)) {}

  Runtime& runtime() override { return *runtime_; }
  absl::StatusOr<CompileResult> Compile(Program program,
                                        const v1::CompileOptions& options) override {
    switch (program) {
      case Program::kAdd:
        return compiler_->Compile("fake add\nin f32[4]\nin f32[4]\nout f32[4]\nbrief\n", options);
      case Program::kDonatingAdd:
        return compiler_->Compile("fake add\nin f32[4] donated\nin f32[4]\nout f32[4]\n", options);
      case Program::kPsum:
        return compiler_->Compile("fake allreduce\nin f32[1]\nout f32[1]\n", options);
      case Program::kDonatingPsum:
        return compiler_->Compile("fake allreduce\nin f32[1] donated\nout f32[1]\n", options);
      case Program::kWait:
      case Program::kStableHlo:
        break;
    }
    return InvalidArgument("no such program");
  }
  absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device) override {
    FAIRWAY_ASSIGN_OR_RETURN(FakeRuntime::Incoming incoming,
                             runtime_->Expect(dtype, shape, device));
    return Incoming{std::move(incoming.buffer), std::move(incoming.fulfil)};
  }
  void CloseRuntime() override { runtime_.reset(); }

 private:
  const std::unique_ptr<Compiler> compiler_;
  std::unique_ptr<FakeRuntime> runtime_;
};

// `T` is a runtime of native programs.
template <typename T>
class NativeBackend final : public RuntimeBackend {
 public:
  explicit NativeBackend(int num_devices)
      : runtime_(std::make_unique<T>(num_devices)),
        compiler_(MakeNativeCompiler(runtime_->info().name)) {}

  Runtime& runtime() override { return *runtime_; }
  absl::StatusOr<CompileResult> Compile(Program program,
                                        const v1::CompileOptions& options) override {
    if (program == Program::kStableHlo) return InvalidArgument("no such program");
    const bool sum = program == Program::kPsum || program == Program::kDonatingPsum;
    const bool donated = program == Program::kDonatingAdd || program == Program::kDonatingPsum;
    const int devices = static_cast<int>(options.num_replicas() * options.num_partitions());
    std::string text;
    if (sum) {
      const std::string count = fmt::format("{}", devices);
      text = test::Parameter(DType::kF32, count, count, donated) + test::Step("all_reduce", "0") +
             test::Result(1);
    } else if (program == Program::kWait) {
      text = test::Parameter(DType::kF32, "4") +
             test::Step("sleep", "0", fmt::format("nanoseconds: {}", kWaitTime / 1ns)) +
             test::Result(1);
    } else {
      text = test::Parameter(DType::kF32, "4", "", donated) + test::Parameter(DType::kF32, "4") +
             test::Step("add", "0, 1") + test::Result(2);
    }
    return compiler_->Compile(test::NativeFromText(text).SerializeAsString(), options);
  }
  absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device) override {
    FAIRWAY_ASSIGN_OR_RETURN(NativeRuntime::Incoming incoming,
                             runtime_->Expect(dtype, shape, device));
    return Incoming{std::move(incoming.buffer), std::move(incoming.fulfil)};
  }
  void CloseRuntime() override { runtime_.reset(); }

 private:
  std::unique_ptr<T> runtime_;
  const std::unique_ptr<Compiler> compiler_;
};

template <typename T>
std::unique_ptr<RuntimeBackend> Opened(int num_devices) {
  return std::make_unique<T>(num_devices);
}

std::unique_ptr<RuntimeBackend> OpenedPjrt(int num_devices) {
  auto client = pjrt::Client::Create(test::ConfigOfTests(num_devices));
  if (!client.ok()) {
    spdlog::error("{}", Describe(client.status()));
    return nullptr;
  }
  return std::make_unique<PjrtBackend>(*client, MakePjrtCompiler(*client));
}

// The stand-in for a CUDA plugin, or the plugin that FAIRWAY_GPU_PLUGIN names (tests/gpu/run.sh).
// Programs are compiled without a client, as on GPUs.
std::unique_ptr<RuntimeBackend> OpenedCuda(int num_devices) {
  const char* named = std::getenv("FAIRWAY_GPU_PLUGIN");
  PjrtConfig config;
  config.plugin_path = named != nullptr ? named : FAIRWAY_STAND_IN_GPU;
  config.kind = "cuda";
  config.num_devices = num_devices;
  auto client = pjrt::Client::Create(config);
  auto compiler = client.ok() ? MakePjrtCompiler(config, (*client)->compile_target())
                              : absl::StatusOr<std::unique_ptr<Compiler>>(client.status());
  if (!compiler.ok()) {
    spdlog::error("{}", Describe(compiler.status()));
    return nullptr;
  }
  return std::make_unique<PjrtBackend>(*std::move(client), *std::move(compiler));
}

}  // namespace

std::string_view ReasonText(Reason reason) {
  switch (reason) {
    case Reason::kNoCompiler:
      return "no compiler";
    case Reason::kNoComputation:
      return "no computation";
    case Reason::kNoDeclaredTimes:
      return "no declared times";
    case Reason::kOneExecutor:
      return "one executor";
    case Reason::kNoThreads:
      return "no threads";
    case Reason::kNoBlocks:
      return "no blocks";
  }
  return "";
}

const std::vector<BackendUnderTest>& Backends() {
  static const auto* backends = new std::vector<BackendUnderTest>{
      {"pjrt",
       OpenedPjrt,
       {{"ADeclaredTimePasses", Reason::kNoDeclaredTimes},
        {"ABlockOverTwoExecutors", Reason::kOneExecutor},
        {"AGangOverTwoExecutors", Reason::kOneExecutor}},
       /*computes=*/true,
       /*has_brief=*/true},
      {"cuda",
       OpenedCuda,
       {{"ADeclaredTimePasses", Reason::kNoDeclaredTimes},
        {"ABlockOverTwoExecutors", Reason::kOneExecutor},
        {"AGangOverTwoExecutors", Reason::kOneExecutor}}},
      {"host", Opened<NativeBackend<HostRuntime>>, {{"StableHloRuns", Reason::kNoCompiler}}},
      {"sim",
       Opened<NativeBackend<SimRuntime>>,
       {{"StableHloRuns", Reason::kNoCompiler},
        {"ABlockOverTwoExecutors", Reason::kNoBlocks},
        {"LargeBytesComeBackAsTheyWere", Reason::kNoComputation}},
       /*computes=*/false},
      {"fake",
       Opened<FakeBackend>,
       {{"LateInputsInParallelThreads", Reason::kNoThreads},
        {"ADeclaredTimePasses", Reason::kNoDeclaredTimes},
        {"ABlockOverTwoExecutors", Reason::kOneExecutor},
        {"AGangOverTwoExecutors", Reason::kOneExecutor},
        {"StableHloRuns", Reason::kNoCompiler}},
       /*computes=*/true,
       /*has_brief=*/true},
  };
  return *backends;
}

}  // namespace fairway::conformance
