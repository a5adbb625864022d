// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/pjrt_compiler.h"

#include <cctype>
#include <cstdio>
#include <tuple>

#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/check_custom_calls.h"
#include "worker/compiler/check_gpu_calls.h"
#include "worker/compiler/check_packed_types.h"
#include "worker/compiler/checksum.h"
#include "worker/compiler/metadata.h"
#include "worker/compiler/older_forms.h"
#include "worker/compiler/result_cuts.h"
#include "worker/compiler/rewrite.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/compile_options.h"
#include "worker/executor/runtime/pjrt/topology.h"

namespace fairway {
namespace {

std::tuple<int, int, int> ParseVersion(const std::string& text) {
  int major = 0, minor = 0, patch = 0;
  std::sscanf(text.c_str(), "%d.%d.%d", &major, &minor, &patch);
  return {major, minor, patch};
}

// The share of a GPU's memory that the client of a compile process takes at most.
constexpr float kMemoryForTuning = 0.1f;

// Refuses programs in which the plugin would lose `unreduced`. The plugin's partitioner drops it
// from a Shardy sharding: then every device has the sum where it should have its part. Inside a
// program that has no effect on results; at its border, and in parts that are written per device
// (shard_map), values would be silently wrong.
//
// Shardings are text in every form of a program: "#sdy.sharding<@mesh, ...>" for arguments and
// results, "<@mesh, ...>" in a list or after an operation's operands for all others.
absl::Status CheckUnreduced(std::string_view program) {
  constexpr std::string_view kUnreduced = "unreduced={";
  const bool per_device = program.find("manual_axes") != std::string_view::npos;
  for (size_t at = program.find(kUnreduced); at != std::string_view::npos;
       at = program.find(kUnreduced, at + 1)) {
    const size_t open = program.rfind('<', at);
    const bool inside = open != std::string_view::npos && open > 0 &&
                        (program[open - 1] == '[' || program[open - 1] == ' ');
    if (inside && !per_device) continue;
    return Error(absl::StatusCode::kUnimplemented,
                 "a program with unreduced shardings {} is not served: the worker's compiler would "
                 "ignore them, and values would be wrong",
                 inside ? "and parts written per device (shard_map)" : "of arguments or results");
  }
  return absl::OkStatus();
}

class PjrtCompiler final : public Compiler {
 public:
  PjrtCompiler(std::shared_ptr<const pjrt::Target> target, const PjrtConfig& config)
      : target_(std::move(target)),
        allow_raw_kernels_(config.allow_raw_kernels),
        tunes_(config.tune_on_gpu) {}

  absl::StatusOr<CompileResult> Compile(const std::string& program,
                                        const v1::CompileOptions& options) override {
    if (program.empty()) return InvalidArgument("an empty program");
    FAIRWAY_RETURN_IF_ERROR(CheckUnreduced(program));
    if (ChecksGpuCalls()) FAIRWAY_RETURN_IF_ERROR(CheckGpuProgram(program));
    CompileResult result;
    v1::PjrtCode code;
    const std::string spelled = InOlderForms(program);
    auto compiled = CompileRewritten(spelled, options, {}, result.metadata, code);
    if (!compiled.ok()) return compiled.status();
    const auto cut = ResultsCutByPartsOfAxes(spelled, result.metadata);
    if (!cut.empty()) {
      result.metadata.Clear();
      compiled = CompileRewritten(spelled, options, cut, result.metadata, code);
      if (!compiled.ok()) return compiled.status();
    }
    FAIRWAY_ASSIGN_OR_RETURN(*code.mutable_native(), (*compiled)->Serialize());
    code.set_plugin(target_->identity());
    *code.mutable_options() = options;
    *code.mutable_metadata() = result.metadata;
    code.mutable_metadata()->clear_program_text();
    code.mutable_metadata()->clear_cost();
    // The caller reads the memory kinds that it asked for; `code` has the real ones.
    for (const size_t i : UnpinnedResults(spelled, options)) {
      if (static_cast<int>(i) >= result.metadata.outputs_size()) break;
      v1::ValueSpec& output = *result.metadata.mutable_outputs(static_cast<int>(i));
      if (!output.memory_kind().empty()) output.set_memory_kind("unpinned_host");
    }
    if (!code.SerializeToString(&result.code)) {
      return Error(absl::StatusCode::kResourceExhausted, "{} bytes of code do not fit a message",
                   code.native().size());
    }
    result.checksum = Sha256Hex(result.code);
    if (result.metadata.fingerprint().empty()) result.metadata.set_fingerprint(result.checksum);
    return result;
  }

 private:
  bool ChecksGpuCalls() const { return !target_->is_cpu() && !allow_raw_kernels_; }

