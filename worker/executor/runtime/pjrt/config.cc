// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/config.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>
#include <thread>

namespace fairway {
namespace {

// Indexes into PjrtOption.
enum OptionType : size_t { kString, kInt, kIntList, kFloat, kBool };
constexpr const char* kTypeNames[] = {"a string", "an integer", "a list of integers", "a float",
                                      "a bool"};

struct Option {
  OptionType type;
  int since = 0;  // minor version of the PJRT API of the first plugin that has the option
};
using OptionTable = std::map<std::string, Option, std::less<>>;

// The options that the plugins of jax-cuda13-pjrt read: 0.10.2 speaks PJRT API 0.112, 0.11.2 0.115,
// 0.12.0 0.116.
const OptionTable* OptionsOf(const std::string& kind) {
  static const OptionTable cpu = {};  // cpu_device_count belongs to Fairway
  static const OptionTable cuda = {
      {"platform_name", {kString}},
      {"allocator", {kString}},
      {"memory_fraction", {kFloat}},
      {"memory_fraction_policy", {kString, 116}},
      {"preallocate", {kBool}},
      {"collective_memory_size", {kInt}},
      {"visible_devices", {kIntList}},
      {"node_id", {kInt}},
      {"num_nodes", {kInt}},
      {"should_stage_host_to_device_transfers", {kBool}},
      {"abort_collectives_on_failure", {kBool}},
      {"abort_collectives_timeout", {kString, 116}},
      {"max_inflight_computations", {kInt, 115}},
      {"use_tfrt_gpu_client", {kBool}},
      {"enable_mock_nccl", {kBool}},
      {"mock_gpu_topology", {kString}},
      {"partition_index", {kInt}},
  };
  if (kind == "cpu") return &cpu;
  if (kind == "cuda") return &cuda;
  return nullptr;
}

// The options that a plugin of that API version has.
std::string Names(const OptionTable& table, int api_minor) {
  std::string out;
  for (const auto& [name, option] : table) {
    if (option.since > api_minor) continue;
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out.empty() ? "none" : out;
}

constexpr int kAnyVersion = 1 << 30;

absl::Status NoSuchOption(const std::string& kind, std::string_view name,
                          const OptionTable& table) {
  return InvalidArgument("a {} plugin has no option \"{}\" (it has: {})", kind, name,
                         Names(table, kAnyVersion));
}

absl::Status WrongType(std::string_view name, OptionType type, std::string_view text) {
  return InvalidArgument("plugin option {} is {}, got \"{}\"", name, kTypeNames[type], text);
}

absl::StatusOr<PjrtOption> ParseOption(std::string_view name, OptionType type,
                                       std::string_view text) {
  const auto integer = [&](std::string_view digits) -> absl::StatusOr<int64_t> {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size())
      return WrongType(name, type, text);
    return number;
  };
  switch (type) {
    case kString:
      return std::string(text);
    case kInt: {
      FAIRWAY_ASSIGN_OR_RETURN(const int64_t number, integer(text));
      return number;
    }
    case kIntList: {
      std::vector<int64_t> list;
      std::string_view left = text;
      while (true) {
        const size_t comma = left.find(',');
        FAIRWAY_ASSIGN_OR_RETURN(const int64_t number, integer(left.substr(0, comma)));
        list.push_back(number);
        if (comma == std::string_view::npos) return list;
        left.remove_prefix(comma + 1);
      }
    }
    case kFloat: {
      float number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || end != text.data() + text.size())
        return WrongType(name, type, text);
      return number;
    }
    case kBool:
      if (text != "true" && text != "false") return WrongType(name, type, text);
      return text == "true";
  }
  return WrongType(name, type, text);
}

constexpr std::string_view kWarnFlag = "--xla_cpu_collective_call_warn_stuck_timeout_seconds";
constexpr std::string_view kTerminateFlag = "--xla_cpu_collective_call_terminate_timeout_seconds";

// Flags that may be inherited. They help to look into XLA and do not change results.
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
    if (it == table->end()) return NoSuchOption(config.kind, name, *table);
    if (value.index() != it->second.type) {
      return InvalidArgument("option \"{}\" is {}, got {}", name, kTypeNames[it->second.type],
                             kTypeNames[value.index()]);
    }
  }
  return absl::OkStatus();
}

absl::Status SetOption(PjrtConfig& config, std::string_view setting) {
  const OptionTable* table = OptionsOf(config.kind);
  if (table == nullptr) return CheckPjrtConfig(config);
  const size_t equals = setting.find('=');
  const std::string_view name = setting.substr(0, equals);
  const auto it = table->find(name);
  if (it == table->end()) return NoSuchOption(config.kind, name, *table);
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument("{} (a {} plugin has: {})", why, config.kind,
                           Names(*table, kAnyVersion));
  };
  if (equals == std::string_view::npos) {
    return refuse(fmt::format("plugin option {} has no value; expected {}=VALUE, {}", name, name,
                              kTypeNames[it->second.type]));
  }
  absl::StatusOr<PjrtOption> value = ParseOption(name, it->second.type, setting.substr(equals + 1));
  if (!value.ok()) return refuse(Text(value.status()));
  if (!config.create_options.emplace(name, *std::move(value)).second)
    return InvalidArgument("plugin option {} is given twice", name);
  return absl::OkStatus();
}

absl::Status CheckOptionsKnown(const PjrtConfig& config, int api_minor) {
  const OptionTable* table = OptionsOf(config.kind);
  for (const auto& [name, value] : config.create_options) {
    const auto it = table->find(name);
    if (it == table->end() || it->second.since <= api_minor) continue;
    return Error(absl::StatusCode::kOutOfRange,
                 "the plugin is too old for option {}: it speaks PJRT API 0.{}, and the option "
                 "needs 0.{} (the plugin has: {})",
                 name, api_minor, it->second.since, Names(*table, api_minor));
  }
  return absl::OkStatus();
}

std::string XlaFlags(const PjrtConfig& config, std::string_view inherited) {
  std::string out = fmt::format("{}={} {}={}", kWarnFlag, config.collective_warn_timeout.count(),
                                kTerminateFlag, config.collective_terminate_timeout.count());
  // JAX asks for this in every program: without it max and min drop NaN.
  if (config.kind == "cpu") out += " --xla_cpu_enable_fast_min_max=false";
  // The plugin's pool for parts of one operation has a thread for each device. With as many devices
  // as cores these threads would only take the cores from each other, spinning.
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
