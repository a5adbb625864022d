// SPDX-License-Identifier: Apache-2.0
// fairway-worker: the supervisor of one executor on this host. --role says which of the worker's
// processes this is; users start only the supervisor. Exit codes: worker/process/exit_codes.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "base/config.h"
#include "base/host.h"
#include "base/log.h"
#include "wire/link_codec.h"
#include "worker/compiler/native_compiler.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/compiler/run_compiler_process.h"
#include "worker/executor/executor_process.h"
#include "worker/executor/runtime/fake/fake_runtime.h"
#include "worker/executor/runtime/host/host_runtime.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/sim/sim_runtime.h"
#include "worker/gpus.h"
#include "worker/life.h"
#include "worker/process/exit_codes.h"
#include "worker/supervisor/supervisor.h"

extern char** environ;

namespace fairway {
namespace {

struct Flags {
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
  int life_fd = -1;
};

void AddCompileFlags(Config& config, Flags& flags) {
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

std::optional<int> ParseFlags(int argc, char** argv, Flags& flags) {
  Config config("fairway-worker",
                "Runs one executor: its devices, buffers and transfers, for a Fairway controller.");
  config.Flag("role", &flags.role,
              "Which process this is: supervisor, executor or compiler. Users start supervisors");
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
              "this host only");
  config.Flag("advertise-host", &flags.advertise_host,
              "Host under which peers reach the data port");
  config.Flag("log-level", &flags.log_level, "trace, debug, info, warn or error");
  config.Flag("max-mappings", &flags.max_mappings,
              "Memory mappings of an executor above which code that no session holds is unloaded; "
              "0: half of vm.max_map_count");
  config.Flag("start-limit", &flags.start_limit,
              "Time for creating the plugin's client. An executor that takes longer ends with code "
              "8 and is started again");
  config.Flag("drain-limit", &flags.drain_limit, "Time for work in flight after SIGTERM");
  AddCompileFlags(config, flags);
  config.Flag("life-fd", &flags.life_fd,
              "Inherited descriptor; its end of file ends this process. -1: none");
  if (auto code = config.Parse(argc, argv)) return *code == kExitUsage ? kExitBadFlags : *code;
  if (!flags.gpus.empty() && config.source("devices") == Config::Source::kDefault)
    flags.devices = 1 + static_cast<int>(std::count(flags.gpus.begin(), flags.gpus.end(), ','));
  return std::nullopt;
}

int BadFlag(std::string_view text) {
  fmt::print(stderr, "fairway-worker: {}\n", text);
  return kExitBadFlags;
}

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "fairway-worker";
}

std::vector<std::string> ChildArgv(const Flags& flags, std::string_view role, int life_fd) {
  std::vector<std::string> out = {
      OwnPath(),
      fmt::format("--role={}", role),
      "--controller=" + flags.controller,
      "--name=" + flags.name,
      "--island=" + flags.island,
      fmt::format("--island-workers={}", flags.island_workers),
      fmt::format("--devices={}", flags.devices),
      fmt::format("--device-memory={}", flags.device_memory),
      "--runtime=" + flags.runtime,
      "--plugin=" + flags.plugin,
      "--plugin-kind=" + flags.plugin_kind,
      "--gpus=" + flags.gpus,
      fmt::format("--gpu-fraction={}", flags.gpu_fraction),
      fmt::format("--allow-raw-kernels={}", flags.allow_raw_kernels),
      fmt::format("--tune-on-gpu={}", flags.tune_on_gpu),
      "--data-bind=" + flags.data_bind,
      "--advertise-host=" + flags.advertise_host,
      "--log-level=" + flags.log_level,
      fmt::format("--start-limit={}ms", flags.start_limit.count()),
      fmt::format("--drain-limit={}ms", flags.drain_limit.count()),
      fmt::format("--max-mappings={}", flags.max_mappings),
      fmt::format("--compile-cpu-limit={}ms", flags.compile_cpu_limit.count()),
      fmt::format("--compile-memory-limit={}", flags.compile_memory_limit),
      fmt::format("--compile-programs={}", flags.compile_programs),
      fmt::format("--life-fd={}", life_fd)};
  for (const std::string& option : flags.plugin_options) out.push_back("--plugin-option=" + option);
  for (const std::string& library : flags.preload) out.push_back("--preload=" + library);
  return out;
}

// Returns our environment with the XLA flags of a process that loads the plugin. OpenBLAS starts
// its threads before main, so their number is set here: a compile process must have one thread, and
// a device uses one.
std::vector<std::string> ChildEnv(const PjrtConfig& pjrt) {
  constexpr std::string_view kXlaFlags = "XLA_FLAGS=", kBlasThreads = "OPENBLAS_NUM_THREADS=";
  std::vector<std::string> out;
  std::string inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kXlaFlags)) {
      inherited = text.substr(kXlaFlags.size());
    } else if (!text.starts_with(kBlasThreads)) {
      out.emplace_back(text);
    }
  }
  out.push_back(std::string(kBlasThreads) + "1");
  out.push_back(std::string(kXlaFlags) + XlaFlags(pjrt, inherited));
  return out;
}

