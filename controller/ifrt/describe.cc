// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/describe.h"

#include <algorithm>
#include <map>
#include <string>

#include "controller/cluster/virtual_device.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

// FNV-1a. Clients only compare it.
uint64_t PlatformId(std::string_view name) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// XLA's form of a device's name, "CpuDevice(id=0)"; with the island where there are several.
std::string Name(const VirtualDevice& device, bool with_island) {
  std::string platform = device.platform_name;
  if (!platform.empty() && platform[0] >= 'a' && platform[0] <= 'z') platform[0] -= 'a' - 'A';
  return with_island ? fmt::format("{}Device(id={}, island={})", platform, device.id, device.island)
                     : fmt::format("{}Device(id={})", platform, device.id);
}

using xla::ifrt::proxy::LoadedExecutableMetadataResponse;

void AddLayout(const v1::ValueSpec& value, LoadedExecutableMetadataResponse::LayoutList* list) {
  xla::LayoutProto* layout = list->add_layouts();
  if (value.minor_to_major_size() == value.shard_dims_size()) {
    *layout->mutable_minor_to_major() = value.minor_to_major();
  } else {
    DenseLayoutToProto(value.shard_dims_size(), layout);
  }
}

void AddSharding(const v1::ValueSpec& value, LoadedExecutableMetadataResponse::ShardingList* list) {
  // If the bytes did not parse, the program was refused when it was defined.
  (void)list->add_shardings()->ParseFromString(value.op_sharding());
}

void SetMemoryStats(const v1::MemoryStats& stats, xla::CompiledMemoryStatsProto* proto) {
  proto->set_generated_code_size_in_bytes(stats.generated_code());
  proto->set_argument_size_in_bytes(stats.argument());
  proto->set_output_size_in_bytes(stats.output());
  proto->set_alias_size_in_bytes(stats.alias());
  proto->set_temp_size_in_bytes(stats.temp());
  proto->set_peak_memory_in_bytes(stats.peak());
}

}  // namespace

void DescribeDevices(uint64_t session_id, const std::vector<VirtualDevice>& devices,
                     xla::ifrt::proxy::InitResponse* response) {
  response->set_session_id(session_id);
  response->set_process_index(0);
  response->set_runtime_type("fairway");
  if (!devices.empty()) {
    response->set_platform_name(devices[0].platform_name);
    response->set_platform_version("fairway; " + devices[0].platform_version);
    response->set_platform_id(PlatformId(devices[0].platform_name));
  }
  // jax.export reads the second attribute: programs in the Shardy dialect compile here.
  AttributesToProto({{"supports_executable_serialization", false}, {"serialize_with_sdy", true}},
                    response->mutable_client_attributes());
  std::map<std::string, int32_t> kind_ids;
  int32_t next_memory = 0;
  const bool several_islands = std::any_of(
      devices.begin(), devices.end(),
      [&](const VirtualDevice& device) { return device.slice_index != devices[0].slice_index; });
  for (const VirtualDevice& device : devices) {
    auto* d = response->add_all_devices();
    d->set_id(device.id);
    d->set_local_device_id(device.id);
    d->set_local_hardware_id(device.id);
    d->set_platform_name(device.platform_name);
    d->set_device_kind(device.device_kind);
    d->set_debug_string(fmt::format("{}:{}", device.platform_name, device.id));  // str()
    d->set_to_string(Name(device, several_islands));                             // repr()
    // jaxlib shows attributes of devices only, so the controller's version is one of them.
    AttributesToProto({{"slice_index", int64_t{device.slice_index}},
                       {"island", device.island},
                       {"memory_bytes", device.memory_bytes},
                       {"controller_version", std::string(FAIRWAY_VERSION)}},
                      d->mutable_attributes());
    response->add_primary_device_ids(device.id);
    response->add_addressable_device_ids(device.id);
    for (const std::string& kind : device.memory_kinds) {
      auto* memory = response->add_memories();
      const int32_t id = next_memory++;
      memory->set_id(id);
      memory->set_memory_space_kind(kind);
      memory->set_kind_id(
          kind_ids.emplace(kind, static_cast<int32_t>(kind_ids.size())).first->second);
      memory->add_device_ids(device.id);
      memory->set_debug_string(fmt::format("{} of {}", kind, d->to_string()));
      memory->set_to_string(memory->debug_string());
      if (!d->has_default_memory_id()) d->set_default_memory_id(id);
      d->add_memory_ids(id);
    }
  }
}

