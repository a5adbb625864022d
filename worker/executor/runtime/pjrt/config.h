// SPDX-License-Identifier: Apache-2.0
// How a process opens a PJRT plugin. A plain value; the checks are here because plugins differ in
// what they check: the CPU plugin ignores unknown options without a word, the CUDA plugin refuses
// them.
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

struct PjrtConfig {
  std::string plugin_path;   // the .so; an absolute path, or a name for the dynamic loader
  std::string kind = "cpu";  // "cpu" or "cuda": decides which options exist
  int num_devices = 1;       // exposed to sessions
  // CPU: devices of the client beyond num_devices, so that a gang finds a thread for each member
  // beside long single-device programs (XLA sizes its pool by the devices). -1: as many again.
  int spare_devices = -1;
  // Passed to PJRT_Client_Create. cpu_device_count belongs to Fairway and is refused here.
  std::map<std::string, PjrtOption> create_options;
  // GPUs: clients may bring kernels (PTX, Triton, Mosaic) and name XLA's own calls. Whoever brings
  // a kernel can read and write what other clients have on the GPU.
  bool allow_raw_kernels = false;
  // Libraries opened (RTLD_GLOBAL) before the plugin, in order; CUDA plugins want libnccl and
  // friends.
  std::vector<std::string> preload;
  // XLA aborts the process when a gang member waits longer. Hours: the supervisor's watchdog
  // decides.
  std::chrono::seconds collective_warn_timeout{60};
  std::chrono::seconds collective_terminate_timeout{24 * 3600};
};

// INVALID_ARGUMENT: empty path, unknown kind, num_devices < 1, or an option that this kind of
// plugin does not have or whose value has another type; the text lists what exists.
absl::Status CheckPjrtConfig(const PjrtConfig& config);

// Adds an option written as NAME=VALUE; lists are written with commas. INVALID_ARGUMENT: this kind
// of plugin has none of that name (the text lists what exists), or another type of value.
absl::Status SetOption(PjrtConfig& config, std::string_view setting);

// OUT_OF_RANGE: an option is newer than the plugin, whose PJRT API is 0.`api_minor`; the text lists
// those that it has.
absl::Status CheckOptionsKnown(const PjrtConfig& config, int api_minor);

// Value for XLA_FLAGS in the environment of a process that loads the plugin. XLA reads it once, and
// aborts the process on a flag that it does not know; so of `inherited` only flags known here
// survive, and ours win.
std::string XlaFlags(const PjrtConfig& config, std::string_view inherited = {});

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CONFIG_H_