CompileLimits LimitsOf(const Flags& flags) {
  return {std::chrono::ceil<std::chrono::seconds>(flags.compile_cpu_limit),
          flags.compile_memory_limit};
}

// Returns whether compile processes are told their target instead of asking a client of their own.
bool CompilesForTarget(const Flags& flags) {
  return flags.runtime == "pjrt" && flags.plugin_kind == "cuda";
}

int RunSupervisor(const Flags& flags, const PjrtConfig& pjrt) {
  std::signal(SIGPIPE, SIG_IGN);
  if (flags.life_fd >= 0) ExitWithParent(flags.life_fd);
  if (flags.data_bind.starts_with("127.") || flags.data_bind.starts_with("localhost")) {
    spdlog::info("the data port is bound to {}: reachable from this host only (--data-bind)",
                 flags.data_bind);
  }
  SupervisorConfig config;
  config.controller = flags.controller;
  config.worker = flags.name;
  config.island = flags.island;
  config.executor_argv = ChildArgv(flags, "executor", ExecutorChild::kLifeFd);
  if (flags.runtime != "fake") config.compile.argv = ChildArgv(flags, "compiler", -1);
  config.compile.told = CompilesForTarget(flags);
  if (!flags.target_config.empty()) {
    std::ifstream file(flags.target_config);
    std::stringstream text;
    if (!(text << file.rdbuf())) {
      return BadFlag(
          fmt::format("--target-config: cannot read {}, or it is empty; expected the "
                      "text of XLA's GpuTargetConfigProto",
                      flags.target_config));
    }
    config.compile.target.set_config(text.str());
  }
  config.compile.parallel = flags.compile_processes;
  config.compile.warm = flags.compile_warm;
  config.compile.programs = flags.compile_programs;
  config.compile.limits = LimitsOf(flags);
  config.child_env = ChildEnv(pjrt);
  config.drain_limit = flags.drain_limit;
  config.compile_limit = flags.compile_limit;
  EventLoop loop;
  Supervisor supervisor(loop, std::move(config));
  boost::asio::signal_set signals(loop.io_context(), SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code& error, int number) {
    if (!error)
      supervisor.Drain(number == SIGTERM ? "SIGTERM" : "SIGINT", std::chrono::milliseconds(0));
  });
  if (absl::Status status = supervisor.Start(); !status.ok()) {
    spdlog::error("{}", Text(status));
    return kExitInternal;
  }
  const int code = supervisor.Run();
  spdlog::default_logger()->flush();
  ::_exit(code);  // threads that copy logs may still read
}

