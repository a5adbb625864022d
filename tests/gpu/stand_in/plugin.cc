// SPDX-License-Identifier: Apache-2.0
// A PJRT plugin for tests that claims to be CUDA's, and computes on the CPU: it loads the CPU
// plugin and changes what the worker's paths for GPUs depend on. Device memory has addresses at
// which nothing is, so that a read from the host ends the process; bytes of the host are always
// copied; memory has a limit; programs are compiled from a description of the device.
//
// TMPDIR/stand-in-clients: if this file exists, it gets a line for each client that is created,
// "client" and its options as NAME=VALUE; also by compile processes, which get none of the
// variables below.
//
// FAIRWAY_STAND_IN_GPUS: the number of GPUs (8).
// FAIRWAY_STAND_IN_KIND: what their kind is ("NVIDIA H200"). That of a topology is in its
// configuration.
// FAIRWAY_STAND_IN_HANG: creating a client waits while this file exists.
// FAIRWAY_STAND_IN_LOG: a file that gets "execute NAME" for each call of Execute, "end NAME" when
// its first device has ended, and "to host" for each requested copy to the host.
// FAIRWAY_STAND_IN_FAULT: while this file exists, the next call for a device is a fault: that call
// and all later ones fail, of whatever kind.
//
// A program fails if its name contains one of these:
//   no_memory      Execute returns RESOURCE_EXHAUSTED
//   fails_full     Execute returns INTERNAL, and there is no memory until the next Execute
//   one_device     Execute returns INTERNAL, as if it had begun on the other devices
//   lose_device    this and every later call fail, as after a fault on a GPU
//   lose_later     Execute succeeds, its end is such a fault
//   fails_on_one   Execute succeeds; device 1 ends with INTERNAL, and the others' end is never
//                  told, as when they wait for device 1 in a collective
//   held           its end is not told while the file FAIRWAY_STAND_IN_HOLD exists
#include <dlfcn.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "pjrt_c_api.h"
#include "tests/gpu/stand_in/environment.h"

