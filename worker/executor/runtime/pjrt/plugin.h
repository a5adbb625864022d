// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_PLUGIN_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_PLUGIN_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "worker/executor/runtime/pjrt/config.h"

struct PJRT_Api;

namespace fairway::pjrt {

// A loaded plugin. Plugins cannot be unloaded, so a copy of this value is valid until the process
// ends.
struct Plugin {
  const PJRT_Api* api = nullptr;
  int api_major = 0;
  int api_minor = 0;
  std::string stablehlo_current;  // "1.13.3"; empty if the plugin does not say
  std::string stablehlo_minimum;
  std::string cuda_version;  // "13000"; empty for plugins of other kinds
  // of the plugin, in bytes; 0: not known. Distinguishes builds of one version
  int64_t file_size = 0;
  std::vector<int> extensions;  // PJRT_Extension_Type, as found
  absl::Status custom_calls;    // of RegisterCustomCalls (ffi.h)
};

// Opens config.preload, then config.plugin_path (RTLD_LOCAL: its protobuf, absl and LLVM stay its
// own), checks the API version and initializes the plugin. A second call with the same path returns
// the same plugin. Blocks 20 ms or more. Logs versions and extensions once. INVALID_ARGUMENT: the
// configuration. NOT_FOUND: a library does not load. UNIMPLEMENTED: not a PJRT plugin, or an API
// version that this build cannot speak.
absl::StatusOr<Plugin> LoadPlugin(const PjrtConfig& config);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_PLUGIN_H_