absl::StatusOr<std::unique_ptr<Runtime>> MakeRuntime(const Flags& flags, const PjrtConfig& pjrt) {
  if (flags.runtime == "fake") return std::make_unique<FakeRuntime>(flags.devices);
  if (flags.runtime == "host") return std::make_unique<HostRuntime>(flags.devices);
  if (flags.runtime == "sim") return std::make_unique<SimRuntime>(flags.devices);
  return MakePjrtRuntime(pjrt);
}

// Ends this process if this object is not destroyed within `limit`: a plugin may wait for ever for
// a stuck driver, and nothing else ends such a call.
class StartLimit {
 public:
  StartLimit(std::chrono::milliseconds limit, std::string what)
      : thread_([this, limit, what = std::move(what)] {
          std::unique_lock lock(mutex_);
          if (wake_.wait_for(lock, limit, [this] { return done_; })) return;
          spdlog::error("{} has not ended within {} ms (--start-limit)", what, limit.count());
          spdlog::default_logger()->flush();
          ::_exit(kExitStartLimit);
        }) {}
  ~StartLimit() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;  // uses the others
};

// Returns "libcuda.so.1", or the file that --preload names in its place.
std::string DriverLibrary(const Flags& flags) {
  constexpr std::string_view kName = "libcuda.so.1";
  for (const std::string& library : flags.preload) {
    if (library.ends_with(kName)) return library;
  }
  return std::string(kName);
}

// Makes the plugin show the worker's GPUs and no others. Returns them.
absl::StatusOr<std::vector<Gpu>> ShowGpus(const Flags& flags, PjrtConfig& pjrt) {
  std::vector<std::string> names;
  for (int i = 0; i < flags.devices && flags.gpus.empty(); ++i) names.push_back(std::to_string(i));
  if (!flags.gpus.empty()) {
    FAIRWAY_ASSIGN_OR_RETURN(names, SplitGpus(flags.gpus));
  }
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<Gpu> gpus, FindGpus(names, DriverLibrary(flags)));
  std::vector<int64_t> indexes;
  for (const Gpu& gpu : gpus) indexes.push_back(gpu.index);
  pjrt.create_options["visible_devices"] = indexes;
  return gpus;
}

// Takes this worker's share of its GPUs and configures the plugin for them. The result holds the
// shares while it lives.
absl::StatusOr<GpuShares> TakeGpus(const Flags& flags, PjrtConfig& pjrt) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<Gpu> gpus, ShowGpus(flags, pjrt));
  const bool shared = flags.gpu_fraction > 0;
  if (shared) pjrt.create_options["memory_fraction"] = static_cast<float>(flags.gpu_fraction);
  return GpuShares::Take(std::filesystem::temp_directory_path(), gpus,
                         shared ? flags.gpu_fraction : kMostOfGpu);
}

// A runtime and its share of the GPUs, which it holds as long as it lives.
struct OpenRuntime {
  std::optional<GpuShares> gpus;
  std::unique_ptr<Runtime> runtime;
};

// Opens the runtime within --start-limit. On failure it returns the exit code; the log has the
// reason.
std::variant<OpenRuntime, int> Open(const Flags& flags, PjrtConfig pjrt) {
  const StartLimit start_limit(
      flags.start_limit, fmt::format("creating the client of the plugin {}", pjrt.plugin_path));
  OpenRuntime out;
  if (CompilesForTarget(flags)) {
    absl::StatusOr<GpuShares> gpus = TakeGpus(flags, pjrt);
    if (!gpus.ok()) {
      spdlog::error("--gpus: {}", Text(gpus.status()));
      const bool missing = gpus.status().code() == absl::StatusCode::kNotFound ||
                           gpus.status().code() == absl::StatusCode::kUnavailable;
      return missing ? kExitNoPlugin : kExitBadFlags;
    }
    out.gpus.emplace(*std::move(gpus));
  }
  auto runtime = MakeRuntime(flags, pjrt);
  if (runtime.status().code() == absl::StatusCode::kOutOfRange) {
    spdlog::error("--plugin-option: {}", Text(runtime.status()));
    return kExitBadFlags;
  }
  if (!runtime.ok()) {
    spdlog::error("cannot load the plugin {}: {}", pjrt.plugin_path, Text(runtime.status()));
    return kExitNoPlugin;
  }
  out.runtime = *std::move(runtime);
  return out;
}

