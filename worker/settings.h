// SPDX-License-Identifier: Apache-2.0
// The settings of fairway-worker: how they are read, and what is wrong with them.
#ifndef FAIRWAY_WORKER_SETTINGS_H_
#define FAIRWAY_WORKER_SETTINGS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "identity/tls_flags.h"
#include "worker/executor/runtime/pjrt/config.h"

namespace fairway {

struct WorkerFlags {
  std::string role = "supervisor";
  std::string controller = "127.0.0.1:29002";
  std::string name;
  std::string island = "island0";
  int island_workers = 1;
  int devices = 1;
  int64_t device_memory = 0;
  std::string runtime = "pjrt";
  std::string plugin;
  std::string plugin_kind = "cpu";
  std::vector<std::string> plugin_options;
  std::vector<std::string> preload;
  std::string gpus;
  double gpu_fraction = 0;
  std::string target_config;
  std::string write_target_config;
  bool allow_raw_kernels = false;
  bool tune_on_gpu = false;
  std::string data_bind = "127.0.0.1:0";
  std::string advertise_host;
  std::string relay_bind;
  std::string http_bind;
  std::string log_level = "info";
  std::chrono::milliseconds start_limit{120000};
  std::chrono::milliseconds drain_limit{10000};
  int max_mappings = 0;
  std::chrono::milliseconds compile_limit{600000};
  std::chrono::milliseconds compile_cpu_limit{600000};
  int64_t compile_memory_limit = DefaultCompileMemory();
  int compile_processes = 4;
  int compile_warm = 2;
  int compile_programs = 16;
  TlsFiles tls;
  int life_fd = -1;
};

// The settings as they are, and how they are read again.
struct WorkerSettings {
  WorkerFlags flags;
  std::vector<std::string> args;              // the words after the program's name
  std::map<std::string, std::string> values;  // Config::Values
};

enum class Reading : uint8_t {
  kStart,   // what they name must be there
  kReload,  // by a daemon that runs, and has read the files that they name
};
// Reads the settings that `settings->args`, the environment and the settings file have.
Config::Outcome Read(WorkerSettings* settings, Reading reading = Reading::kStart);

// Returns whether compile processes are told their target instead of asking a client of their own.
bool CompilesForTarget(const WorkerFlags& flags);

// The plugin's configuration. INVALID_ARGUMENT: it has no plugin that can be used, or options
// that do not go together.
absl::StatusOr<PjrtConfig> PjrtConfigOf(const WorkerFlags& flags);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SETTINGS_H_
