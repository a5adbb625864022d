// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/config.h"

#include <algorithm>
#include <sstream>
#include <thread>

namespace fairway {
namespace {

// Indexes into PjrtOption.
enum OptionType : size_t { kString, kInt, kIntList, kFloat, kBool };
constexpr const char* kTypeNames[] = {"string", "integer", "list of integers", "float", "bool"};

using OptionTable = std::map<std::string, OptionType>;

const OptionTable* OptionsOf(const std::string& kind) {
  static const OptionTable cpu = {};  // cpu_device_count is ours
  static const OptionTable cuda = {
      {"platform_name", kString},
      {"allocator", kString},
      {"memory_fraction", kFloat},
      {"preallocate", kBool},
      {"collective_memory_size", kInt},
      {"visible_devices", kIntList},
      {"node_id", kInt},
      {"num_nodes", kInt},
      {"should_stage_host_to_device_transfers", kBool},
      {"abort_collectives_on_failure", kBool},
      {"use_tfrt_gpu_client", kBool},
      {"enable_mock_nccl", kBool},
      {"mock_gpu_topology", kString},
      {"partition_index", kInt},
  };
  if (kind == "cpu") return &cpu;
  if (kind == "cuda") return &cuda;
  return nullptr;
}

std::string Names(const OptionTable& table) {
  std::string out;
  for (const auto& [name, type] : table) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out.empty() ? "none" : out;
}

constexpr std::string_view kWarnFlag = "--xla_cpu_collective_call_warn_stuck_timeout_seconds";
constexpr std::string_view kTerminateFlag = "--xla_cpu_collective_call_terminate_timeout_seconds";

// Flags that may be inherited: for looking into XLA, without effect on results.
constexpr std::string_view kInheritable[] = {"--xla_dump_to", "--xla_dump_hlo_as_text",
                                             "--xla_dump_hlo_pass_re"};

}  // namespace

absl::Status CheckPjrtConfig(const PjrtConfig& config) {
  if (config.plugin_path.empty()) return InvalidArgument("no PJRT plugin configured");
  if (config.num_devices < 1) {
    return InvalidArgument("number of devices: {}, must be at least 1", config.num_devices);
  }
  const OptionTable* table = OptionsOf(config.kind);
  if (table == nullptr) {
    return InvalidArgument("unknown kind of PJRT plugin: \"{}\" (known: cpu, cuda)", config.kind);
  }
  for (const auto& [name, value] : config.create_options) {
    auto it = table->find(name);
    if (it == table->end()) {
      return InvalidArgument("a {} plugin has no option \"{}\" (it has: {})", config.kind, name,
                             Names(*table));
    }
    if (value.index() != it->second) {
      return InvalidArgument("option \"{}\" is a {}, got a {}", name, kTypeNames[it->second],
                             kTypeNames[value.index()]);
    }
  }
  return absl::OkStatus();
}

std::string XlaFlags(const PjrtConfig& config, std::string_view inherited) {
  std::string out = fmt::format("{}={} {}={}", kWarnFlag, config.collective_warn_timeout.count(),
                                kTerminateFlag, config.collective_terminate_timeout.count());
  // As JAX asks for it of every program: without it max and min drop NaN.
  if (config.kind == "cpu") out += " --xla_cpu_enable_fast_min_max=false";
  // The plugin's pool for parts of one operation has a thread for each of its devices. With as many
  // devices as cores they would only take the cores from each other, spinning.
  if (config.kind == "cpu" &&
      config.num_devices >= static_cast<int>(std::thread::hardware_concurrency()))
    out += " --xla_cpu_multi_thread_eigen=false";
  std::istringstream words{std::string(inherited)};
  for (std::string word; words >> word;) {
    const std::string name = word.substr(0, word.find('='));
    if (std::find(std::begin(kInheritable), std::end(kInheritable), name) !=
        std::end(kInheritable)) {
      out += " " + word;
    }
  }
  return out;
}

}  // namespace fairway
