// SPDX-License-Identifier: Apache-2.0
// fairway-worker: the supervisor of one executor on this host. --role says which of the worker's
// processes this is; users start only the supervisor. Exit codes: worker/process/exit_codes.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "async/event_loop.h"
#include "async/service_manager.h"
#include "base/config.h"
#include "base/host.h"
#include "base/log.h"
#include "base/recent_lines.h"
#include "transport/http_server.h"
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
#include "worker/relay/relay_process.h"
#include "worker/settings.h"
#include "worker/supervisor/supervisor.h"

extern char** environ;

namespace fairway {
namespace {

int BadFlag(std::string_view text) {
  fmt::print(stderr, "fairway-worker: {}\n", text);
  return kExitBadFlags;
}

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "fairway-worker";
}

std::vector<std::string> ChildArgv(const WorkerFlags& flags, std::string_view role, int life_fd) {
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
      "--relay-bind=" + flags.relay_bind,
      "--log-level=" + flags.log_level,
      fmt::format("--start-limit={}ms", flags.start_limit.count()),
      fmt::format("--drain-limit={}ms", flags.drain_limit.count()),
      fmt::format("--max-mappings={}", flags.max_mappings),
      fmt::format("--compile-cpu-limit={}ms", flags.compile_cpu_limit.count()),
      fmt::format("--compile-memory-limit={}", flags.compile_memory_limit),
      fmt::format("--compile-programs={}", flags.compile_programs),
      fmt::format("--life-fd={}", life_fd)};
  // Compile processes run clients' programs, and connect to nobody: they get no key.
  if (role == "executor" || role == "relay") {
    out.push_back("--tls-ca=" + flags.tls.ca);
    out.push_back("--tls-certificate=" + flags.tls.certificate);
    out.push_back("--tls-key=" + flags.tls.key);
  }
  for (const std::string& option : flags.plugin_options) out.push_back("--plugin-option=" + option);
  for (const std::string& library : flags.preload) out.push_back("--preload=" + library);
  return out;
}

// Returns our environment with the XLA flags of a process that loads the plugin. OpenBLAS starts
// its threads before main, so their number is set here: a compile process must have one thread, and
// a device uses one.
std::vector<std::string> ChildEnv(const PjrtConfig& pjrt) {
  constexpr std::string_view kXlaFlags = "XLA_FLAGS=", kBlasThreads = "OPENBLAS_NUM_THREADS=";
  // A child gets its settings by flags, also when the file has changed since.
  constexpr std::string_view kSettingsFile = "FAIRWAY_CONFIG=";
  std::vector<std::string> out;
  std::string inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kXlaFlags)) {
      inherited = text.substr(kXlaFlags.size());
    } else if (!text.starts_with(kBlasThreads) && !text.starts_with(kSettingsFile)) {
      out.emplace_back(text);
    }
  }
  out.push_back(std::string(kBlasThreads) + "1");
  out.push_back(std::string(kXlaFlags) + XlaFlags(pjrt, inherited));
  return out;
}

CompileLimits LimitsOf(const WorkerFlags& flags) {
  return {std::chrono::ceil<std::chrono::seconds>(flags.compile_cpu_limit),
          flags.compile_memory_limit};
}

// What Reload applies; the other settings are for the life of the process.
const std::set<std::string> kReloaded = {"log-level"};

// Reads the settings file again, and applies what of it can change while the process runs.
void Reload(WorkerSettings& settings, Supervisor& supervisor) {
  WorkerSettings fresh{.flags = {}, .args = settings.args, .values = {}};
  if (!TakeReload(Read(&fresh, Reading::kReload), settings.values, fresh.values, kReloaded)) return;
  supervisor.SetLogLevel(fresh.flags.log_level);
}

// What probes ask. Says nothing else, and to anybody.
HttpAnswer HealthOf(const Supervisor& supervisor, const HttpRequest& request) {
  if (request.path == "/healthz") return {.body = "ok\n"};
  if (request.path != "/readyz")
    return {.status = 404, .body = "not found: there are /healthz and /readyz\n"};
  const std::string_view why = supervisor.NotReady();
  if (why.empty()) return {.body = "ready\n"};
  return {.status = 503, .body = fmt::format("{}\n", why)};
}

