// SPDX-License-Identifier: Apache-2.0
#include "client/cli/up.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

#include <fmt/ranges.h>

#include "base/config.h"
#include "base/host.h"
#include "base/log.h"
#include "client/cli/default_plugin.h"
#include "client/cli/launcher.h"
#include "client/cli/process.h"
#include "client/cli/state_root.h"
#include "identity/plain_text.h"

namespace fairway {
namespace {

constexpr int kDefaultPort = 29000;
constexpr int kDefaultHttpPort = 29001;
constexpr int kExitFailed = 1;
constexpr int kExitPortInUse = 5;

struct UpFlags {
  int islands = 1;
  int devices = 1;
  int workers_per_island = 1;
  int port = 0;
  int http_port = 0;
  int64_t device_memory = 0;
  std::chrono::milliseconds callback_limit{60000};
  bool detach = false;
  std::string bind = "127.0.0.1";
  std::string runtime = "pjrt";
  std::string plugin;
  std::string plugin_kind = "cpu";
  std::vector<std::string> plugin_options;
  std::vector<std::string> preload;
  std::string gpus;
  double gpu_fraction = 0;
  bool allow_raw_kernels = false;
  bool tune_on_gpu = false;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string item; std::getline(in, item, ',');) out.push_back(item);
  return out;
}

// The --gpus of each island's worker; empty: the islands are not of kind cuda.
std::vector<std::string> GpusOfIslands(const UpFlags& flags) {
  if (flags.runtime != "pjrt" || flags.plugin_kind != "cuda") return {};
  std::vector<std::string> listed = Split(flags.gpus);
  for (int i = 0; i < flags.islands * flags.devices && flags.gpus.empty(); ++i)
    listed.push_back(std::to_string(i));
  std::vector<std::string> out(flags.islands);
  for (int island = 0; island < flags.islands; ++island) {
    const auto first = listed.begin() + island * flags.devices;
    out[island] = fmt::format("{}", fmt::join(first, first + flags.devices, ","));
  }
  return out;
}

// The fault in --gpus and --gpu-fraction; empty: none that can be found here.
std::string WrongGpus(const UpFlags& flags) {
  if (flags.runtime != "pjrt" || flags.plugin_kind != "cuda") {
    return flags.gpus.empty() && flags.gpu_fraction == 0
               ? ""
               : "--gpus and --gpu-fraction are for --plugin-kind cuda only";
  }
  if (flags.gpus.empty()) return "";
  const std::vector<std::string> listed = Split(flags.gpus);
  const auto wanted = static_cast<size_t>(flags.islands * flags.devices);
  if (listed.size() != wanted) {
    return fmt::format(
        "--gpus lists {} GPUs; {} islands of {} devices have {}: list one for each, and "
        "a GPU that islands share once for each of them",
        listed.size(), flags.islands, flags.devices, wanted);
  }
  constexpr double kMost = 0.9;  // worker/gpus.h
  for (const std::string& gpu : listed) {
    const auto islands = std::count(listed.begin(), listed.end(), gpu);
    if (islands == 1) continue;
    if (flags.gpu_fraction > 0 && flags.gpu_fraction * static_cast<double>(islands) <= kMost + 1e-9)
      continue;
    return fmt::format(
        "--gpus gives GPU {} to {} islands, and --gpu-fraction is {}: together they may "
        "have {} of its memory, so it must be above 0 and at most {:.3g}",
        gpu, islands, flags.gpu_fraction, kMost, kMost / static_cast<double>(islands));
  }
  return "";
}

// Locks the directory for this process while the result lives. The logs of an earlier cluster on
// this port are kept once, as NAME.log.1. ALREADY_EXISTS: a running cluster has it.
absl::StatusOr<OwnedFd> TakeStateDirectory(const std::string& directory, int port) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return Error(absl::StatusCode::kUnavailable, "cannot make {}: {}", directory, error.message());
  OwnedFd lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // On a file system without locks the cluster runs without one.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Error(absl::StatusCode::kAlreadyExists,
                 "--port={}: a cluster of another `fairway up` has this port, with its logs in {}; "
                 "end it by `fairway down --controller HOST:{}`",
                 port, directory, port);
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".log" && entry.path().stem() != "up") {
      std::filesystem::rename(entry.path(), entry.path().string() + ".1", error);
    }
  }
  return lock;
}

