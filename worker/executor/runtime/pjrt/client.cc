// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/client.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>

#include <fmt/ranges.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/topology.h"

namespace fairway::pjrt {
namespace {

std::atomic<bool> client_exists{false};

constexpr int64_t kLostShare = 50;  // one byte in fifty

// Option structs that point into the configuration that they are made from.
class OptionList {
 public:
  void Add(const std::string& name, const PjrtOption& option) {
    PJRT_NamedValue value{};
    value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    value.name = name.c_str();
    value.name_size = name.size();
    value.value_size = 1;
    if (const auto* text = std::get_if<std::string>(&option)) {
      value.type = PJRT_NamedValue_kString;
      value.string_value = text->c_str();
      value.value_size = text->size();
    } else if (const auto* integer = std::get_if<int64_t>(&option)) {
      value.type = PJRT_NamedValue_kInt64;
      value.int64_value = *integer;
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&option)) {
      value.type = PJRT_NamedValue_kInt64List;
      value.int64_array_value = list->data();
      value.value_size = list->size();
    } else if (const auto* number = std::get_if<float>(&option)) {
      value.type = PJRT_NamedValue_kFloat;
      value.float_value = *number;
    } else {
      value.type = PJRT_NamedValue_kBool;
      value.bool_value = std::get<bool>(option);
    }
    values_.push_back(value);
  }
  const std::vector<PJRT_NamedValue>& values() const { return values_; }

 private:
  std::vector<PJRT_NamedValue> values_;
};

int ClientDevices(const PjrtConfig& config) {
  const int spare = config.spare_devices < 0 ? config.num_devices : config.spare_devices;
  return config.num_devices + spare;
}

}  // namespace

std::string CpuFeatures(std::string_view cpuinfo) {
  // One line per processor: "flags : fpu vme ..." on x86, "Features : fp asimd ..." on Arm. All
  // processors of a host are alike.
  std::string_view features;
  while (features.empty() && !cpuinfo.empty()) {
    const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
    if (line.starts_with("flags") || line.starts_with("Features")) features = line;
    cpuinfo.remove_prefix(std::min(cpuinfo.size(), line.size() + 1));
  }
  return fmt::format("{:08x}", Crc32c(features));
}

absl::StatusOr<std::shared_ptr<Client>> Client::Create(const PjrtConfig& config) {
  FAIRWAY_ASSIGN_OR_RETURN(Plugin plugin, LoadPlugin(config));
  FAIRWAY_RETURN_IF_ERROR(CheckOptionsKnown(config, plugin.api_minor));
  std::shared_ptr<Client> client(new Client());
  client->plugin_ = std::move(plugin);
  if (client_exists.exchange(true)) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        "this process has a PJRT client; two of them crash when their launch ids are equal");
  }
  client->holds_slot_ = true;
  FAIRWAY_RETURN_IF_ERROR(Annotate(client->Open(config), "creating the PJRT client"));
  FAIRWAY_RETURN_IF_ERROR(Annotate(client->ReadDescription(config), "describing the PJRT client"));
  return client;
}

absl::Status Client::Open(const PjrtConfig& config) {
  is_cpu_ = config.kind == "cpu";
  static const std::string kDeviceCount = "cpu_device_count";
  const PjrtOption device_count = static_cast<int64_t>(ClientDevices(config));
  OptionList options;
  if (is_cpu_) options.Add(kDeviceCount, device_count);
  for (const auto& [name, value] : config.create_options) options.Add(name, value);
  Padded<PJRT_Client_Create_Args> args;
  args->create_options = options.values().data();
  args->num_options = options.values().size();
  FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Client_Create, args));
  raw_ = args->client;
  return absl::OkStatus();
}

absl::Status Client::ReadDescription(const PjrtConfig& config) {
  Padded<PJRT_Client_PlatformName_Args> name;
  name->client = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Client_PlatformName, name));
  platform_name_.assign(name->platform_name, name->platform_name_size);
  Padded<PJRT_Client_PlatformVersion_Args> version;
  version->client = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Client_PlatformVersion, version));
  platform_version_ =
      fmt::format("{}; PJRT {}.{}; StableHLO {}",
                  std::string_view(version->platform_version, version->platform_version_size),
                  plugin_.api_major, plugin_.api_minor, plugin_.stablehlo_current);
  if (!is_cpu_) FAIRWAY_RETURN_IF_ERROR(ReadTopology(config));
  if (is_cpu_) {
    std::ifstream file("/proc/cpuinfo");
    const std::string cpuinfo{std::istreambuf_iterator<char>(file), {}};
    platform_version_ += "; CPU " + CpuFeatures(cpuinfo);
  }

  Padded<PJRT_Client_AddressableDevices_Args> devices;
  devices->client = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Client_AddressableDevices, devices));
  const size_t found = devices->num_addressable_devices;
  if (found < static_cast<size_t>(config.num_devices)) {
    return InvalidArgument("{} devices configured, the plugin has {}", config.num_devices, found);
  }
  // A plugin that ignored the option would leave gangs without threads; do not start with it.
  if (is_cpu_ && found != static_cast<size_t>(ClientDevices(config))) {
    return InvalidArgument("asked the plugin for {} devices, it made {}", ClientDevices(config),
                           found);
  }
  num_devices_ = config.num_devices;
  for (int d = 0; d < num_devices_; ++d) {
    PJRT_Device* device = devices->addressable_devices[d];
    devices_.push_back(device);
    Padded<PJRT_Device_GetDescription_Args> description;
    description->device = device;
    FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Device_GetDescription, description));
    Padded<PJRT_DeviceDescription_Id_Args> id;
    id->device_description = description->device_description;
    FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_DeviceDescription_Id, id));
    device_ids_.push_back(id->id);
    if (d == 0) {
      Padded<PJRT_DeviceDescription_Kind_Args> kind;
      kind->device_description = description->device_description;
      FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_DeviceDescription_Kind, kind));
      device_kind_.assign(kind->device_kind, kind->device_kind_size);
    }

    if (!is_cpu_) FAIRWAY_RETURN_IF_ERROR(ReadMemory(device));
    Padded<PJRT_Device_DefaultMemory_Args> standard;
    standard->device = device;
    FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Device_DefaultMemory, standard));
    Padded<PJRT_Device_AddressableMemories_Args> all;
    all->device = device;
    FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Device_AddressableMemories, all));
    std::vector<PJRT_Memory*> memories(all->memories, all->memories + all->num_memories);
    std::stable_partition(memories.begin(), memories.end(),
                          [&](PJRT_Memory* m) { return m == standard->memory; });
    memories_.emplace_back(memory_kinds_.size(), nullptr);
    for (PJRT_Memory* memory : memories) {
      Padded<PJRT_Memory_Kind_Args> kind;
      kind->memory = memory;
      FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Memory_Kind, kind));
      const std::string text(kind->kind, kind->kind_size);
      size_t index =
          std::find(memory_kinds_.begin(), memory_kinds_.end(), text) - memory_kinds_.begin();
      if (index == memory_kinds_.size()) memory_kinds_.push_back(text);
      if (memories_.back().size() <= index) memories_.back().resize(index + 1, nullptr);
      memories_.back()[index] = memory;
    }
  }
  return absl::OkStatus();
}