int RunExecutorRole(const Flags& flags, const PjrtConfig& pjrt) {
  if (flags.life_fd >= 0) ExitWithParent(flags.life_fd);
  const auto open = Open(flags, pjrt);
  if (const int* code = std::get_if<int>(&open)) return *code;
  ExecutorConfig config;
  config.controller = flags.controller;
  config.worker = flags.name;
  config.island = flags.island;
  config.island_workers = flags.island_workers;
  config.device_memory = flags.device_memory;
  config.data_bind = flags.data_bind;
  config.advertise_host = flags.advertise_host;
  config.life_fd = flags.life_fd;
  config.max_mappings = flags.max_mappings;
  config.drain_limit = flags.drain_limit;
  RunExecutor(config, std::get<OpenRuntime>(open).runtime.get());
}

// Does --write-target-config.
int WriteTargetConfig(const Flags& flags, const PjrtConfig& pjrt) {
  const auto open = Open(flags, pjrt);
  if (const int* code = std::get_if<int>(&open)) return *code;
  const RuntimeInfo& info = std::get<OpenRuntime>(open).runtime->info();
  if (info.target_config.empty()) {
    spdlog::error("the plugin {} does not give its target of compiling", flags.plugin);
    return kExitNoPlugin;
  }
  std::ofstream file(flags.write_target_config);
  file << info.target_config;
  file.close();
  if (!file) {
    spdlog::error("--write-target-config: cannot write {}", flags.write_target_config);
    return kExitBadFlags;
  }
  spdlog::info("{} has the target config of {}", flags.write_target_config, info.platform_version);
  spdlog::default_logger()->flush();
  ::_exit(kExitOk);  // threads of the plugin may be busy
}

int RunCompilerRole(const Flags& flags, const PjrtConfig& pjrt) {
  std::signal(SIGINT, SIG_IGN);
  const auto make =
      [&](const v1::CompileTarget& target) -> absl::StatusOr<std::unique_ptr<Compiler>> {
    if (flags.runtime == "host" || flags.runtime == "sim") return MakeNativeCompiler(flags.runtime);
    PjrtConfig shown = pjrt;
    if (flags.tune_on_gpu) FAIRWAY_RETURN_IF_ERROR(ShowGpus(flags, shown).status());
    return MakeWarmPjrtCompiler(shown, target);
  };
  return RunCompilerProcess({.told = CompilesForTarget(flags),
                             .make = make,
                             .limits = LimitsOf(flags),
                             .programs = flags.compile_programs,
                             .assemblers = CompilesForTarget(flags) ? AssemblersOf(flags.plugin)
                                                                    : std::vector<std::string>()});
}