  // `replicated`: as in RewriteForPlugin. Describes the compiled program in `metadata` and `code`.
  absl::StatusOr<std::unique_ptr<pjrt::Compiled>> CompileRewritten(
      const std::string& program, const v1::CompileOptions& options,
      const std::map<size_t, size_t>& replicated, v1::ExecutableMetadata& metadata,
      v1::PjrtCode& code) const {
    FAIRWAY_ASSIGN_OR_RETURN(const std::string served,
                             RewriteForPlugin(program, options, target_->is_cpu(), replicated));
    const auto compile =
        [&](const v1::CompileOptions& with) -> absl::StatusOr<std::unique_ptr<pjrt::Compiled>> {
      FAIRWAY_ASSIGN_OR_RETURN(std::string encoded, pjrt::EncodeCompileOptions(with, *target_));
      auto compiled = target_->CompileOnly(served, "mlir", encoded);
      if (!compiled.ok()) return Refused(program, compiled.status());
      FAIRWAY_RETURN_IF_ERROR(Describe(**compiled, options, metadata, code));
      return compiled;
    };
    auto compiled = compile(options);
    if (!compiled.ok()) return compiled.status();
    if (!tunes_ && metadata.program_text().find("\"__cudnn$conv") != std::string::npos) {
      // XLA leaves a convolution's algorithm to a tuning that needs a device, and cuDNN refuses the
      // code. Without tuning it is cuDNN's first algorithm: right, and slow. The products of such a
      // program are slower too, so others keep their tuning.
      v1::CompileOptions untuned = options;
      v1::CompilerOption& level = *untuned.add_compiler_options();
      level.set_name("xla_gpu_autotune_level");
      level.set_integer(0);
      metadata.Clear();
      compiled = compile(untuned);
      if (!compiled.ok()) return compiled.status();
    }
    FAIRWAY_RETURN_IF_ERROR(CheckFits(metadata));
    return compiled;
  }

  // The plugin's codes say little (a parse error is UNKNOWN), so any failure to compile counts as
  // the caller's error.
  absl::Status Refused(const std::string& program, const absl::Status& status) const {
    // JAX asks for a memory kind in this way; this XLA has no code for it on CPUs.
    if (Text(status).find("annotate_device_placement") != std::string::npos) {
      return Error(absl::StatusCode::kUnimplemented,
                   "the worker's compiler cannot place a value in another kind of memory inside a "
                   "program (memory kinds in out_shardings): jax.device_put outside of jit can. It "
                   "said: {}",
                   Text(status));
    }
    // jax.experimental.custom_partitioning.
    if (Text(status).find("CustomSPMDPartitioning") != std::string::npos) {
      return Error(absl::StatusCode::kUnimplemented,
                   "the program asks Python functions of the client how it is partitioned "
                   "(custom_partitioning), which the worker's compiler cannot call: jax.shard_map "
                   "says it without. It said: {}",
                   Text(status));
    }
    // A newer version alone means nothing: older plugins can read most of JAX's programs.
    const std::string version = ArtifactVersion(program);
    const std::string& current = target_->plugin().stablehlo_current;
    const bool unread = Text(status).find("Failed to parse") != std::string::npos ||
                        Text(status).find("deserializ") != std::string::npos;
    if (unread && !version.empty() && !current.empty() &&
        ParseVersion(version) > ParseVersion(current)) {
      return InvalidArgument(
          "the program was serialized for StableHLO {}, this plugin reads {} to {}: serialize it "
          "for {} or "
          "older. The compiler said: {}",
          version, target_->plugin().stablehlo_minimum, current, current, Text(status));
    }
    switch (status.code()) {
      case absl::StatusCode::kUnimplemented:
      case absl::StatusCode::kResourceExhausted:
        return status;
      default:
        return absl::InvalidArgumentError(status.message());
    }
  }

  // Without a device the plugin compiles for any size.
  absl::Status CheckFits(const v1::ExecutableMetadata& metadata) const {
    const v1::MemoryStats& memory = metadata.memory();
    const int64_t needed = memory.argument() + memory.output() - memory.alias() + memory.temp();
    if (target_->is_cpu() || target_->device_memory() == 0 || needed <= target_->device_memory())
      return absl::OkStatus();
    return Error(
        absl::StatusCode::kResourceExhausted,
        "{} needs {} bytes of a device ({} for arguments, {} for results, {} for values "
        "in between), and {} has {}: cut its arrays over more devices, or compute in parts",
        metadata.name(), needed, memory.argument(), memory.output() - memory.alias(), memory.temp(),
        target_->device_kind(), target_->device_memory());
  }