// The pool cannot give all its memory as one block: some is lost between blocks.
absl::Status Client::ReadMemory(PJRT_Device* device) {
  Padded<PJRT_Device_MemoryStats_Args> stats;
  stats->device = device;
  FAIRWAY_RETURN_IF_ERROR(Annotate(Call(api(), api()->PJRT_Device_MemoryStats, stats),
                                   "asking for the memory of a device"));
  if (!stats->bytes_limit_is_set) return absl::OkStatus();
  const int64_t memory = stats->bytes_limit - stats->bytes_limit / kLostShare;
  device_memory_ = device_memory_ == 0 ? memory : std::min(device_memory_, memory);
  return absl::OkStatus();
}

// Code is compiled without a client, so its target must not depend on one.
absl::Status Client::ReadTopology(const PjrtConfig& config) {
  Padded<PJRT_Client_TopologyDescription_Args> args;
  args->client = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Client_TopologyDescription, args));
  FAIRWAY_ASSIGN_OR_RETURN(compile_target_, DescriptionOf(api(), args->topology));
  FAIRWAY_ASSIGN_OR_RETURN(const auto topology, Topology::Create(config, compile_target_));
  platform_version_ = topology->platform_version();
  return absl::OkStatus();
}

Program::~Program() {
  Padded<PJRT_LoadedExecutable_Destroy_Args> args;
  args->executable = raw_;
  absl::Status status = Call(client_->api(), client_->api()->PJRT_LoadedExecutable_Destroy, args);
  if (!status.ok()) spdlog::warn("destroying an executable: {}", Describe(status));
}

Client::~Client() {
  if (raw_ != nullptr) {
    Padded<PJRT_Client_Destroy_Args> args;
    args->client = raw_;
    absl::Status status = Call(api(), api()->PJRT_Client_Destroy, args);
    if (!status.ok()) spdlog::warn("destroying the PJRT client: {}", Describe(status));
  }
  if (holds_slot_) client_exists = false;
}

std::string Client::identity() const {
  return fmt::format("{}; {}", platform_name_, platform_version_);
}

absl::StatusOr<PJRT_Memory*> Client::memory(int device, std::string_view kind) const {
  const std::vector<PJRT_Memory*>& memories = memories_[device];
  for (size_t i = 0; i < memories.size(); ++i) {
    if (memories[i] != nullptr && (kind.empty() || memory_kinds_[i] == kind)) return memories[i];
  }
  return InvalidArgument("device {} has no memory of kind \"{}\" (it has: {})", device, kind,
                         fmt::join(memory_kinds_, ", "));
}

absl::StatusOr<std::unique_ptr<Compiled>> Client::CompileOnly(std::string_view code,
                                                              std::string_view format,
                                                              const std::string& options) const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(code.data());
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  Padded<PJRT_Client_Compile_Args> args;
  args->client = raw_;
  args->program = &program;
  args->compile_options = options.data();
  args->compile_options_size = options.size();
  FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Client_Compile, args));
  std::shared_ptr<const Program> loaded(new Program(shared_from_this(), args->executable));
  PJRT_LoadedExecutable* const raw = loaded->raw();
  return Compiled::Of(api(), raw, std::move(loaded));
}

absl::StatusOr<std::unique_ptr<Program>> Client::Load(std::string_view serialized,
                                                      const std::string& options) const {
  Padded<PJRT_Executable_DeserializeAndLoad_Args> args;
  args->client = raw_;
  args->serialized_executable = serialized.data();
  args->serialized_executable_size = serialized.size();
  if (!options.empty()) {
    args->overridden_serialized_compile_options = options.data();
    args->overridden_serialized_compile_options_size = options.size();
  }
  FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Executable_DeserializeAndLoad, args));
  return std::unique_ptr<Program>(new Program(shared_from_this(), args->loaded_executable));
}

}  // namespace fairway::pjrt