void PrintReady(const UpFlags& flags, int port, const Launcher& launcher) {
  const std::string address = HostPort(flags.bind, port);
  if (flags.port == 0 && port != kDefaultPort) {
    fmt::print(
        "port {} is taken, by another cluster perhaps; this one is at {}: say so to the other "
        "commands by --controller or FAIRWAY_CONTROLLER\n",
        kDefaultPort, address);
  }
  fmt::print("{}", launcher.Summary());
  // The other runtimes have no compiler for JAX's programs.
  fmt::print("\nFor {}, in your shell:\n{}  export FAIRWAY_CONTROLLER={}\n\n",
             flags.runtime == "pjrt" ? "JAX" : "clients",
             flags.runtime == "pjrt" ? "  export JAX_PLATFORMS=fairway,cpu\n" : "", address);
  fmt::print("The cluster is ready. {}`fairway down --controller {}` ends it.\n",
             flags.detach ? "" : "Ctrl-C or ", address);
  std::fflush(stdout);
}

// Runs the cluster. Calls `ready` once it is up.
int RunCluster(const UpFlags& flags, const std::string& plugin,
               const std::function<void(const std::string& state_directory)>& ready) {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    const auto port = flags.port != 0 ? absl::StatusOr<int>(flags.port)
                                      : FreePort(flags.bind, attempt == 1 ? kDefaultPort : 0);
    if (!port.ok()) {
      fmt::print(stderr, "fairway up: {}\n", Text(port.status()));
      return kExitFailed;
    }
    LauncherOptions options;
    options.programs = ProgramDirectory();
    options.runtime = flags.runtime;
    options.plugin = plugin;
    options.plugin_kind = flags.plugin_kind;
    options.plugin_options = flags.plugin_options;
    options.gpus = GpusOfIslands(flags);
    options.gpu_fraction = flags.gpu_fraction;
    options.preload = flags.preload;
    options.allow_raw_kernels = flags.allow_raw_kernels;
    options.tune_on_gpu = flags.tune_on_gpu;
    options.state_directory = fmt::format("{}/{}", StateRoot(), *port);
    options.bind = flags.bind;
    options.islands = flags.islands;
    options.devices = flags.devices;
    options.workers_per_island = flags.workers_per_island;
    options.port = *port;
    options.http_port = flags.http_port;
    if (flags.http_port == 0 && attempt == 1) {
      options.http_port = FreePort(flags.bind, kDefaultHttpPort).value_or(0);
    }
    options.device_memory = flags.device_memory;
    options.callback_limit = flags.callback_limit;
    const auto lock = TakeStateDirectory(options.state_directory, *port);
    absl::Status status = lock.status();
    const std::string directory = options.state_directory;
    Launcher launcher(std::move(options));
    if (status.ok()) status = launcher.Prepare();
    if (status.ok()) status = launcher.Start();
    if (absl::IsAlreadyExists(status) && flags.port == 0 && attempt < kAttempts) continue;
    if (status.ok()) {
      PrintReady(flags, *port, launcher);
      ready(directory);
      status = launcher.Run();
    }
    launcher.StopAll();
    if (absl::IsAborted(status) || status.ok()) return 0;
    const bool port_in_use = absl::IsAlreadyExists(status);
    fmt::print(stderr, "fairway up: {}{}\n", Text(status),
               port_in_use ? "; end what has it, or choose another one (0: any that is free)" : "");
    if (absl::IsInvalidArgument(status)) return kExitUsage;  // a daemon refused its flags
    return port_in_use ? kExitPortInUse : kExitFailed;
  }
}

