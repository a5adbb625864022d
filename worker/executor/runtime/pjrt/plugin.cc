// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>

#include <fmt/ranges.h>

#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/ffi.h"

namespace fairway::pjrt {
namespace {

// The kind of processor that an ELF file is for; 0: it is no such file, or cannot be read.
int ProcessorOf(const std::string& path) {
  Elf64_Ehdr header{};  // up to e_machine 32-bit files have the same
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), offsetof(Elf64_Ehdr, e_version));
  if (!file || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return header.e_machine;
}

absl::StatusOr<void*> Open(const std::string& path, int mode) {
  void* handle = dlopen(path.c_str(), mode);
  if (handle != nullptr) return handle;
  const char* why = dlerror();
  // The dynamic linker says that there is no such file.
  const int processor = ProcessorOf(path), own = ProcessorOf("/proc/self/exe");
  if (processor != 0 && own != 0 && processor != own) {
    return Error(absl::StatusCode::kNotFound,
                 "cannot load {}: it is for another processor (ELF machine {}; this worker needs "
                 "{}): give it the library for this one",
                 path, processor, own);
  }
  return Error(absl::StatusCode::kNotFound, "cannot load {}: {}", path,
               why != nullptr ? why : "unknown");
}

std::string VersionText(const PJRT_NamedValue& value) {
  if (value.type != PJRT_NamedValue_kInt64List) return {};
  std::string out;
  for (size_t i = 0; i < value.value_size; ++i) {
    if (i > 0) out += '.';
    out += std::to_string(value.int64_array_value[i]);
  }
  return out;
}

absl::Status ReadAttributes(Plugin& plugin) {
  Padded<PJRT_Plugin_Attributes_Args> args;
  FAIRWAY_RETURN_IF_ERROR(Call(plugin.api, plugin.api->PJRT_Plugin_Attributes, args));
  for (size_t i = 0; i < args->num_attributes; ++i) {
    const PJRT_NamedValue& value = args->attributes[i];
    const std::string_view name(value.name, value.name_size);
    if (name == "stablehlo_current_version") plugin.stablehlo_current = VersionText(value);
    if (name == "stablehlo_minimum_version") plugin.stablehlo_minimum = VersionText(value);
    if (name == "cuda_version" && value.type == PJRT_NamedValue_kInt64)
      plugin.cuda_version = std::to_string(value.int64_value);
  }
  for (const PJRT_Extension_Base* e = plugin.api->extension_start; e != nullptr; e = e->next) {
    plugin.extensions.push_back(static_cast<int>(e->type));
  }
  return absl::OkStatus();
}

absl::StatusOr<Plugin> LoadOnce(const PjrtConfig& config) {
  // XLA logs every client and every compilation; errors are enough unless somebody asks for more.
  setenv("TF_CPP_MIN_LOG_LEVEL", "2", /*replace=*/0);
  for (const std::string& library : config.preload) {
    FAIRWAY_RETURN_IF_ERROR(Open(library, RTLD_NOW | RTLD_GLOBAL).status());
  }
  FAIRWAY_ASSIGN_OR_RETURN(void* handle, Open(config.plugin_path, RTLD_NOW | RTLD_LOCAL));
  auto* get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(handle, "GetPjrtApi"));
  if (get_api == nullptr) {
    return Error(absl::StatusCode::kUnimplemented, "{} is no PJRT plugin: it has no GetPjrtApi",
                 config.plugin_path);
  }
  Plugin plugin;
  plugin.api = get_api();
  if (plugin.api == nullptr) {
    return Error(absl::StatusCode::kUnimplemented, "{}: GetPjrtApi gave nothing",
                 config.plugin_path);
  }
  plugin.api_major = plugin.api->pjrt_api_version.major_version;
  plugin.api_minor = plugin.api->pjrt_api_version.minor_version;
  // A shorter table lacks functions at its end; reading them would read beyond it.
  if (plugin.api_major != PJRT_API_MAJOR || plugin.api->struct_size < PJRT_Api_STRUCT_SIZE) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{} speaks PJRT API {}.{} ({} bytes); this build needs {}.{} or newer ({} bytes)",
                 config.plugin_path, plugin.api_major, plugin.api_minor, plugin.api->struct_size,
                 PJRT_API_MAJOR, PJRT_API_MINOR, static_cast<size_t>(PJRT_Api_STRUCT_SIZE));
  }
  Padded<PJRT_Plugin_Initialize_Args> initialize;
  FAIRWAY_RETURN_IF_ERROR(Annotate(Call(plugin.api, plugin.api->PJRT_Plugin_Initialize, initialize),
                                   config.plugin_path));
  FAIRWAY_RETURN_IF_ERROR(Annotate(ReadAttributes(plugin), config.plugin_path));
  std::error_code no_size;
  const auto size = std::filesystem::file_size(config.plugin_path, no_size);
  if (!no_size) plugin.file_size = static_cast<int64_t>(size);
  spdlog::info("PJRT plugin {}: API {}.{}, StableHLO {} to {}, extensions {}", config.plugin_path,
               plugin.api_major, plugin.api_minor, plugin.stablehlo_minimum,
               plugin.stablehlo_current, fmt::join(plugin.extensions, ","));
  plugin.custom_calls = RegisterCustomCalls(plugin, config);
  return plugin;
}

}  // namespace

absl::StatusOr<Plugin> LoadPlugin(const PjrtConfig& config) {
  FAIRWAY_RETURN_IF_ERROR(CheckPjrtConfig(config));
  static std::mutex mutex;
  static auto* loaded = new std::map<std::string, Plugin>();
  std::lock_guard lock(mutex);
  if (auto it = loaded->find(config.plugin_path); it != loaded->end()) return it->second;
  FAIRWAY_ASSIGN_OR_RETURN(Plugin plugin, LoadOnce(config));
  (*loaded)[config.plugin_path] = plugin;
  return plugin;
}

}  // namespace fairway::pjrt
