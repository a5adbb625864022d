// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/native_compiler.h"

#include <numeric>

#include "fairway/v1/native.pb.h"
#include "worker/compiler/checksum.h"
#include "worker/executor/runtime/native/native_program.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {
namespace {

constexpr int kTiledSharding = 3;  // xla.OpSharding.Type

void Describe(const NativeProgram::Value& value, const std::vector<int64_t>& tiles, int num_devices,
              v1::ValueSpec& spec) {
  spec.set_dtype(static_cast<int32_t>(value.dtype));
  int64_t pieces = 1;
  for (int i = 0; i < value.shape.rank(); ++i) {
    const int64_t count = tiles.empty() ? 1 : tiles[i];
    spec.add_shard_dims(value.shape.dims[i]);
    spec.add_global_dims(value.shape.dims[i] * count);
    spec.add_minor_to_major(value.shape.rank() - 1 - i);
    pieces *= count;
  }
  if (pieces == 1) return;
  hlo::OpSharding sharding;
  sharding.set_type(kTiledSharding);
  for (const int64_t count : tiles) sharding.add_tile_assignment_dimensions(count);
  for (int d = 0; d < num_devices; ++d) sharding.add_tile_assignment_devices(d);
  spec.set_op_sharding(sharding.SerializeAsString());
}

int64_t Bytes(const NativeProgram::Value& value) {
  return ByteSize(value.dtype, value.shape).value_or(0);
}

// Adds the cost of one device; an all_reduce counts its additions once.
void AddCost(const NativeProgram& program, v1::ExecutableMetadata& metadata) {
  double flops = 0, bytes = 0;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const NativeProgram::Step& step = program.steps[s];
    const NativeProgram::Value& made = program.values[program.num_parameters + s];
    if (step.kernel == NativeKernel::kBusyWait || step.kernel == NativeKernel::kSleep) continue;
    const auto elements = static_cast<double>(made.shape.num_elements());
    const NativeProgram::Value& first = program.values[step.operands[0]];
    if (step.kernel == NativeKernel::kMatmul) {
      flops += 2 * elements * static_cast<double>(first.shape.dims[1]);
    } else if (step.kernel == NativeKernel::kAdd) {
      flops += elements * static_cast<double>(step.operands.size() - 1);
    } else {
      flops += elements;
    }
    for (const int operand : step.operands) {
      bytes += static_cast<double>(Bytes(program.values[operand]));
    }
    bytes += static_cast<double>(Bytes(made));
  }
  (*metadata.mutable_cost())["flops"] = flops * program.repeat;
  (*metadata.mutable_cost())["bytes accessed"] = bytes * program.repeat;
}

class NativeCompiler final : public Compiler {
 public:
  explicit NativeCompiler(std::string runtime) : runtime_(std::move(runtime)) {}
  absl::StatusOr<CompileResult> Compile(const std::string& bytes,
                                        const v1::CompileOptions& options) override {
    v1::NativeCode code;
    if (!code.mutable_program()->ParseFromString(bytes)) {
      return InvalidArgument(
          "the program is no fairway.v1.NativeProgram, and this worker has no other compiler: its "
          "runtime is {}. Run StableHLO on an island whose runtime is pjrt",
          runtime_);
    }
    const int64_t count = options.num_replicas() * options.num_partitions();
    if (count < 1 || count > INT32_MAX) return InvalidArgument("{} devices to compile for", count);
    *code.mutable_devices() = options.devices();
    if (code.devices().empty() && !options.portable()) {
      code.mutable_devices()->Resize(static_cast<int>(count), 0);
      std::iota(code.mutable_devices()->begin(), code.mutable_devices()->end(), 0);
    }
    if (options.portable() ? count != 1 : code.devices_size() != count) {
      return InvalidArgument("{} devices listed for {}", code.devices_size(), count);
    }
    FAIRWAY_ASSIGN_OR_RETURN(const NativeProgram program,
                             NativeProgram::Make(code.program(), static_cast<int>(count)));
    CompileResult result;
    FillMetadata(program, result.metadata);
    result.code = code.SerializeAsString();
    result.checksum = Sha256Hex(result.code);
    result.metadata.set_fingerprint(result.checksum);
    result.metadata.set_program_text(code.program().DebugString());
    return result;
  }

 private:
  static void FillMetadata(const NativeProgram& program, v1::ExecutableMetadata& metadata) {
    metadata.set_name(program.name);
    metadata.set_num_devices(program.num_devices);
    v1::MemoryStats& memory = *metadata.mutable_memory();
    int64_t all = 0;
    for (const NativeProgram::Value& value : program.values) all += Bytes(value);
    for (int p = 0; p < program.num_parameters; ++p) {
      v1::ValueSpec& spec = *metadata.add_parameters();
      Describe(program.values[p], program.tiles[p], program.num_devices, spec);
      spec.set_donated(program.donated[p]);
      memory.set_argument(memory.argument() + Bytes(program.values[p]));
    }
    for (const NativeProgram::Result& output : program.results) {
      const NativeProgram::Value& value = program.values[output.value];
      Describe(value, output.tiles, program.num_devices, *metadata.add_outputs());
      memory.set_output(memory.output() + Bytes(value));
    }
    // In the worst case all values are alive at once.
    memory.set_temp(std::max<int64_t>(0, all - memory.argument() - memory.output()));
    AddCost(program, metadata);
  }

  const std::string runtime_;
};

}  // namespace

std::unique_ptr<Compiler> MakeNativeCompiler(std::string runtime) {
  return std::make_unique<NativeCompiler>(std::move(runtime));
}

}  // namespace fairway