namespace {

using fairway::stand_in::ClientKind;
using fairway::stand_in::Gpus;
using fairway::stand_in::Note;
using fairway::stand_in::NoteClient;
using fairway::stand_in::There;
using fairway::stand_in::WaitWhileThere;

constexpr std::string_view kPlatform = "cuda";
constexpr std::string_view kTargetConfig = "target_config";
constexpr std::string_view kHostMachine = "host_target_machine_options";
constexpr int64_t kDeviceMemory = int64_t{1} << 30;
// No valid address of x86-64 has these bits; a program that uses one ends by SIGSEGV.
constexpr uintptr_t kPoison = uintptr_t{0x5AFE} << 48;

PJRT_Api real;   // the CPU plugin's
PJRT_Api table;  // this one's

// An error of this plugin; errors of the CPU plugin are passed on.
struct OwnError {
  std::string text;
  PJRT_Error_Code code;
};

struct Topology {
  std::string config;
  std::string kind;  // of its devices
  std::string host_machine = "cpu: \"stand-in\"";
  std::vector<PJRT_DeviceDescription*> devices;
  std::vector<int> ids;  // ids of devices; the addresses of these stand for the devices
  std::vector<PJRT_NamedValue> attributes;
  PJRT_Client* compiler = nullptr;  // made at the first compilation
};

// An event that this plugin completes. Lives as long as the process.
struct OwnEvent {
  std::mutex mutex;
  std::condition_variable told;
  bool done = false;
  bool failed = false;
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiters;
};

std::mutex mutex;
std::set<const OwnError*> errors;                  // guarded by mutex
std::map<const void*, const Topology*> described;  // by device; guarded by mutex
std::map<PJRT_Client*, Topology*> topologies;      // by client; guarded by mutex
std::map<PJRT_Client*, size_t> exposed;  // devices that each client shows; guarded by mutex
std::set<const void*> own_events;        // guarded by mutex
std::atomic<bool> lost{false};           // a fault has ended the context
std::atomic<bool> full{false};           // there is no memory

template <typename Args>
struct Padded {
  Args args;
  char padding[256];
  Padded() {
    std::memset(static_cast<void*>(this), 0, sizeof(*this));
    args.struct_size = sizeof(*this);
  }
  Args* operator->() { return &args; }
};

PJRT_Error* Fail(std::string text, PJRT_Error_Code code = PJRT_Error_Code_INVALID_ARGUMENT) {
  auto* error = new OwnError{std::move(text), code};
  const std::lock_guard lock(mutex);
  errors.insert(error);
  return reinterpret_cast<PJRT_Error*>(error);
}

const OwnError* Own(const PJRT_Error* error) {
  const auto* own = reinterpret_cast<const OwnError*>(error);
  const std::lock_guard lock(mutex);
  return errors.contains(own) ? own : nullptr;
}

void ErrorDestroy(PJRT_Error_Destroy_Args* args) {
  const OwnError* own = Own(args->error);
  if (own == nullptr) return real.PJRT_Error_Destroy(args);
  {
    const std::lock_guard lock(mutex);
    errors.erase(own);
  }
  delete own;
}

void ErrorMessage(PJRT_Error_Message_Args* args) {
  const OwnError* own = Own(args->error);
  if (own == nullptr) return real.PJRT_Error_Message(args);
  args->message = own->text.data();
  args->message_size = own->text.size();
}

PJRT_Error* ErrorGetCode(PJRT_Error_GetCode_Args* args) {
  const OwnError* own = Own(args->error);
  if (own == nullptr) return real.PJRT_Error_GetCode(args);
  args->code = own->code;
  return nullptr;
}

// Returns what the text of a configuration says that a device's kind is.
std::string KindIn(const std::string& config) {
  constexpr std::string_view kField = "device_description_str: \"";
  const size_t at = config.find(kField);
  if (at == std::string::npos) return "unknown";
  const size_t begin = at + kField.size();
  return config.substr(begin, config.find('"', begin) - begin);
}

Topology* MakeTopology(int devices, std::string config) {
  auto* topology = new Topology();
  topology->config = std::move(config);
  topology->kind = KindIn(topology->config);
  topology->ids.resize(devices);
  for (int d = 0; d < devices; ++d) {
    topology->ids[d] = d;
    topology->devices.push_back(reinterpret_cast<PJRT_DeviceDescription*>(&topology->ids[d]));
    const std::lock_guard lock(mutex);
    described[&topology->ids[d]] = topology;
  }
  for (const auto& [name, value] :
       {std::pair<std::string_view, std::string_view>(kTargetConfig, topology->config),
        std::pair<std::string_view, std::string_view>(kHostMachine, topology->host_machine)}) {
    PJRT_NamedValue attribute{};
    attribute.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    attribute.name = name.data();
    attribute.name_size = name.size();
    attribute.type = PJRT_NamedValue_kString;
    attribute.string_value = value.data();
    attribute.value_size = value.size();
    topology->attributes.push_back(attribute);
  }
  return topology;
}

// Makes a client of the CPU plugin with twice as many devices, so that gangs find threads.
PJRT_Error* CreateCpuClient(int devices, PJRT_Client** out) {
  PJRT_NamedValue count{};
  count.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  count.name = "cpu_device_count";
  count.name_size = std::strlen(count.name);
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = 2 * devices;
  count.value_size = 1;
  Padded<PJRT_Client_Create_Args> args;
  args->create_options = &count;
  args->num_options = 1;
  if (PJRT_Error* error = real.PJRT_Client_Create(&args.args)) return error;
  *out = args->client;
  return nullptr;
}

bool IsLost() {
  if (There("FAIRWAY_STAND_IN_FAULT")) lost = true;
  return lost;
}

PJRT_Error* Lost() {
  return Fail("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
              PJRT_Error_Code_INTERNAL);
}

PJRT_Error* NoMemory() {
  return Fail("Out of memory while trying to allocate 68719476736 bytes.",
              PJRT_Error_Code_RESOURCE_EXHAUSTED);
}

OwnEvent* Own(PJRT_Event* event) {
  const std::lock_guard lock(mutex);
  return own_events.contains(event) ? reinterpret_cast<OwnEvent*>(event) : nullptr;
}

void Tell(OwnEvent& event, bool failed) {
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiters;
  {
    const std::lock_guard lock(event.mutex);
    event.done = true;
    event.failed = failed;
    waiters.swap(event.waiters);
  }
  event.told.notify_all();
  for (const auto& [callback, arg] : waiters) callback(failed ? Lost() : nullptr, arg);
}

PJRT_Error* EventDestroy(PJRT_Event_Destroy_Args* args) {
  return Own(args->event) != nullptr ? nullptr : real.PJRT_Event_Destroy(args);
}

PJRT_Error* EventIsReady(PJRT_Event_IsReady_Args* args) {
  OwnEvent* own = Own(args->event);
  if (own == nullptr) return real.PJRT_Event_IsReady(args);
  const std::lock_guard lock(own->mutex);
  args->is_ready = own->done;
  return nullptr;
}

PJRT_Error* EventError(PJRT_Event_Error_Args* args) {
  OwnEvent* own = Own(args->event);
  if (own == nullptr) return real.PJRT_Event_Error(args);
  const std::lock_guard lock(own->mutex);
  return own->failed ? Lost() : nullptr;
}

PJRT_Error* EventAwait(PJRT_Event_Await_Args* args) {
  OwnEvent* own = Own(args->event);
  if (own == nullptr) return real.PJRT_Event_Await(args);
  std::unique_lock lock(own->mutex);
  own->told.wait(lock, [own] { return own->done; });
  return own->failed ? Lost() : nullptr;
}

PJRT_Error* EventOnReady(PJRT_Event_OnReady_Args* args) {
  OwnEvent* own = Own(args->event);
  if (own == nullptr) return real.PJRT_Event_OnReady(args);
  std::unique_lock lock(own->mutex);
  if (!own->done) {
    own->waiters.emplace_back(args->callback, args->user_arg);
    return nullptr;
  }
  lock.unlock();
  args->callback(own->failed ? Lost() : nullptr, args->user_arg);
  return nullptr;
}

PJRT_Error* ClientCreate(PJRT_Client_Create_Args* args) {
  NoteClient(*args);
  WaitWhileThere("FAIRWAY_STAND_IN_HANG");
  int gpus = Gpus();
  if (gpus == 0) return Fail("No visible GPU devices.");
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    if (std::string_view(option.name, option.name_size) != "visible_devices") continue;
    gpus = static_cast<int>(option.value_size);
    for (size_t d = 0; d < option.value_size; ++d) {
      if (option.int64_array_value[d] >= Gpus()) return Fail("no such device in visible_devices");
    }
  }
  if (PJRT_Error* error = CreateCpuClient(gpus, &args->client)) return error;
  Topology* topology = MakeTopology(gpus,
                                    "gpu_device_info { device_memory_size: 1073741824 }\n"
                                    "device_description_str: \"" +
                                        std::string(ClientKind()) + "\"\n");
  const std::lock_guard lock(mutex);
  exposed[args->client] = gpus;
  topologies[args->client] = topology;
  return nullptr;
}

