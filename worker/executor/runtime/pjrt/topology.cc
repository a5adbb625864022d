// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/topology.h"

#include <charconv>

#include "base/crc32c.h"
#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/call.h"

namespace fairway::pjrt {
namespace {

// Names of XLA's GPU topologies, as options and as attributes.
constexpr std::string_view kTargetConfig = "target_config";
constexpr std::string_view kHostMachine = "host_target_machine_options";
constexpr std::string_view kTopology = "topology";

PJRT_NamedValue Text(std::string_view name, std::string_view value) {
  PJRT_NamedValue out{};
  out.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  out.name = name.data();
  out.name_size = name.size();
  out.type = PJRT_NamedValue_kString;
  out.string_value = value.data();
  out.value_size = value.size();
  return out;
}

}  // namespace

int64_t DeviceMemoryIn(std::string_view target_config) {
  constexpr std::string_view kField = "device_memory_size:";
  size_t at = target_config.find(kField);
  if (at == std::string_view::npos) return 0;
  at = target_config.find_first_not_of(' ', at + kField.size());
  if (at == std::string_view::npos) return 0;
  int64_t bytes = 0;
  std::from_chars(target_config.data() + at, target_config.data() + target_config.size(), bytes);
  return bytes;
}

absl::StatusOr<v1::CompileTarget> DescriptionOf(const PJRT_Api* api,
                                                PJRT_TopologyDescription* topology) {
  Padded<PJRT_TopologyDescription_Attributes_Args> args;
  args->topology = topology;
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_TopologyDescription_Attributes, args));
  v1::CompileTarget out;
  for (size_t i = 0; i < args->num_attributes; ++i) {
    const PJRT_NamedValue& value = args->attributes[i];
    if (value.type != PJRT_NamedValue_kString) continue;
    const std::string_view name(value.name, value.name_size);
    const std::string_view text(value.string_value, value.value_size);
    if (name == kTargetConfig) out.set_config(std::string(text));
    if (name == kHostMachine) out.set_host_machine(std::string(text));
  }
  return out;
}

absl::StatusOr<std::shared_ptr<Topology>> Topology::Create(const PjrtConfig& config,
                                                           const v1::CompileTarget& target) {
  if (target.config().find_first_not_of(" \t\r\n") == std::string::npos) {
    return InvalidArgument(
        "an empty target configuration: expected the text of XLA's GpuTargetConfigProto, which "
        "says what GPU programs are compiled for");
  }
  FAIRWAY_ASSIGN_OR_RETURN(Plugin plugin, LoadPlugin(config));
  std::shared_ptr<Topology> topology(new Topology());
  topology->plugin_ = std::move(plugin);
  // Partitions, hosts, devices of a host.
  const std::string shape = fmt::format("1x1x{}", config.num_devices);
  std::vector<PJRT_NamedValue> options = {Text(kTopology, shape),
                                          Text(kTargetConfig, target.config())};
  if (!target.host_machine().empty()) {
    options.push_back(Text(kHostMachine, target.host_machine()));
  }
  Padded<PJRT_TopologyDescription_Create_Args> args;
  args->topology_name = kTopology.data();
  args->topology_name_size = kTopology.size();
  args->create_options = options.data();
  args->num_options = options.size();
  const PJRT_Api* api = topology->plugin_.api;
  if (absl::Status made = Call(api, api->PJRT_TopologyDescription_Create, args); !made.ok()) {
    return InvalidArgument(
        "the plugin cannot read the target configuration (expected the text of XLA's "
        "GpuTargetConfigProto): {}",
        fairway::Text(made));
  }
  topology->raw_ = args->topology;
  FAIRWAY_RETURN_IF_ERROR(
      Annotate(topology->ReadDescription(), "describing what programs are compiled for"));
  if (topology->num_devices() != config.num_devices) {
    return InvalidArgument("asked the plugin to describe {} devices, it describes {}",
                           config.num_devices, topology->num_devices());
  }
  return topology;
}

absl::Status Topology::ReadDescription() {
  const PJRT_Api* api = plugin_.api;
  Padded<PJRT_TopologyDescription_PlatformName_Args> name;
  name->topology = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_TopologyDescription_PlatformName, name));
  platform_name_.assign(name->platform_name, name->platform_name_size);
  Padded<PJRT_TopologyDescription_GetDeviceDescriptions_Args> devices;
  devices->topology = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_TopologyDescription_GetDeviceDescriptions, devices));
  for (size_t d = 0; d < devices->num_descriptions; ++d) {
    Padded<PJRT_DeviceDescription_Id_Args> id;
    id->device_description = devices->descriptions[d];
    FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_DeviceDescription_Id, id));
    device_ids_.push_back(id->id);
    Padded<PJRT_DeviceDescription_Kind_Args> kind;
    kind->device_description = devices->descriptions[d];
    FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_DeviceDescription_Kind, kind));
    device_kind_.assign(kind->device_kind, kind->device_kind_size);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const v1::CompileTarget printed, DescriptionOf(api, raw_));
  device_memory_ = DeviceMemoryIn(printed.config());
  // The model of a GPU is not enough: GPUs of one name differ in memory, and the versions of the
  // libraries beside the plugin decide what is compiled.
  platform_version_ = fmt::format(
      "{} {}; PJRT {}.{}; StableHLO {}; plugin of {} bytes; {}, target {:08x}", platform_name_,
      plugin_.cuda_version, plugin_.api_major, plugin_.api_minor, plugin_.stablehlo_current,
      plugin_.file_size, device_kind_, Crc32c(printed.config() + printed.host_machine()));
  return absl::OkStatus();
}

Topology::~Topology() {
  if (raw_ == nullptr) return;
  Padded<PJRT_TopologyDescription_Destroy_Args> args;
  args->topology = raw_;
  absl::Status status = Call(plugin_.api, plugin_.api->PJRT_TopologyDescription_Destroy, args);
  if (!status.ok()) spdlog::warn("destroying a topology: {}", Describe(status));
}

absl::StatusOr<std::unique_ptr<Compiled>> Topology::CompileOnly(std::string_view code,
                                                                std::string_view format,
                                                                const std::string& options) const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(code.data());
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  Padded<PJRT_Compile_Args> args;
  args->topology = raw_;
  args->program = &program;
  args->compile_options = options.data();
  args->compile_options_size = options.size();
  FAIRWAY_RETURN_IF_ERROR(Call(plugin_.api, plugin_.api->PJRT_Compile, args));
  return std::make_unique<Compiled>(plugin_.api, args->executable, shared_from_this());
}

}  // namespace fairway::pjrt