// nullptr: --http-bind names no port.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeHealth(EventLoop& loop, const WorkerFlags& flags,
                                                        const Supervisor& supervisor,
                                                        std::shared_ptr<TlsIdentity> tls) {
  if (flags.http_bind.empty()) return nullptr;
  const auto at = *SplitHostPort(flags.http_bind);
  const bool secure = tls != nullptr;
  auto http = HttpServer::Listen(
      loop, at.first, at.second,
      [&supervisor](const HttpRequest& request) { return HealthOf(supervisor, request); },
      std::move(tls));
  if (!http.ok()) return Annotate(http.status(), fmt::format("--http-bind={}", flags.http_bind));
  spdlog::info("health at {}://{}", secure ? "https" : "http", HostPort(at.first, (*http)->port()));
  return http;
}

int RunSupervisor(WorkerSettings settings, const PjrtConfig& pjrt,
                  std::shared_ptr<RecentLines> lines) {
  const WorkerFlags& flags = settings.flags;
  std::signal(SIGPIPE, SIG_IGN);
  EventLoop loop;
  ServiceManager manager(loop);  // before children get the environment
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
  if (!flags.relay_bind.empty())
    config.relay_argv = ChildArgv(flags, "relay", ExecutorChild::kLifeFd);
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
  auto tls = LoadTls(flags.tls, Role::kWorker);
  if (!tls.ok()) return BadFlag(Text(tls.status()));
  config.tls = *tls;
  config.child_env = ChildEnv(pjrt);
  config.drain_limit = flags.drain_limit;
  config.compile_limit = flags.compile_limit;
  config.lines = std::move(lines);
  Supervisor supervisor(loop, manager, std::move(config));
  const auto health = ServeHealth(loop, flags, supervisor, *std::move(tls));
  if (!health.ok()) return BadFlag(Text(health.status()));
  boost::asio::signal_set signals(loop.io_context(), SIGTERM, SIGINT);
  // Without a file there is nothing to read again, and the end of a terminal ends what runs in it.
  if (!settings.values.at("config").empty()) signals.add(SIGHUP);
  const std::function<void()> wait = [&] {
    signals.async_wait([&](const boost::system::error_code& error, int number) {
      if (error) return;
      if (number != SIGHUP) {
        return supervisor.Drain(number == SIGTERM ? "SIGTERM" : "SIGINT",
                                std::chrono::milliseconds(0));
      }
      Reload(settings, supervisor);
      wait();
    });
  };
  wait();
  if (absl::Status status = supervisor.Start(); !status.ok()) {
    spdlog::error("{}", Text(status));
    return kExitInternal;
  }
  const int code = supervisor.Run();
  spdlog::default_logger()->flush();
  ::_exit(code);  // threads that copy logs may still read
}