// Runs the cluster in a background process. Returns when it is ready or has failed, after printing
// its output.
int RunDetached(const UpFlags& flags, const std::string& plugin) {
  auto pipe = MakePipe();
  if (!pipe.ok()) {
    fmt::print(stderr, "fairway up: {}\n", Text(pipe.status()));
    return kExitFailed;
  }
  OwnedFd read_end = std::move(pipe->first);
  OwnedFd write_end = std::move(pipe->second);
  const pid_t background = ::fork();
  if (background < 0) {
    fmt::print(stderr, "fairway up: cannot fork\n");
    return kExitFailed;
  }
  if (background == 0) {
    ::setsid();
    read_end.Reset();
    // The foreground process gets all output until the cluster is ready, and none after that.
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    ::dup2(write_end.get(), STDOUT_FILENO);
    ::dup2(write_end.get(), STDERR_FILENO);
    InitLogging({.component = "up", .island = {}, .worker = {}}, "info");
    const int code = RunCluster(flags, plugin, [&](const std::string& state_directory) {
      std::fputc('\0', stdout);
      std::fflush(stdout);
      const OwnedFd log(::open((state_directory + "/up.log").c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
      ::dup2(log.get() >= 0 ? log.get() : null, STDOUT_FILENO);
      ::dup2(log.get() >= 0 ? log.get() : null, STDERR_FILENO);
      write_end.Reset();
    });
    ::_exit(code);
  }
  write_end.Reset();
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = ::read(read_end.get(), buffer, sizeof(buffer))) > 0)
    text.append(buffer, static_cast<size_t>(n));
  if (!text.empty() && text.back() == '\0') {
    text.pop_back();
    fmt::print("{}", text);
    return 0;
  }
  fmt::print(stderr, "{}", text);
  int status = 0;
  ::waitpid(background, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : kExitFailed;
}

void AddFlags(Config& config, UpFlags& flags) {
  config.File("up");
  config.Flag("islands", &flags.islands, "Number of islands");
  config.Flag("devices", &flags.devices, "Devices of each island");
  config.Flag(
      "workers-per-island", &flags.workers_per_island,
      "Processes that share the devices of each island; more than 1 with --runtime host or sim");
  config.Flag("port", &flags.port,
              "Where clients connect; 0: 29000 if that is free, else any free port");
  config.Flag("http-port", &flags.http_port,
              "Port of health checks and metrics; 0: 29001 if that is free, else any free port");
  config.BytesFlag(
      "device-memory", &flags.device_memory,
      "Memory of each device, e.g. 512MiB; 0: all of the host's for each, but with --runtime "
      "sim no limit");
  config.Flag("callback-limit", &flags.callback_limit,
              "Time that a Python function may take when a program on devices calls it; 0: any");
  config.Flag("detach", &flags.detach,
              "Return once the cluster is ready; it goes on in the background");
  config.Flag("bind", &flags.bind,
              "Loopback address that the controller listens on: 127.0.0.1, ::1");
  config.Flag(
      "runtime", &flags.runtime,
      "What drives the devices: pjrt (a plugin: everything that JAX compiles) host (native "
      "kernels only, in this host's memory) or sim (native programs, which take their declared "
      "time and compute nothing)");
  config.Flag("plugin", &flags.plugin,
              "Path of the PJRT plugin; default: xla-cpu-pjrt of the Python environment");
  config.Variable("plugin", "FAIRWAY_PJRT_PLUGIN");
  config.Flag("plugin-kind", &flags.plugin_kind, "Which options the plugin has: cpu or cuda");
  config.Flag("plugin-option", &flags.plugin_options,
              "NAME=VALUE: an option of every worker's plugin; may be given several times. "
              "`fairway-worker --help` says more");
  config.Flag(
      "gpus", &flags.gpus,
      "Kind cuda: GPUs by index or UUID with commas between, those of the first island first; "
      "one may be listed for several islands. Default: 0, 1, 2, ...");
  config.Flag("gpu-fraction", &flags.gpu_fraction,
              "Kind cuda: the share of its GPUs' memory that each worker takes, for islands that "
              "share a GPU: 0.4, say. 0: all of it");
  config.Flag("preload", &flags.preload,
              "Library that every worker opens before the plugin; may be given several times");
  config.Flag("allow-raw-kernels", &flags.allow_raw_kernels,
              "Kind cuda: run kernels that clients bring, which can read and write whatever is on "
              "the GPU");
  config.Flag("tune-on-gpu", &flags.tune_on_gpu,
              "Kind cuda: tune convolutions, products and sorts on the GPU when they are compiled. "
              "`fairway-worker --help` says what it takes");
}

absl::Status CheckFlags(const UpFlags& flags) {
  if (flags.islands < 1 || flags.islands > 1000)
    return InvalidArgument("--islands must be 1 to 1000");
  if (flags.devices < 1 || flags.devices > 1024)
    return InvalidArgument("--devices must be 1 to 1024");
  if (flags.port < 0 || flags.port > 65535) return InvalidArgument("--port must be 0 to 65535");
  if (flags.http_port < 0 || flags.http_port > 65535)
    return InvalidArgument("--http-port must be 0 to 65535");
  if (const auto port = FreePort(flags.bind, 0); !port.ok())
    return InvalidArgument("--bind={}: {}", flags.bind, Text(port.status()));
  if (!CheckPlainBind(flags.bind).ok()) {
    return InvalidArgument(
        "--bind={}: other hosts can reach it, and a cluster of `fairway up` speaks plain text: "
        "make certificates with `fairway init DIRECTORY`, and start fairway-controller and "
        "fairway-worker with them (docs/install.md)",
        flags.bind);
  }
  if (flags.runtime != "pjrt" && flags.runtime != "host" && flags.runtime != "sim")
    return InvalidArgument("--runtime is '{}', not pjrt, host or sim", flags.runtime);
  if (flags.workers_per_island < 1 || flags.workers_per_island > flags.devices ||
      flags.devices % flags.workers_per_island != 0)
    return InvalidArgument("--workers-per-island must divide --devices");
  if (flags.workers_per_island > 1 && flags.runtime == "pjrt")
    return InvalidArgument(
        "--workers-per-island is above 1, but an XLA CPU client cannot span processes: an island "
        "of the pjrt runtime is one worker here. Use --runtime host or sim, or more --islands");
  if (const std::string wrong = WrongGpus(flags); !wrong.empty())
    return InvalidArgument("{}", wrong);
  return absl::OkStatus();
}

// The plugin that the workers load; empty: their runtime needs none.
absl::StatusOr<std::string> PluginOf(const UpFlags& flags) {
  if (flags.runtime != "pjrt") return "";
  if (flags.plugin_kind != "cpu" && flags.plugin_kind != "cuda")
    return InvalidArgument("--plugin-kind is '{}', not cpu or cuda", flags.plugin_kind);
  if (flags.plugin_kind == "cuda" && flags.plugin.empty()) {
    return InvalidArgument(
        "--plugin-kind cuda takes --plugin PATH: xla_cuda_plugin.so of the package "
        "jax-cuda13-pjrt, say");
  }
  const std::string plugin = flags.plugin.empty() ? DefaultPlugin() : flags.plugin;
  if (plugin.empty()) {
    return InvalidArgument(
        "no PJRT plugin found: `pip install xla-cpu-pjrt` brings the one for CPUs to the Python "
        "environment of this command; or give --plugin PATH");
  }
  if (::access(plugin.c_str(), R_OK) != 0)
    return InvalidArgument("cannot read the plugin {}", plugin);
  return plugin;
}

}  // namespace

int RunUp(int argc, const char* const* argv) {
  UpFlags flags;
  Config config("fairway up",
                "Starts a cluster on this host: a controller and the workers of each island.");
  AddFlags(config, flags);
  std::string plugin;
  config.Check([&]() -> absl::Status {
    FAIRWAY_RETURN_IF_ERROR(CheckFlags(flags));
    FAIRWAY_ASSIGN_OR_RETURN(plugin, PluginOf(flags));
    return absl::OkStatus();
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  ::unsetenv("FAIRWAY_CONFIG");  // the daemons of this cluster get flags
  if (flags.detach) return RunDetached(flags, plugin);
  InitLogging({.component = "up", .island = {}, .worker = {}}, "info");
  return RunCluster(flags, plugin, [](const std::string&) {});
}

}  // namespace fairway