PJRT_Error* ClientPlatformName(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = kPlatform.data();
  args->platform_name_size = kPlatform.size();
  return nullptr;
}

PJRT_Error* ClientAddressableDevices(PJRT_Client_AddressableDevices_Args* args) {
  if (PJRT_Error* error = real.PJRT_Client_AddressableDevices(args)) return error;
  const std::lock_guard lock(mutex);
  args->num_addressable_devices = exposed[args->client];
  return nullptr;
}

PJRT_Error* ClientTopology(PJRT_Client_TopologyDescription_Args* args) {
  const std::lock_guard lock(mutex);
  args->topology = reinterpret_cast<PJRT_TopologyDescription*>(topologies[args->client]);
  return nullptr;
}

// Returns the topology of a described device; null: it is a device of a client.
const Topology* TopologyOf(const PJRT_DeviceDescription* device) {
  const std::lock_guard lock(mutex);
  const auto found = described.find(device);
  return found == described.end() ? nullptr : found->second;
}

PJRT_Error* DescriptionId(PJRT_DeviceDescription_Id_Args* args) {
  if (TopologyOf(args->device_description) == nullptr) return real.PJRT_DeviceDescription_Id(args);
  args->id = *reinterpret_cast<const int*>(args->device_description);
  return nullptr;
}

