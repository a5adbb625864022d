// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/compiled.h"

#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/call.h"

namespace fairway::pjrt {

absl::StatusOr<std::unique_ptr<Compiled>> Compiled::Of(const PJRT_Api* api,
                                                       PJRT_LoadedExecutable* loaded,
                                                       std::shared_ptr<const void> owner) {
  Padded<PJRT_LoadedExecutable_GetExecutable_Args> args;
  args->loaded_executable = loaded;
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_LoadedExecutable_GetExecutable, args));
  return std::make_unique<Compiled>(api, args->executable, std::move(owner));
}

Compiled::~Compiled() {
  Padded<PJRT_Executable_Destroy_Args> args;
  args->executable = raw_;
  absl::Status status = Call(api_, api_->PJRT_Executable_Destroy, args);
  if (!status.ok()) spdlog::warn("destroying compiled code: {}", Describe(status));
}

absl::StatusOr<std::string> Compiled::Serialize() const {
  Padded<PJRT_Executable_Serialize_Args> args;
  args->executable = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_Serialize, args));
  std::string bytes(args->serialized_bytes, args->serialized_bytes_size);
  args->serialized_executable_deleter(args->serialized_executable);
  return bytes;
}

absl::StatusOr<std::string> Compiled::Fingerprint() const {
  Padded<PJRT_Executable_Fingerprint_Args> args;
  args->executable = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_Fingerprint, args));
  return std::string(args->executable_fingerprint, args->executable_fingerprint_size);
}

absl::StatusOr<std::string> Compiled::HloModule() const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  Padded<PJRT_Executable_OptimizedProgram_Args> args;
  args->executable = raw_;
  args->program = &program;
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_OptimizedProgram, args));
  std::string bytes(program.code_size, '\0');
  program.code = bytes.data();
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_OptimizedProgram, args));
  const std::string_view format(program.format, program.format_size);
  if (format != "hlo_with_config") {
    return Error(absl::StatusCode::kUnimplemented,
                 "the plugin gives its optimized program as \"{}\"", format);
  }
  return bytes;
}

absl::StatusOr<std::vector<std::pair<DType, Shape>>> Compiled::Outputs() const {
  Padded<PJRT_Executable_OutputElementTypes_Args> types;
  types->executable = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_OutputElementTypes, types));
  Padded<PJRT_Executable_OutputDimensions_Args> dims;
  dims->executable = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_OutputDimensions, dims));
  if (types->num_output_types != dims->num_outputs) {
    return Error(absl::StatusCode::kInternal,
                 "the plugin gives {} output types and {} output shapes", types->num_output_types,
                 dims->num_outputs);
  }
  std::vector<std::pair<DType, Shape>> outputs;
  const int64_t* next = dims->dims;
  for (size_t i = 0; i < dims->num_outputs; ++i) {
    const size_t rank = dims->dim_sizes[i];
    outputs.emplace_back(
        DTypeFromPjrtType(static_cast<int32_t>(types->output_types[i])).value_or(DType::kInvalid),
        Shape{{next, next + rank}});
    next += rank;
  }
  return outputs;
}

absl::StatusOr<std::map<std::string, double>> Compiled::Cost() const {
  Padded<PJRT_Executable_GetCostAnalysis_Args> args;
  args->executable = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_GetCostAnalysis, args));
  std::map<std::string, double> cost;
  for (size_t i = 0; i < args->num_properties; ++i) {
    const PJRT_NamedValue& value = args->properties[i];
    std::string name(value.name, value.name_size);
    if (value.type == PJRT_NamedValue_kFloat) cost[name] = value.float_value;
    if (value.type == PJRT_NamedValue_kInt64) cost[name] = static_cast<double>(value.int64_value);
  }
  return cost;
}

absl::StatusOr<Compiled::MemoryUse> Compiled::Memory() const {
  Padded<PJRT_Executable_GetCompiledMemoryStats_Args> args;
  args->executable = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api_, api_->PJRT_Executable_GetCompiledMemoryStats, args));
  MemoryUse use;
  use.generated_code = args->generated_code_size_in_bytes;
  use.argument = args->argument_size_in_bytes;
  use.output = args->output_size_in_bytes;
  use.alias = args->alias_size_in_bytes;
  use.temp = args->temp_size_in_bytes;
  use.peak = args->peak_memory_in_bytes;
  return use;
}

}  // namespace fairway::pjrt
