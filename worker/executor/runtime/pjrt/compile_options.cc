// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/compile_options.h"

#include <string_view>
#include <vector>

#include "xla/hlo_subset.pb.h"

namespace fairway::pjrt {

namespace {

constexpr std::string_view kTritonGemm = "xla_gpu_enable_triton_gemm";

}  // namespace

absl::StatusOr<std::vector<int>> AssignedDevices(const v1::CompileOptions& options,
                                                 int num_devices) {
  const int64_t replicas = options.num_replicas();
  const int64_t partitions = options.num_partitions();
  if (replicas < 1 || partitions < 1) {
    return InvalidArgument("{} replicas of {} partitions: both must be at least 1", replicas,
                           partitions);
  }
  if (replicas > num_devices || partitions > num_devices || replicas * partitions > num_devices) {
    return InvalidArgument("{} replicas of {} partitions on {} devices", replicas, partitions,
                           num_devices);
  }
  const int count = static_cast<int>(replicas * partitions);
  if (options.portable()) {
    if (count != 1 || options.devices_size() != 0) {
      return InvalidArgument(
          "portable code is for one device, chosen at launch; got {} and {} listed", count,
          options.devices_size());
    }
    return std::vector<int>();
  }
  std::vector<int> devices(options.devices().begin(), options.devices().end());
  if (devices.empty()) {
    for (int d = 0; d < count; ++d) devices.push_back(d);
  }
  if (static_cast<int>(devices.size()) != count) {
    return InvalidArgument("{} devices listed for {} replicas of {} partitions", devices.size(),
                           replicas, partitions);
  }
  std::vector<bool> seen(num_devices, false);
  for (int d : devices) {
    if (d < 0 || d >= num_devices)
      return InvalidArgument("no device {} (there are {})", d, num_devices);
    if (seen[d]) return InvalidArgument("device {} is listed twice", d);
    seen[d] = true;
  }
  return devices;
}

absl::StatusOr<std::string> EncodeCompileOptions(const v1::CompileOptions& options,
                                                 const Target& target) {
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<int> devices,
                           AssignedDevices(options, target.num_devices()));
  hlo::CompileOptions out;
  out.set_parameter_is_tupled_arguments(options.parameter_is_tupled_arguments());
  out.set_compile_portable_executable(options.portable());
  hlo::ExecutableBuildOptions& build = *out.mutable_executable_build_options();
  build.set_device_ordinal(-1);
  build.set_num_replicas(options.num_replicas());
  build.set_num_partitions(options.num_partitions());
  build.set_use_spmd_partitioning(options.use_spmd_partitioning());
  build.set_use_shardy_partitioner(options.use_shardy_partitioner());
  build.set_alias_passthrough_params(options.alias_passthrough_params());
  for (bool allow : options.allow_spmd_sharding_propagation_to_parameters()) {
    build.add_allow_spmd_sharding_propagation_to_parameters(allow);
  }
  for (bool allow : options.allow_spmd_sharding_propagation_to_output()) {
    build.add_allow_spmd_sharding_propagation_to_output(allow);
  }
  if (!target.is_cpu()) {
    // Nobody has tuned these kernels, and untuned they are slow: use the library's.
    (*out.mutable_env_option_overrides())[std::string(kTritonGemm)].set_bool_field(false);
  }
  for (const v1::CompilerOption& option : options.compiler_options()) {
    if (!target.is_cpu() && option.name() == kTritonGemm) continue;
    hlo::OptionOverride& value = (*out.mutable_env_option_overrides())[option.name()];
    switch (option.value_case()) {
      case v1::CompilerOption::kText:
        value.set_string_field(option.text());
        break;
      case v1::CompilerOption::kFlag:
        value.set_bool_field(option.flag());
        break;
      case v1::CompilerOption::kInteger:
        value.set_int_field(option.integer());
        break;
      case v1::CompilerOption::kNumber:
        value.set_double_field(option.number());
        break;
      case v1::CompilerOption::VALUE_NOT_SET:
        return InvalidArgument("compiler option \"{}\" has no value", option.name());
    }
  }
  if (!devices.empty()) {
    const int64_t partitions = options.num_partitions();
    hlo::DeviceAssignment& assignment = *build.mutable_device_assignment();
    assignment.set_replica_count(static_cast<int32_t>(options.num_replicas()));
    assignment.set_computation_count(static_cast<int32_t>(partitions));
    for (int64_t p = 0; p < partitions; ++p) {
      auto* computation = assignment.add_computation_devices();
      for (int64_t r = 0; r < options.num_replicas(); ++r) {
        computation->add_replica_device_ids(target.device_id(devices[r * partitions + p]));
      }
    }
  }
  return out.SerializeAsString();
}

}  // namespace fairway::pjrt