PJRT_Error* DescriptionKind(PJRT_DeviceDescription_Kind_Args* args) {
  const Topology* topology = TopologyOf(args->device_description);
  const std::string_view kind = topology != nullptr ? topology->kind : ClientKind();
  args->device_kind = kind.data();
  args->device_kind_size = kind.size();
  return nullptr;
}

PJRT_Error* MemoryStats(PJRT_Device_MemoryStats_Args* args) {
  args->bytes_in_use = 0;
  args->bytes_limit = kDeviceMemory;
  args->bytes_limit_is_set = true;
  return nullptr;
}

PJRT_Error* TopologyCreate(PJRT_TopologyDescription_Create_Args* args) {
  std::string shape, config;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    const std::string value(option.string_value, option.value_size);
    if (name == "topology") shape = value;
    if (name == kTargetConfig) config = value;
  }
  int partitions = 0, hosts = 0, devices = 0;
  if (std::sscanf(shape.c_str(), "%dx%dx%d", &partitions, &hosts, &devices) != 3)
    return Fail("topology: expected partitions x hosts x devices");
  if (config.find("gpu_device_info") == std::string::npos)
    return Fail("Failed to parse GpuTargetConfigProto");
  args->topology = reinterpret_cast<PJRT_TopologyDescription*>(
      MakeTopology(partitions * hosts * devices, config));
  return nullptr;
}

// Not destroyed, because the code compiled for it may outlive it.
PJRT_Error* TopologyDestroy(PJRT_TopologyDescription_Destroy_Args*) { return nullptr; }

PJRT_Error* TopologyPlatformName(PJRT_TopologyDescription_PlatformName_Args* args) {
  args->platform_name = kPlatform.data();
  args->platform_name_size = kPlatform.size();
  return nullptr;
}

PJRT_Error* TopologyDevices(PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  const auto* topology = reinterpret_cast<const Topology*>(args->topology);
  args->descriptions = topology->devices.data();
  args->num_descriptions = topology->devices.size();
  return nullptr;
}

PJRT_Error* TopologyAttributes(PJRT_TopologyDescription_Attributes_Args* args) {
  const auto* topology = reinterpret_cast<const Topology*>(args->topology);
  args->attributes = topology->attributes.data();
  args->num_attributes = topology->attributes.size();
  return nullptr;
}

// Compiles with a client of the CPU plugin, which the caller does not see.
PJRT_Error* Compile(PJRT_Compile_Args* args) {
  auto* topology =
      reinterpret_cast<Topology*>(const_cast<PJRT_TopologyDescription*>(args->topology));
  if (topology->compiler == nullptr) {
    const int devices = static_cast<int>(topology->devices.size());
    if (PJRT_Error* error = CreateCpuClient(devices, &topology->compiler)) return error;
  }
  Padded<PJRT_Client_Compile_Args> compile;
  compile->client = topology->compiler;
  compile->program = args->program;
  compile->compile_options = args->compile_options;
  compile->compile_options_size = args->compile_options_size;
  if (PJRT_Error* error = real.PJRT_Client_Compile(&compile.args)) return error;
  Padded<PJRT_LoadedExecutable_GetExecutable_Args> get;
  get->loaded_executable = compile->executable;
  if (PJRT_Error* error = real.PJRT_LoadedExecutable_GetExecutable(&get.args)) return error;
  args->executable = get->executable;
  return nullptr;
}

