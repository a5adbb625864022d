// SPDX-License-Identifier: Apache-2.0
// The configuration for opening a PJRT plugin, a plain value. It is checked here because plugins
// check differently: the CPU plugin silently ignores unknown options, the CUDA plugin refuses them.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CONFIG_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CONFIG_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace fairway {

using PjrtOption = std::variant<std::string, int64_t, std::vector<int64_t>, float, bool>;

// Which plugin to open, and how.
struct PjrtConfig {
  std::string plugin_path;   // the .so: an absolute path, or a name for the dynamic loader
  std::string kind = "cpu";  // "cpu" or "cuda": decides which options exist
  int num_devices = 1;       // exposed to sessions
  // CPU: devices of the client beyond num_devices. They make XLA's pool larger (it has a thread per
  // device), so that a gang finds a thread for each member beside long single-device programs. -1:
  // as many again as num_devices.
  int spare_devices = -1;
  // Passed to PJRT_Client_Create. cpu_device_count belongs to Fairway and is refused.
  std::map<std::string, PjrtOption> create_options;
  // GPUs: clients may bring kernels (PTX, Triton, Mosaic) and name XLA's own calls. A kernel can
  // read and write all memory on the GPU, that of other clients too.
  bool allow_raw_kernels = false;
  // GPUs: compile processes create a client of their own, so that XLA tunes programs on the GPU.
  bool tune_on_gpu = false;
  // Libraries that are opened (RTLD_GLOBAL) before the plugin, in order. CUDA plugins need libnccl
  // and others.
  std::vector<std::string> preload;
  // XLA aborts the process if a gang member waits longer. Hours, because the supervisor's watchdog
  // decides.
  std::chrono::seconds collective_warn_timeout{60};
  std::chrono::seconds collective_terminate_timeout{24 * 3600};
};

// INVALID_ARGUMENT: empty path, unknown kind, num_devices < 1, an option that this kind of plugin
// does not have, or a value of another type; the text lists the options that exist.
absl::Status CheckPjrtConfig(const PjrtConfig& config);

// Adds an option written as NAME=VALUE; lists have commas. INVALID_ARGUMENT: this kind of plugin
// has no option of that name, or the value is missing or has another type; the text lists the
// options that exist.
absl::Status SetOption(PjrtConfig& config, std::string_view setting);

// OUT_OF_RANGE: an option is newer than the plugin, whose PJRT API is 0.`api_minor`; the text lists
// the options that it has.
absl::Status CheckOptionsKnown(const PjrtConfig& config, int api_minor);

// Returns the value of XLA_FLAGS for a process that loads the plugin. XLA reads it once, and aborts
// the process on an unknown flag. So only known flags of `inherited` are kept, and ours override
// them.
std::string XlaFlags(const PjrtConfig& config, std::string_view inherited = {});

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CONFIG_H_