absl::StatusOr<std::unique_ptr<Runtime>> MakeRuntime(const WorkerFlags& flags,
                                                     const PjrtConfig& pjrt) {
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
std::string DriverLibrary(const WorkerFlags& flags) {
  constexpr std::string_view kName = "libcuda.so.1";
  for (const std::string& library : flags.preload) {
    if (library.ends_with(kName)) return library;
  }
  return std::string(kName);
}

// Makes the plugin show the worker's GPUs and no others. Returns them.
absl::StatusOr<std::vector<Gpu>> ShowGpus(const WorkerFlags& flags, PjrtConfig& pjrt) {
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
absl::StatusOr<GpuShares> TakeGpus(const WorkerFlags& flags, PjrtConfig& pjrt) {
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
std::variant<OpenRuntime, int> Open(const WorkerFlags& flags, PjrtConfig pjrt) {
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

// Ends this process with its supervisor, which may change its log level.
void FollowParent(const WorkerFlags& flags) {
  if (flags.life_fd < 0) return;
  ExitWithParent(flags.life_fd, [](char byte) {
    const std::string_view level = LogLevelOf(byte);
    if (level.empty()) return;
    SetLogLevel(level);
    spdlog::log(spdlog::get_level(), "log level: {}", level);
  });
}

int RunExecutorRole(const WorkerFlags& flags, const PjrtConfig& pjrt) {
  FollowParent(flags);
  // Plugins of CUDA may execute the assembler.
  if (const std::string refused = WallExecutor(/*executes=*/CompilesForTarget(flags));
      !refused.empty())
    spdlog::warn("the system refuses to confine the executor in these ways: {}", refused);
  const auto open = Open(flags, pjrt);
  if (const int* code = std::get_if<int>(&open)) return *code;
  ExecutorConfig config;
  auto tls = LoadTls(flags.tls, Role::kWorker);
  if (!tls.ok()) return BadFlag(Text(tls.status()));
  config.tls = *std::move(tls);
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

int RunRelayRole(const WorkerFlags& flags) {
  FollowParent(flags);
  auto tls = LoadTls(flags.tls, Role::kWorker);
  if (!tls.ok()) return BadFlag(Text(tls.status()));
  const int code = RunRelay({.controller = flags.controller,
                             .tls = *std::move(tls),
                             .worker = flags.name,
                             .bind = flags.relay_bind,
                             .advertise_host = flags.advertise_host});
  spdlog::default_logger()->flush();
  ::_exit(code);
}

// Does --write-target-config.
int WriteTargetConfig(const WorkerFlags& flags, const PjrtConfig& pjrt) {
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

// Opens the plugin, prints a line that says what it has, and ends. It takes no share of the GPUs
// and none of their memory ahead, so that workers that have them go on.
int RunProbe(const WorkerFlags& flags, PjrtConfig pjrt) {
  const char* const inherited = std::getenv("XLA_FLAGS");
  ::setenv("XLA_FLAGS", XlaFlags(pjrt, inherited != nullptr ? inherited : "").c_str(), 1);
  if (CompilesForTarget(flags)) pjrt.create_options["preallocate"] = false;
  const auto runtime = MakeRuntime(flags, pjrt);
  if (!runtime.ok()) {
    spdlog::error("cannot load the plugin {}: {}", pjrt.plugin_path, Text(runtime.status()));
    spdlog::default_logger()->flush();
    ::_exit(kExitNoPlugin);
  }
  const RuntimeInfo& info = (*runtime)->info();
  fmt::print("{} opens: {} devices of {} ({})\n", pjrt.plugin_path, info.num_devices,
             info.platform_name, info.device_kind);
  std::fflush(stdout);
  ::_exit(kExitOk);  // threads of the plugin may be busy
}

int RunCompilerRole(const WorkerFlags& flags, const PjrtConfig& pjrt) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  const auto make =
      [&](const v1::CompileTarget& target) -> absl::StatusOr<std::unique_ptr<Compiler>> {
    if (flags.runtime == "host" || flags.runtime == "sim") return MakeNativeCompiler(flags.runtime);
    PjrtConfig shown = pjrt;
    if (flags.tune_on_gpu) FAIRWAY_RETURN_IF_ERROR(ShowGpus(flags, shown).status());
    return MakeWarmPjrtCompiler(shown, target);
  };
  const std::vector<std::string> assemblers =
      CompilesForTarget(flags) ? AssemblersOf(flags.plugin) : std::vector<std::string>();
  FileRights files = FilesToCompile(pjrt.plugin_path, assemblers);
  // A client of the plugin opens the GPU's device files, and more of the system's than is known.
  if (flags.tune_on_gpu) files.read = files.write = {"/"};
  return RunCompilerProcess({.told = CompilesForTarget(flags),
                             .make = make,
                             .limits = LimitsOf(flags),
                             .programs = flags.compile_programs,
                             .files = std::move(files)});
}

int Main(int argc, char** argv) {
  WorkerSettings settings{.flags = {}, .args = {argv + 1, argv + argc}, .values = {}};
  const Config::Outcome outcome = Read(&settings);
  std::fputs(outcome.output.c_str(), stdout);
  std::fputs(outcome.error.c_str(), stderr);
  if (outcome.exit_code)
    return *outcome.exit_code == kExitUsage ? kExitBadFlags : *outcome.exit_code;
  WorkerFlags& flags = settings.flags;
  if (flags.life_fd >= 0 && ::fcntl(flags.life_fd, F_GETFD) < 0)
    return BadFlag(fmt::format("--life-fd is {}, not an open descriptor", flags.life_fd));
  if (flags.name.empty()) {
    flags.name = fmt::format("{}-{}", HostName(), flags.island);
  }
  const absl::StatusOr<PjrtConfig> pjrt = PjrtConfigOf(flags);
  if (!pjrt.ok()) return BadFlag(Text(pjrt.status()));
  const auto lines =
      flags.role == "supervisor" ? std::make_shared<RecentLines>() : std::shared_ptr<RecentLines>();
  InitLogging({.component = flags.role, .island = flags.island, .worker = flags.name},
              flags.log_level, lines);
  RaiseOpenFilesLimit();
  if (!flags.write_target_config.empty()) return WriteTargetConfig(flags, *pjrt);
  if (flags.role == "executor") return RunExecutorRole(flags, *pjrt);
  if (flags.role == "relay") return RunRelayRole(flags);
  if (flags.role == "probe") return RunProbe(flags, *pjrt);
  if (flags.role == "compiler") return RunCompilerRole(flags, *pjrt);
  return RunSupervisor(std::move(settings), *pjrt, lines);
}

}  // namespace
}  // namespace fairway

int main(int argc, char** argv) { return fairway::Main(argc, argv); }