std::string NameOf(PJRT_LoadedExecutable* program) {
  Padded<PJRT_LoadedExecutable_GetExecutable_Args> get;
  get->loaded_executable = program;
  if (real.PJRT_LoadedExecutable_GetExecutable(&get.args) != nullptr) return {};
  Padded<PJRT_Executable_Name_Args> name;
  name->executable = get->executable;
  real.PJRT_Executable_Name(&name.args);
  std::string text(name->executable_name, name->executable_name_size);
  Padded<PJRT_Executable_Destroy_Args> destroy;
  destroy->executable = get->executable;
  real.PJRT_Executable_Destroy(&destroy.args);
  return text;
}

void Destroy(PJRT_Error* error) {
  if (error == nullptr) return;
  Padded<PJRT_Error_Destroy_Args> destroy;
  destroy->error = error;
  ErrorDestroy(&destroy.args);
}

PJRT_Event* NewEvent() {
  auto* own = new OwnEvent();
  const std::lock_guard lock(mutex);
  own_events.insert(own);
  return reinterpret_cast<PJRT_Event*>(own);
}

// Makes an event that comes after `event` (which it takes over), once nothing holds it back; with a
// fault if `fault` is set.
PJRT_Event* Later(PJRT_Event* event, bool fault) {
  OwnEvent* own = Own(NewEvent());
  std::thread([event, own, fault] {
    Padded<PJRT_Event_Await_Args> wait;
    wait->event = event;
    Destroy(real.PJRT_Event_Await(&wait.args));
    Padded<PJRT_Event_Destroy_Args> destroy;
    destroy->event = event;
    Destroy(real.PJRT_Event_Destroy(&destroy.args));
    WaitWhileThere("FAIRWAY_STAND_IN_HOLD");
    if (fault) lost = true;
    Tell(*own, fault);
  }).detach();
  return reinterpret_cast<PJRT_Event*>(own);
}

PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  const std::string name = NameOf(args->executable);
  const auto is = [&](std::string_view fault) { return name.find(fault) != std::string::npos; };
  if (is("lose_device")) lost = true;
  if (IsLost()) return Lost();
  full = is("fails_full");
  if (full) return Fail("a library is missing", PJRT_Error_Code_INTERNAL);
  if (is("no_memory")) return NoMemory();
  if (is("one_device")) return Fail("device 1: cuLaunchKernel failed", PJRT_Error_Code_INTERNAL);
  Note("FAIRWAY_STAND_IN_LOG", "execute " + name);
  if (PJRT_Error* error = real.PJRT_LoadedExecutable_Execute(args)) return error;
  if (args->device_complete_events == nullptr) return nullptr;
  for (size_t d = 0; is("fails_on_one") && d < args->num_devices; ++d) {
    args->device_complete_events[d] = NewEvent();
    if (d == 1) Tell(*Own(args->device_complete_events[d]), /*failed=*/true);
  }
  if (is("held") || is("lose_later")) {
    for (size_t d = 0; d < args->num_devices; ++d)
      args->device_complete_events[d] = Later(args->device_complete_events[d], is("lose_later"));
  }
  Padded<PJRT_Event_OnReady_Args> ready;
  ready->event = args->device_complete_events[0];
  ready->user_arg = new std::string(name);
  ready->callback = [](PJRT_Error* error, void* arg) {
    const auto* ended = static_cast<std::string*>(arg);
    Note("FAIRWAY_STAND_IN_LOG", "end " + *ended);
    delete ended;
    Destroy(error);
  };
  return EventOnReady(&ready.args);
}

PJRT_Error* ToHost(PJRT_Buffer_ToHostBuffer_Args* args) {
  if (IsLost()) return Lost();
  Note("FAIRWAY_STAND_IN_LOG", "to host");
  return real.PJRT_Buffer_ToHostBuffer(args);
}