// Returns the error in --gpus, --gpu-fraction or --tune-on-gpu; empty: there is none.
std::string WrongGpus(const Flags& flags, const PjrtConfig& pjrt) {
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

int Main(int argc, char** argv) {
  Flags flags;
  if (auto code = ParseFlags(argc, argv, flags)) return *code;
  if (flags.role != "supervisor" && flags.role != "executor" && flags.role != "compiler") {
    return BadFlag(fmt::format("--role is '{}', not supervisor, executor or compiler", flags.role));
  }
  constexpr std::string_view kRuntimes[] = {"pjrt", "host", "sim", "fake"};
  if (std::find(std::begin(kRuntimes), std::end(kRuntimes), flags.runtime) == std::end(kRuntimes)) {
    return BadFlag(fmt::format("--runtime is '{}', not pjrt, host, sim or fake", flags.runtime));
  }
  if (flags.devices < 1 || flags.devices > kMaxDevicesPerExecutor) {
    return BadFlag(
        fmt::format("--devices is {}, not 1 to {}", flags.devices, kMaxDevicesPerExecutor));
  }
  if (flags.island_workers < 1 || flags.island_workers > kMaxIslandWorkers) {
    return BadFlag(fmt::format("--island-workers is {}, not 1 to {}", flags.island_workers,
                               kMaxIslandWorkers));
  }
  if (flags.island_workers > 1 && flags.runtime == "pjrt" && flags.plugin_kind == "cpu") {
    return BadFlag(
        "--island-workers is above 1, but an XLA CPU client cannot span processes: an island of "
        "the pjrt runtime is one worker there. Use --runtime host or sim, or several islands");
  }
  if (!flags.target_config.empty() && !CompilesForTarget(flags)) {
    return BadFlag("--target-config is for --runtime pjrt with --plugin-kind cuda only");
  }
  if (!flags.write_target_config.empty() && !CompilesForTarget(flags)) {
    return BadFlag("--write-target-config is for --runtime pjrt with --plugin-kind cuda only");
  }
  if (flags.start_limit.count() < 1) return BadFlag("--start-limit must be above 0s");
  if (flags.compile_processes < 1 || flags.compile_warm < 0 || flags.compile_programs < 1) {
    return BadFlag(
        "--compile-processes and --compile-programs must be at least 1, --compile-warm 0");
  }
  if (const auto at = SplitHostPort(flags.controller); !at.ok() || at->second == 0) {
    return BadFlag(
        fmt::format("--controller is '{}', not HOST:PORT of the controller's link port (its "
                    "--link-port, 29002 by default)",
                    flags.controller));
  }
  if (!SplitHostPort(flags.data_bind).ok()) {
    return BadFlag(
        fmt::format("--data-bind is '{}', not HOST:PORT; port 0: any free one", flags.data_bind));
  }
  if (flags.island.empty()) return BadFlag("--island is empty; expected a name, as island0");
  if (flags.life_fd >= 0 && ::fcntl(flags.life_fd, F_GETFD) < 0)
    return BadFlag(fmt::format("--life-fd is {}, not an open descriptor", flags.life_fd));
  if (flags.name.empty()) {
    flags.name = fmt::format("{}-{}", HostName(), flags.island);
  }
  PjrtConfig pjrt;
  pjrt.plugin_path = flags.plugin;
  pjrt.kind = flags.plugin_kind;
  pjrt.num_devices = flags.devices;
  pjrt.allow_raw_kernels = flags.allow_raw_kernels;
  pjrt.tune_on_gpu = flags.tune_on_gpu;
  if (flags.runtime == "pjrt") {
    if (flags.plugin.empty())
      return BadFlag("--plugin (or FAIRWAY_PJRT_PLUGIN) must name the PJRT plugin to load");
    if (absl::Status status = CheckPjrtConfig(pjrt); !status.ok()) return BadFlag(Text(status));
    for (const std::string& option : flags.plugin_options) {
      if (absl::Status status = SetOption(pjrt, option); !status.ok())
        return BadFlag("--plugin-option: " + Text(status));
    }
    pjrt.preload = flags.preload;
  }
  if (const std::string wrong = WrongGpus(flags, pjrt); !wrong.empty()) return BadFlag(wrong);
  if (absl::Status status = CheckLogLevel(flags.log_level); !status.ok())
    return BadFlag(Text(status));
  InitLogging({.component = flags.role, .island = flags.island, .worker = flags.name},
              flags.log_level);
  RaiseOpenFilesLimit();
  if (!flags.write_target_config.empty()) return WriteTargetConfig(flags, pjrt);
  if (flags.role == "executor") return RunExecutorRole(flags, pjrt);
  if (flags.role == "compiler") return RunCompilerRole(flags, pjrt);
  return RunSupervisor(flags, pjrt);
}

}  // namespace
}  // namespace fairway

int main(int argc, char** argv) { return fairway::Main(argc, argv); }