absl::Status DefaultLayout(const xla::ifrt::proxy::GetDefaultLayoutRequest& request,
                           const std::vector<VirtualDevice>& devices,
                           xla::ifrt::proxy::GetDefaultLayoutResponse* response) {
  FAIRWAY_RETURN_IF_ERROR(DTypeFromProto(request.dtype()).status());
  if (request.device_id() < 0 || request.device_id() >= static_cast<int64_t>(devices.size()))
    return InvalidArgument("there is no device {}", request.device_id());
  const auto& kinds = devices[request.device_id()].memory_kinds;
  if (!request.memory_kind().empty() &&
      std::find(kinds.begin(), kinds.end(), request.memory_kind()) == kinds.end())
    return InvalidArgument("device {} has no memory of kind \"{}\"", request.device_id(),
                           ValidUtf8(request.memory_kind()));
  if (request.dims_size() > kMaxRank)
    return InvalidArgument("a shape of rank {}", request.dims_size());
  response->set_serialized_pjrt_layout(DenseLayoutText(request.dims_size()));
  return absl::OkStatus();
}

absl::Status DefaultDeviceAssignment(
    const xla::ifrt::proxy::GetDefaultDeviceAssignmentRequest& request, int num_devices,
    xla::ifrt::proxy::GetDefaultDeviceAssignmentResponse* response) {
  const uint64_t replicas = request.num_replicas(), partitions = request.num_partitions();
  const auto limit = static_cast<uint64_t>(num_devices);
  if (replicas < 1 || partitions < 1 || replicas > limit || partitions > limit ||
      replicas * partitions > limit)
    return InvalidArgument("{} replicas x {} partitions on {} devices", replicas, partitions,
                           num_devices);
  auto* assignment = response->mutable_device_assignment();
  assignment->set_replica_count(static_cast<int32_t>(replicas));
  assignment->set_computation_count(static_cast<int32_t>(partitions));
  for (uint64_t p = 0; p < partitions; ++p) {
    auto* computation = assignment->add_computation_devices();
    for (uint64_t r = 0; r < replicas; ++r)
      computation->add_replica_device_ids(static_cast<int64_t>(r * partitions + p));
  }
  return absl::OkStatus();
}

void DescribeExecutable(const v1::ExecutableMetadata& metadata, size_t num_devices,
                        const std::vector<std::string>& memory_kinds,
                        LoadedExecutableMetadataResponse* response) {
  // XLA gives no shardings for code of one device, and the client expects none.
  const bool sharded = num_devices > 1;
  auto* donated = response->mutable_donated_input_indices();
  auto* parameter_layouts = response->mutable_parameter_layouts_list();
  auto* output_layouts = response->mutable_output_layouts_list();
  if (sharded) {
    response->mutable_parameter_shardings();
    response->mutable_output_shardings();
  }
  for (int i = 0; i < metadata.parameters_size(); ++i) {
    const v1::ValueSpec& value = metadata.parameters(i);
    AddLayout(value, parameter_layouts);
    if (sharded) AddSharding(value, response->mutable_parameter_shardings());
    if (value.donated()) donated->add_donated_input_indices(i);
  }
  auto* output_kinds = response->mutable_output_memory_kinds()->add_memory_kind_lists();
  for (const v1::ValueSpec& value : metadata.outputs()) {
    AddLayout(value, output_layouts);
    if (sharded) AddSharding(value, response->mutable_output_shardings());
    output_kinds->add_memory_kinds(value.memory_kind().empty() && !memory_kinds.empty()
                                       ? memory_kinds[0]
                                       : value.memory_kind());
  }
  SetMemoryStats(metadata.memory(), response->mutable_compiled_memory_stats());
  response->set_size_of_generated_code_in_bytes(metadata.memory().generated_code());
}

}  // namespace fairway