  absl::Status Describe(const pjrt::Compiled& program, const v1::CompileOptions& options,
                        v1::ExecutableMetadata& metadata, v1::PjrtCode& code) const {
    const bool cpu = target_->is_cpu();
    FAIRWAY_ASSIGN_OR_RETURN(std::string bytes, program.HloModule());
    hlo::HloModuleWithConfig module;
    if (!module.ParseFromString(bytes)) {
      return Error(absl::StatusCode::kInternal, "unreadable optimized program ({} bytes)",
                   bytes.size());
    }
    if (cpu) {
      FAIRWAY_RETURN_IF_ERROR(CheckCustomCalls(module.hlo_module()));
      FAIRWAY_RETURN_IF_ERROR(CheckPackedTypes(module.hlo_module()));
    }
    if (ChecksGpuCalls()) FAIRWAY_RETURN_IF_ERROR(CheckGpuCode(module.hlo_module()));
    FAIRWAY_RETURN_IF_ERROR(
        DescribeSignature(module, options.parameter_is_tupled_arguments(), metadata));
    metadata.set_program_text(HloText(module.hlo_module()));
    code.set_separable(Separable(module.hlo_module()));
    code.set_calls_back(CallsBack(module.hlo_module()));
    metadata.set_names_devices(!options.portable() && NamesDevices(module.hlo_module()));
    metadata.set_num_devices(
        static_cast<int32_t>(options.num_replicas() * options.num_partitions()));
    // Plugins may lack any of these; nothing depends on them.
    if (auto fingerprint = program.Fingerprint(); fingerprint.ok())
      metadata.set_fingerprint(*fingerprint);
    if (auto cost = program.Cost(); cost.ok())
      metadata.mutable_cost()->insert(cost->begin(), cost->end());
    if (cpu && !metadata.cost().empty()) {
      const auto found = metadata.cost().find("flops");  // left out if there are none
      const double flops = found == metadata.cost().end() ? 0 : found->second;
      code.set_brief(Brief(module.hlo_module(), flops));
      code.set_meets_briefly(MeetsBriefly(module.hlo_module(), flops));
    }
    if (auto use = program.Memory(); use.ok()) {
      v1::MemoryStats& memory = *metadata.mutable_memory();
      memory.set_generated_code(use->generated_code);
      memory.set_argument(use->argument);
      memory.set_output(use->output);
      memory.set_alias(use->alias);
      memory.set_temp(use->temp);
      memory.set_peak(use->peak);
    }
    return CheckOutputs(program, metadata);
  }

  // The signature was read from protos; the plugin's own description of the outputs must agree.
  static absl::Status CheckOutputs(const pjrt::Compiled& program,
                                   const v1::ExecutableMetadata& metadata) {
    FAIRWAY_ASSIGN_OR_RETURN(auto outputs, program.Outputs());
    bool same = static_cast<int>(outputs.size()) == metadata.outputs_size();
    for (int i = 0; same && i < metadata.outputs_size(); ++i) {
      const v1::ValueSpec& spec = metadata.outputs(i);
      same = outputs[i].first == DType::kToken ||
             (static_cast<int32_t>(outputs[i].first) == spec.dtype() &&
              outputs[i].second.dims ==
                  std::vector<int64_t>(spec.shard_dims().begin(), spec.shard_dims().end()));
    }
    if (same) return absl::OkStatus();
    return Error(absl::StatusCode::kInternal,
                 "{}: the optimized program and the plugin disagree on outputs", metadata.name());
  }

  const std::shared_ptr<const pjrt::Target> target_;
  const bool allow_raw_kernels_;
  const bool tunes_;  // target_ is a client
};

}  // namespace

std::string ArtifactVersion(std::string_view program) {
  // MLIR bytecode: "ML\xefR", a version number, the producer as a text that ends with a zero.
  if (program.substr(0, 4) != "ML\xefR") return {};
  constexpr std::string_view kProducer = "StableHLO_v";
  const size_t at = program.substr(0, 64).find(kProducer);
  if (at == std::string_view::npos) return {};
  std::string version;
  for (char c : program.substr(at + kProducer.size())) {
    if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.') break;
    version += c;
  }
  return version;
}

std::unique_ptr<Compiler> MakePjrtCompiler(std::shared_ptr<const pjrt::Target> target) {
  return std::make_unique<PjrtCompiler>(std::move(target), PjrtConfig());
}

absl::StatusOr<std::unique_ptr<Compiler>> MakePjrtCompiler(const PjrtConfig& config,
                                                           const v1::CompileTarget& target) {
  if (config.kind == "cpu") {
    FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Client> client, pjrt::Client::Create(config));
    return MakePjrtCompiler(std::move(client));
  }
  if (config.tune_on_gpu) {
    PjrtConfig own = config;
    own.create_options["preallocate"] = false;
    own.create_options["memory_fraction"] = kMemoryForTuning;
    FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Client> client, pjrt::Client::Create(own));
    return std::make_unique<PjrtCompiler>(std::move(client), config);
  }
  FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Topology> topology,
                           pjrt::Topology::Create(config, target));
  return std::make_unique<PjrtCompiler>(std::move(topology), config);
}

absl::StatusOr<std::unique_ptr<Compiler>> MakeWarmPjrtCompiler(const PjrtConfig& config,
                                                               const v1::CompileTarget& target) {
  // Goes through the parser, XLA's passes and LLVM, all of which initialize at first use.
  constexpr char kWarmUp[] = R"(module @warm_up {
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.add %x, %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  })";
  FAIRWAY_ASSIGN_OR_RETURN(std::unique_ptr<Compiler> compiler, MakePjrtCompiler(config, target));
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(1);
  FAIRWAY_RETURN_IF_ERROR(
      Annotate(compiler->Compile(kWarmUp, options).status(), "compiling a first program"));
  return compiler;
}

}  // namespace fairway