PJRT_Error* Load(PJRT_Executable_DeserializeAndLoad_Args* args) {
  return IsLost() ? Lost() : real.PJRT_Executable_DeserializeAndLoad(args);
}

PJRT_Error* Incoming(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args) {
  if (IsLost()) return Lost();
  return full ? NoMemory() : real.PJRT_Client_CreateBuffersForAsyncHostToDevice(args);
}

PJRT_Error* TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args) {
  return IsLost() ? Lost() : real.PJRT_AsyncHostToDeviceTransferManager_TransferData(args);
}

PJRT_Error* ToMemory(PJRT_Buffer_CopyToMemory_Args* args) {
  return IsLost() ? Lost() : real.PJRT_Buffer_CopyToMemory(args);
}

PJRT_Error* FromHost(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (IsLost()) return Lost();
  if (full) return NoMemory();
  args->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  return real.PJRT_Client_BufferFromHostBuffer(args);
}

PJRT_Error* UnsafePointer(PJRT_Buffer_UnsafePointer_Args* args) {
  if (PJRT_Error* error = real.PJRT_Buffer_UnsafePointer(args)) return error;
  args->buffer_pointer ^= kPoison;
  return nullptr;
}

PJRT_Error* DevicePointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args* args) {
  if (PJRT_Error* error = real.PJRT_Buffer_OpaqueDeviceMemoryDataPointer(args)) return error;
  args->device_memory_ptr =
      reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(args->device_memory_ptr) ^ kPoison);
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const bool loaded = [] {
    void* handle = dlopen(FAIRWAY_CPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    auto* get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(handle, "GetPjrtApi"));
    if (get == nullptr) return false;
    real = *get();
    table = real;
    table.PJRT_Error_Destroy = ErrorDestroy;
    table.PJRT_Error_Message = ErrorMessage;
    table.PJRT_Error_GetCode = ErrorGetCode;
    table.PJRT_Event_Destroy = EventDestroy;
    table.PJRT_Event_IsReady = EventIsReady;
    table.PJRT_Event_Error = EventError;
    table.PJRT_Event_Await = EventAwait;
    table.PJRT_Event_OnReady = EventOnReady;
    table.PJRT_Client_Create = ClientCreate;
    table.PJRT_Client_PlatformName = ClientPlatformName;
    table.PJRT_Client_AddressableDevices = ClientAddressableDevices;
    table.PJRT_Client_TopologyDescription = ClientTopology;
    table.PJRT_DeviceDescription_Id = DescriptionId;
    table.PJRT_DeviceDescription_Kind = DescriptionKind;
    table.PJRT_Device_MemoryStats = MemoryStats;
    table.PJRT_TopologyDescription_Create = TopologyCreate;
    table.PJRT_TopologyDescription_Destroy = TopologyDestroy;
    table.PJRT_TopologyDescription_PlatformName = TopologyPlatformName;
    table.PJRT_TopologyDescription_GetDeviceDescriptions = TopologyDevices;
    table.PJRT_TopologyDescription_Attributes = TopologyAttributes;
    table.PJRT_Compile = Compile;
    table.PJRT_Client_BufferFromHostBuffer = FromHost;
    table.PJRT_LoadedExecutable_Execute = Execute;
    table.PJRT_Buffer_ToHostBuffer = ToHost;
    table.PJRT_Executable_DeserializeAndLoad = Load;
    table.PJRT_Client_CreateBuffersForAsyncHostToDevice = Incoming;
    table.PJRT_AsyncHostToDeviceTransferManager_TransferData = TransferData;
    table.PJRT_Buffer_CopyToMemory = ToMemory;
    table.PJRT_Buffer_UnsafePointer = UnsafePointer;
    table.PJRT_Buffer_OpaqueDeviceMemoryDataPointer = DevicePointer;
    return true;
  }();
  return loaded ? &table : nullptr;
}
