// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/fake_compiler.h"

#include "worker/compiler/checksum.h"
#include "worker/executor/runtime/fake/fake_program.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {
namespace {

absl::Status Describe(const FakeProgram::Value& value, int64_t num_devices, v1::ValueSpec& spec) {
  spec.set_dtype(static_cast<int32_t>(value.dtype));
  spec.set_donated(value.donated);
  int64_t pieces = 1;
  for (int i = 0; i < value.shape.rank(); ++i) {
    const int64_t tiles = value.tiles.empty() ? 1 : value.tiles[i];
    spec.add_shard_dims(value.shape.dims[i]);
    spec.add_global_dims(value.shape.dims[i] * tiles);
    spec.add_minor_to_major(value.shape.rank() - 1 - i);
    pieces *= tiles;
  }
  if (pieces == 1) return absl::OkStatus();
  if (pieces != num_devices) return InvalidArgument("{} tiles on {} devices", pieces, num_devices);
  hlo::OpSharding sharding;
  sharding.set_type(3);  // tiled
  for (int64_t tiles : value.tiles) sharding.add_tile_assignment_dimensions(tiles);
  for (int64_t d = 0; d < num_devices; ++d) sharding.add_tile_assignment_devices(d);
  spec.set_op_sharding(sharding.SerializeAsString());
  return absl::OkStatus();
}

class FakeCompiler final : public Compiler {
 public:
  absl::StatusOr<CompileResult> Compile(const std::string& text,
                                        const v1::CompileOptions& options) override {
    FAIRWAY_ASSIGN_OR_RETURN(FakeProgram program, FakeProgram::Parse(text));
    const int64_t count = options.num_replicas() * options.num_partitions();
    if (count < 1) return InvalidArgument("{} devices to compile for", count);
    program.devices.assign(options.devices().begin(), options.devices().end());
    if (program.devices.empty() && !options.portable()) {
      for (int64_t d = 0; d < count; ++d) program.devices.push_back(static_cast<int>(d));
    }
    if (!options.portable() && static_cast<int64_t>(program.devices.size()) != count) {
      return InvalidArgument("{} devices listed for {}", program.devices.size(), count);
    }
    CompileResult result;
    result.metadata.set_name(program.name);
    result.metadata.set_num_devices(static_cast<int32_t>(count));
    for (const auto& value : program.inputs) {
      FAIRWAY_RETURN_IF_ERROR(Describe(value, count, *result.metadata.add_parameters()));
    }
    for (const auto& value : program.outputs) {
      FAIRWAY_RETURN_IF_ERROR(Describe(value, count, *result.metadata.add_outputs()));
    }
    v1::MemoryStats& memory = *result.metadata.mutable_memory();
    for (const auto& value : program.inputs) {
      memory.set_argument(memory.argument() + ByteSize(value.dtype, value.shape).value_or(0));
    }
    for (const auto& value : program.outputs) {
      memory.set_output(memory.output() + ByteSize(value.dtype, value.shape).value_or(0));
    }
    result.code = program.ToText();
    result.checksum = Sha256Hex(result.code);
    result.metadata.set_fingerprint(result.checksum);
    result.metadata.set_program_text(result.code);
    return result;
  }
};

}  // namespace

std::unique_ptr<Compiler> MakeFakeCompiler() { return std::make_unique<FakeCompiler>(); }

}  // namespace fairway
