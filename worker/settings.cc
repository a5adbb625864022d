// SPDX-License-Identifier: Apache-2.0
#include "worker/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/host.h"
#include "base/log.h"
#include "identity/plain_text.h"
#include "wire/limits.h"
#include "worker/gpus.h"

namespace fairway {
namespace {

void AddCompileFlags(Config& config, WorkerFlags& flags) {
  config.Flag("compile-limit", &flags.compile_limit,
              "Longest time from a request to compile to its answer");
  config.Flag("compile-cpu-limit", &flags.compile_cpu_limit,
              "Most CPU time, over all threads, for compiling one program; 0s: no limit");
  config.BytesFlag("compile-memory-limit", &flags.compile_memory_limit,
                   "Most memory for compiling one program, e.g. 8GiB; 0: no limit. Default: a "
                   "quarter of the host's, at least 2GiB");
  config.Flag("compile-processes", &flags.compile_processes,
              "Programs compiled at one time, each in a process of its own");
  config.Flag("compile-warm", &flags.compile_warm,
              "Compile processes kept ready for the next program");
  config.Flag("compile-programs", &flags.compile_programs,
              "Programs after which a compile process is replaced. A failed program replaces it at "
              "once. 1: no two programs ever share a process");
}

constexpr char kProgram[] = "fairway-worker";
constexpr char kDescription[] =
    "Runs one executor: its devices, buffers and transfers, for a Fairway controller.";

void DeclareFlags(Config& config, WorkerFlags& flags) {
  config.File("worker");
  config.Flag("role", &flags.role,
              "Which process this is: supervisor, executor, relay, compiler or probe (opens the "
              "plugin, says "
              "what it has, and ends). Users start supervisors");
  config.Flag("controller", &flags.controller, "host:port of the controller's link port");
  // Not FAIRWAY_CONTROLLER: that is the port of clients.
  config.Variable("controller", "FAIRWAY_CONTROLLER_LINK");
  config.Flag("name", &flags.name,
              "Name of this worker, unique in the cluster; default: <host>-<island>");
  config.Flag("island", &flags.island, "Name of the island that its devices belong to");
  config.Flag("island-workers", &flags.island_workers,
              "Workers that own the island together; the same number at all of them");
  config.Flag("devices", &flags.devices, "Devices to expose");
  config.BytesFlag(
      "device-memory", &flags.device_memory,
      "Memory per device, e.g. 2GiB; 0: on CPUs all of the host's for each device, else no "
      "limit");
  config.Flag(
      "runtime", &flags.runtime,
      "The runtime of the devices: pjrt (a plugin), host (native kernels in this host's memory), "
      "sim (native programs take their declared time and compute nothing), or fake (for tests; it "
      "has no compiler)");
  config.Flag("plugin", &flags.plugin, "Path of the PJRT plugin (a shared library)");
  config.Variable("plugin", "FAIRWAY_PJRT_PLUGIN");
  config.Flag("plugin-kind", &flags.plugin_kind, "Which options the plugin has: cpu or cuda");
  config.Flag("plugin-option", &flags.plugin_options,
              "NAME=VALUE: an option for creating the plugin's client (kind cuda: preallocate, "
              "allocator, ...); may be given several times");
  config.Flag("gpus", &flags.gpus,
              "Kind cuda: the GPUs that this worker has, by index or UUID with commas between. "
              "Default: the first --devices of the host");
  config.Flag(
      "gpu-fraction", &flags.gpu_fraction,
      "Kind cuda: the share of its GPUs' memory that this worker takes, above 0 and at most "
      "0.9; needed if workers share a GPU. 0: as much as the plugin takes; then no other worker "
      "may have these GPUs");
  config.Flag("preload", &flags.preload,
              "Library to open before the plugin, by its path; may be given several times");
  config.Flag(
      "target-config", &flags.target_config,
      "Kind cuda: file with the text of XLA's GpuTargetConfigProto, the target of compiling. "
      "Default: the target that the executor's GPU gives");
  config.Flag("write-target-config", &flags.write_target_config,
              "Kind cuda: writes the target of this host's GPU to this file, for --target-config, "
              "and ends");
  config.Flag("allow-raw-kernels", &flags.allow_raw_kernels,
              "Kind cuda: run kernels that clients bring (PTX, Triton, Mosaic). They can read and "
              "write all memory of the GPU: only for clients who trust each other");
  config.Flag(
      "tune-on-gpu", &flags.tune_on_gpu,
      "Kind cuda: compile processes create clients of their own on the worker's GPUs, and "
      "XLA tunes convolutions, products and sorts there. Each takes at most a tenth of their "
      "memory, beside the executor's: leave room (--gpu-fraction)");
  config.Flag("data-bind", &flags.data_bind,
              "host:port of the data port; port 0: any free one. The default is reachable from "
              "this host only; other addresses take certificates (--tls-ca)");
  config.Flag("advertise-host", &flags.advertise_host,
              "Host under which peers reach the data port and the relay");
  config.Flag("relay-bind", &flags.relay_bind,
              "host:port of a relay, a process of this worker that passes the log of its island on "
              "to executors of other hosts if the controller wants it to (its --relay-fan-out); "
              "port 0: any free one. Default: no relay");
  config.Flag("http-bind", &flags.http_bind,
              "host:port where /healthz, /readyz and gRPC's health service answer anybody, for "
              "probes; port 0: any free one. Default: nowhere");
  config.Flag("log-level", &flags.log_level, "trace, debug, info, warn or error");
  config.Flag("max-mappings", &flags.max_mappings,
              "Memory mappings of an executor above which code that no session holds is unloaded; "
              "0: half of vm.max_map_count");
  config.Flag("start-limit", &flags.start_limit,
              "Time for creating the plugin's client. An executor that takes longer ends with code "
              "8 and is started again");
  config.Flag("drain-limit", &flags.drain_limit, "Time for work in flight after SIGTERM");
  AddCompileFlags(config, flags);
  DeclareTlsFlags(config, &flags.tls);
  config.Flag("life-fd", &flags.life_fd,
              "Inherited descriptor; its end of file ends this process. -1: none");
}

// Returns the error in --gpus, --gpu-fraction or --tune-on-gpu; empty: there is none.
std::string WrongGpus(const WorkerFlags& flags, const PjrtConfig& pjrt) {
  if (flags.tune_on_gpu && (!CompilesForTarget(flags) || !flags.target_config.empty())) {
    return "--tune-on-gpu is for --runtime pjrt with --plugin-kind cuda only, and not for another "
           "target of compiling (--target-config)";
  }
  if (!CompilesForTarget(flags)) {
    return flags.gpus.empty() && flags.gpu_fraction == 0
               ? ""
               : "--gpus and --gpu-fraction are for --runtime pjrt with --plugin-kind cuda only";
  }
  for (const auto& [option, flag] :
       {std::pair("visible_devices", "--gpus"), std::pair("memory_fraction", "--gpu-fraction")}) {
    if (pjrt.create_options.contains(option))
      return fmt::format("--plugin-option: {} is set by {}; give that instead", option, flag);
  }
  if (flags.gpu_fraction != 0 && !(flags.gpu_fraction > 0 && flags.gpu_fraction <= kMostOfGpu)) {
    return fmt::format("--gpu-fraction is {}, not above 0 and at most {}", flags.gpu_fraction,
                       kMostOfGpu);
  }
  if (flags.gpus.empty()) return "";
  const auto names = SplitGpus(flags.gpus);
  if (!names.ok()) return "--gpus: " + Text(names.status());
  if (names->size() != static_cast<size_t>(flags.devices)) {
    return fmt::format("--gpus names {} GPUs, and --devices is {}; leave --devices out",
                       names->size(), flags.devices);
  }
  return "";
}

absl::Status CheckFlags(const WorkerFlags& flags) {
  constexpr std::string_view kRoles[] = {"supervisor", "executor", "relay", "compiler", "probe"};
  if (std::find(std::begin(kRoles), std::end(kRoles), flags.role) == std::end(kRoles)) {
    return InvalidArgument("--role is '{}', not supervisor, executor, relay, compiler or probe",
                           flags.role);
  }
  constexpr std::string_view kRuntimes[] = {"pjrt", "host", "sim", "fake"};
  if (std::find(std::begin(kRuntimes), std::end(kRuntimes), flags.runtime) == std::end(kRuntimes)) {
    return InvalidArgument("--runtime is '{}', not pjrt, host, sim or fake", flags.runtime);
  }
  if (flags.devices < 1 || flags.devices > kMaxDevicesPerExecutor) {
    return InvalidArgument("--devices is {}, not 1 to {}", flags.devices, kMaxDevicesPerExecutor);
  }
  if (flags.island_workers < 1 || flags.island_workers > kMaxIslandWorkers) {
    return InvalidArgument("--island-workers is {}, not 1 to {}", flags.island_workers,
                           kMaxIslandWorkers);
  }
  if (flags.island_workers > 1 && flags.runtime == "pjrt" && flags.plugin_kind == "cpu") {
    return InvalidArgument(
        "--island-workers is above 1, but an XLA CPU client cannot span processes: an island of "
        "the pjrt runtime is one worker there. Use --runtime host or sim, or several islands");
  }
  if (!flags.target_config.empty() && !CompilesForTarget(flags)) {
    return InvalidArgument("--target-config is for --runtime pjrt with --plugin-kind cuda only");
  }
  if (!flags.write_target_config.empty() && !CompilesForTarget(flags)) {
    return InvalidArgument(
        "--write-target-config is for --runtime pjrt with --plugin-kind cuda only");
  }
  if (flags.start_limit.count() < 1) return InvalidArgument("--start-limit must be above 0s");
  if (flags.compile_processes < 1 || flags.compile_warm < 0 || flags.compile_programs < 1) {
    return InvalidArgument(
        "--compile-processes and --compile-programs must be at least 1, --compile-warm 0");
  }
  if (const auto at = SplitHostPort(flags.controller); !at.ok() || at->second == 0) {
    return InvalidArgument(
        "--controller is '{}', not HOST:PORT of the controller's link port (its "
        "--link-port, 29002 by default)",
        flags.controller);
  }
  if (!SplitHostPort(flags.data_bind).ok()) {
    return InvalidArgument("--data-bind is '{}', not HOST:PORT; port 0: any free one",
                           flags.data_bind);
  }
  if ((!flags.relay_bind.empty() || flags.role == "relay") &&
      !SplitHostPort(flags.relay_bind).ok()) {
    return InvalidArgument("--relay-bind is '{}', not HOST:PORT; port 0: any free one",
                           flags.relay_bind);
  }
  if (!flags.http_bind.empty() && !SplitHostPort(flags.http_bind).ok()) {
    return InvalidArgument("--http-bind is '{}', not HOST:PORT; port 0: any free one",
                           flags.http_bind);
  }
  if (flags.island.empty())
    return InvalidArgument("--island is empty; expected a name, as island0");
  FAIRWAY_RETURN_IF_ERROR(CheckLogLevel(flags.log_level));
  for (const auto& [flag, at] :
       {std::pair("--data-bind", &flags.data_bind), std::pair("--relay-bind", &flags.relay_bind),
        std::pair("--http-bind", &flags.http_bind)}) {
    // Compile processes listen nowhere, and get no certificate.
    if (!flags.tls.certificate.empty() || at->empty() || flags.role == "compiler") continue;
    FAIRWAY_RETURN_IF_ERROR(
        Annotate(CheckPlainBind(SplitHostPort(*at)->first), fmt::format("{}={}", flag, *at)));
  }
  // Without a plugin, the process that wants to load it says so.
  return flags.plugin.empty() ? absl::OkStatus() : PjrtConfigOf(flags).status();
}

// What the settings name, before anything uses it: `fairway config check` is to find all faults.
absl::Status CheckPlugin(const WorkerFlags& flags) {
  // Without one, its process says so: the environment may name it there.
  if (flags.runtime != "pjrt" || flags.plugin.empty()) return absl::OkStatus();
  if (::access(flags.plugin.c_str(), R_OK) == 0) return absl::OkStatus();
  return InvalidArgument("--plugin={}: cannot be read: {}", flags.plugin, std::strerror(errno));
}

}  // namespace

Config::Outcome Read(WorkerSettings* settings, Reading reading) {
  WorkerFlags& flags = settings->flags;
  Config config(kProgram, kDescription);
  DeclareFlags(config, flags);
  config.Check([&] {
    if (!flags.gpus.empty() && config.source("devices") == Config::Source::kDefault)
      flags.devices = 1 + static_cast<int>(std::count(flags.gpus.begin(), flags.gpus.end(), ','));
    FAIRWAY_RETURN_IF_ERROR(CheckFlags(flags));
    if (reading == Reading::kReload) return absl::OkStatus();
    FAIRWAY_RETURN_IF_ERROR(LoadTls(flags.tls, Role::kWorker).status());
    return config.only_prints() ? CheckPlugin(flags) : absl::OkStatus();
  });
  Config::Outcome outcome = config.Parse(settings->args, Config::ProcessEnvironment);
  settings->values = config.Values();
  return outcome;
}

// Returns whether compile processes are told their target instead of asking a client of their own.
bool CompilesForTarget(const WorkerFlags& flags) {
  return flags.runtime == "pjrt" && flags.plugin_kind == "cuda";
}

absl::StatusOr<PjrtConfig> PjrtConfigOf(const WorkerFlags& flags) {
  PjrtConfig pjrt;
  pjrt.plugin_path = flags.plugin;
  pjrt.kind = flags.plugin_kind;
  pjrt.num_devices = flags.devices;
  pjrt.allow_raw_kernels = flags.allow_raw_kernels;
  pjrt.tune_on_gpu = flags.tune_on_gpu;
  if (flags.runtime == "pjrt") {
    if (flags.plugin.empty())
      return InvalidArgument("--plugin (or FAIRWAY_PJRT_PLUGIN) must name the PJRT plugin to load");
    if (absl::Status status = CheckPjrtConfig(pjrt); !status.ok()) return status;
    for (const std::string& option : flags.plugin_options) {
      if (absl::Status status = SetOption(pjrt, option); !status.ok())
        return Annotate(status, "--plugin-option");
    }
    pjrt.preload = flags.preload;
  }
  if (const std::string wrong = WrongGpus(flags, pjrt); !wrong.empty())
    return InvalidArgument("{}", wrong);
  return pjrt;
}

}  // namespace fairway
