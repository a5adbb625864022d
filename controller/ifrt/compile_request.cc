// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/compile_request.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "controller/compile/compile_service.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

absl::Status CheckKinds(const xla::ifrt::proxy::CompileRequest& request) {
  const std::string program = ValidUtf8(request.program().type_name());
  const std::string options = ValidUtf8(request.compile_options().type_name());
  if (program != "xla::ifrt::XlaProgram")
    return Error(kUnimplemented,
                 "programs of type \"{}\" are not served, only xla::ifrt::XlaProgram", program);
  if (options != "xla::ifrt::XlaCompileOptions")
    return Error(kUnimplemented,
                 "compile options of type \"{}\" are not served, only xla::ifrt::XlaCompileOptions",
                 options);
  if (!request.host_callbacks().empty())
    return Error(kUnimplemented,
                 "host callbacks (jax.pure_callback, io_callback, debug.print and debug.callback "
                 "inside jit) are not "
                 "served: the program runs on a worker, not beside this process");
  return absl::OkStatus();
}

absl::Status TakeCompilerOptions(const xla::CompileOptionsProto& in, v1::CompileOptions* out) {
  const std::map<std::string, xla::OptionOverrideProto> sorted(in.env_option_overrides().begin(),
                                                               in.env_option_overrides().end());
  for (const auto& [name, value] : sorted) {
    if (NamesFiles(name))
      return Error(kUnimplemented,
                   "compiler option \"{}\" (compiler_options of jax.jit) is not served: it names "
                   "files, and the program is compiled on a worker",
                   ValidUtf8(name));
    v1::CompilerOption* option = out->add_compiler_options();
    option->set_name(ValidUtf8(name));
    switch (value.value_case()) {
      case xla::OptionOverrideProto::kStringField:
        option->set_text(ValidUtf8(value.string_field()));
        break;
      case xla::OptionOverrideProto::kBoolField:
        option->set_flag(value.bool_field());
        break;
      case xla::OptionOverrideProto::kIntField:
        option->set_integer(value.int_field());
        break;
      case xla::OptionOverrideProto::kDoubleField:
        option->set_number(value.double_field());
        break;
      case xla::OptionOverrideProto::VALUE_NOT_SET:
        return InvalidArgument("compiler option \"{}\" has no value", option->name());
    }
  }
  return absl::OkStatus();
}

// Virtual ids, replica-major. Empty when the client gave no assignment.
absl::StatusOr<std::vector<int32_t>> Assignment(const xla::DeviceAssignmentProto& proto,
                                                int64_t replicas, int64_t partitions) {
  if (proto.computation_devices().empty()) return std::vector<int32_t>();
  if (proto.replica_count() != replicas || proto.computation_count() != partitions ||
      proto.computation_devices_size() != partitions)
    return InvalidArgument(
        "a device assignment of {} replicas x {} partitions for a program of {} x {}",
        proto.replica_count(), proto.computation_count(), replicas, partitions);
  std::vector<int32_t> devices(replicas * partitions);
  for (int64_t p = 0; p < partitions; ++p) {
    const auto& ids = proto.computation_devices(static_cast<int>(p)).replica_device_ids();
    if (ids.size() != replicas)
      return InvalidArgument("the device assignment names {} devices for partition {}, expected {}",
                             ids.size(), p, replicas);
    for (int64_t r = 0; r < replicas; ++r)
      devices[r * partitions + p] = static_cast<int32_t>(ids[static_cast<int>(r)]);
  }
  std::vector<int32_t> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return InvalidArgument("the device assignment names device {} twice", *twice);
  return devices;
}

}  // namespace

bool IsPluginProgram(const xla::ifrt::proxy::CompileRequest& request) {
  return request.program().type_name() == "xla::ifrt::PluginProgram";
}

absl::StatusOr<v1::BoundProgram> ParseDataflow(const xla::ifrt::proxy::CompileRequest& request) {
  // The prefix of jaxlib for plugin programs, then that of the fairway package.
  constexpr std::string_view kPrefix = "__serialized_plugin_program fairway.v1.BoundProgram ";
  const std::string& data = request.program().data();
  if (data.compare(0, kPrefix.size(), kPrefix) != 0)
    return Error(kUnimplemented,
                 "a plugin program that is no fairway.v1.BoundProgram is not served");
  if (!request.host_callbacks().empty())
    return Error(kUnimplemented, "a dataflow program has no host callbacks");
  v1::BoundProgram out;
  if (!out.ParseFromArray(data.data() + kPrefix.size(),
                          static_cast<int>(data.size() - kPrefix.size())))
    return InvalidArgument("the dataflow program does not parse");
  return out;
}

absl::StatusOr<ParsedCompile> ParseCompile(const xla::ifrt::proxy::CompileRequest& request,
                                           int num_devices) {
  FAIRWAY_RETURN_IF_ERROR(CheckKinds(request));
  xla::ifrt::XlaCompileOptionsProto wrapper;
  if (!wrapper.ParseFromString(request.compile_options().data()))
    return InvalidArgument("the compile options do not parse");
  if (!wrapper.outputs_bundle_slice_sizes().empty())
    return Error(kUnimplemented,
                 "a program whose outputs are bundled (outputs_bundle_slice_sizes) is not served");
  const xla::CompileOptionsProto& options = wrapper.compile_options();
  const xla::ExecutableBuildOptionsProto& build = options.executable_build_options();

  const int64_t replicas = build.num_replicas();
  const int64_t partitions = build.num_partitions();
  if (replicas < 1 || partitions < 1 || replicas > num_devices || partitions > num_devices ||
      replicas * partitions > num_devices)
    return InvalidArgument(
        "a program of {} replicas x {} partitions cannot run on the {} devices of this session",
        replicas, partitions, num_devices);
  ParsedCompile out;
  FAIRWAY_RETURN_IF_ERROR(TakeCompilerOptions(options, &out.options));
  FAIRWAY_ASSIGN_OR_RETURN(out.devices,
                           Assignment(build.device_assignment(), replicas, partitions));
  if (out.devices.empty()) {
    out.devices.resize(replicas * partitions);
    std::iota(out.devices.begin(), out.devices.end(), 0);
  }
  out.options.set_num_replicas(replicas);
  out.options.set_num_partitions(partitions);
  out.options.set_use_spmd_partitioning(build.use_spmd_partitioning());
  out.options.set_use_shardy_partitioner(build.use_shardy_partitioner());
  out.options.set_portable(options.compile_portable_executable());
  for (const bool allow : build.allow_spmd_sharding_propagation_to_parameters())
    out.options.add_allow_spmd_sharding_propagation_to_parameters(allow);
  for (const bool allow : build.allow_spmd_sharding_propagation_to_output())
    out.options.add_allow_spmd_sharding_propagation_to_output(allow);
  out.options.set_alias_passthrough_params(build.alias_passthrough_params());
  out.options.set_parameter_is_tupled_arguments(options.parameter_is_tupled_arguments());
  if (out.options.portable() && out.devices.size() != 1)
    return InvalidArgument("a portable program runs on one device, not on {}", out.devices.size());
  return out;
}

}  // namespace fairway
