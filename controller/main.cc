// SPDX-License-Identifier: Apache-2.0
// fairway-controller: the one process that holds the dataflow graph, the array table, the
// schedulers and the front doors.
//
// Exit codes: 0 orderly end (SIGTERM, SIGINT, `fairway down`); 1 failure, the log says why; 2 wrong
// usage; 3 the process that started it went away; 5 a port is in use.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/config.h"
#include "base/host.h"
#include "base/log.h"
#include "controller/access/call_access.h"
#include "controller/admin/admin_service.h"
#include "controller/callbacks/grpc_service.h"
#include "controller/daemon/controller_shell.h"
#include "controller/daemon/grpc_server.h"
#include "controller/daemon/metrics.h"
#include "controller/daemon/process_watch.h"
#include "controller/daemon/web_pages.h"
#include "controller/ifrt/door.h"
#include "controller/ifrt/grpc_service.h"
#include "controller/native/door.h"
#include "controller/native/grpc_service.h"
#include "identity/certificates.h"
#include "identity/gate.h"
#include "identity/issuer.h"
#include "identity/plain_text.h"
#include "identity/tls_flags.h"
#include "transport/front.h"
#include "transport/http_server.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitOrphaned = 3;
constexpr int kExitPortInUse = 5;
constexpr std::chrono::milliseconds kShutdownGrace{500};
constexpr std::chrono::milliseconds kExpiryPeriod{1000};
constexpr int kMostLaunchesAhead = 1024;
constexpr size_t kMostRenewing = 64;  // renewals that wait for the disk

// What the controller holds for all sessions, of all kinds together (docs/design/0059-shares.md).
// Whoever gives one kind more gives all of them as much.
constexpr int64_t kSessionMemory = int64_t{768} << 20;
// Of these: for programs that are being compiled, and the messages to their compilers.
constexpr int64_t kCompilingBytes = int64_t{256} << 20;
// A quarter of the mappings that Linux allows a process by default.
constexpr int64_t kMappedFiles = 16384;

struct Flags {
  std::string bind = "127.0.0.1";
  int port = 29000;
  int http_port = 29001;
  std::vector<std::string> http_names;
  int link_port = 29002;
  int data_port = 29003;
  std::chrono::milliseconds executor_deadline{60000};
  std::chrono::milliseconds link_grace{3000};
  int relay_fan_out = 0;
  std::chrono::milliseconds island_timeout{60000};
  std::chrono::milliseconds forget_after{3600000};
  std::chrono::milliseconds callback_limit{60000};
  int launches_ahead = ClusterOptions().max_gangs_per_device;
  int64_t transit_memory = int64_t{768} << 20;
  int64_t record_memory = int64_t{768} << 20;
  std::string spool_directory = "/tmp";
  std::string log_level = "info";
  std::string log_dir;
  std::string data_directory;
  std::string tls_ca_key;
  std::chrono::milliseconds worker_certificate_life{std::chrono::hours(30 * 24)};
  TlsFiles tls;
  int life_fd = -1;
  int notify_fd = -1;
};

constexpr char kProgram[] = "fairway-controller";
constexpr char kDescription[] = "Drives the devices of all islands on behalf of all clients.";
// What Controller::Reload applies; the other settings are for the life of the process.
const std::set<std::string> kReloaded = {"forget-after", "http-name", "island-timeout",
                                         "log-level"};

void DeclareFlags(Config& config, Flags* flags) {
  config.File("controller");
  config.Flag("bind", &flags->bind,
              "IP address to listen on; one that other hosts reach takes certificates (--tls-ca)");
  config.Flag("port", &flags->port,
              "gRPC: JAX and native clients, administration; 0: any free port");
  config.Flag("http-port", &flags->http_port,
              "HTTP: /healthz, /readyz, /metrics; 0: any free port");
  config.Flag(
      "http-name", &flags->http_names,
      "A name or address by which HTTP clients ask for this host, besides its own name and the "
      "addresses at which it listens; web pages of others get no answer");
  config.Flag("link-port", &flags->link_port, "Where workers connect; 0: any free port");
  config.Flag("data-port", &flags->data_port, "Where executors pull uploads; 0: any free port");
  config.Flag("executor-deadline", &flags->executor_deadline,
              "Silence after which an executor is declared lost");
  config.Flag("link-grace", &flags->link_grace,
              "Time in which the broken connection of an executor may come back before it is "
              "declared lost; 0: none");
  config.Flag("relay-fan-out", &flags->relay_fan_out,
              "Most connections over which the log of an island is sent from the controller and "
              "from each of the workers' relays (--relay-bind), 2 to 1024; 0: the controller sends "
              "it to each executor");
  config.Flag("island-timeout", &flags->island_timeout,
              "Time without executors after which work that waits for an island fails");
  config.Flag("forget-after", &flags->forget_after,
              "Time without any of its workers after which an island that no session knows is "
              "forgotten, and without one of them after which another takes its place; 0: never");
  config.Flag(
      "callback-limit", &flags->callback_limit,
      "Time that a function of a client may take when a program on devices calls it; 0: any");
  config.Flag("launches-ahead", &flags->launches_ahead,
              "Gangs of a device that may be launched and not ended, 1 to 1024: more keep it "
              "busy when programs are short, and make a neighbour wait longer for its turn. "
              "Of programs on one device, twice as many");
  config.BytesFlag(
      "transit-memory", &flags->transit_memory,
      "Host memory for bytes on their way to and from clients; beyond it, and where one "
      "session's uploads have more than they leave to others, they go to unlinked "
      "files, which lie in the host's page cache as long as it has room");
  config.BytesFlag(
      "record-memory", &flags->record_memory,
      "Host memory for the records of all sessions' arrays and unfinished work, about; one "
      "session's may hold as much as is left to others");
  config.Flag("spool-directory", &flags->spool_directory, "Where those files are");
  config.Flag("log-level", &flags->log_level, "trace, debug, info, warn or error");
  config.Flag("log-dir", &flags->log_dir,
              "Where NAME.log of this cluster's processes are, for `fairway logs`");
  config.Flag("data-directory", &flags->data_directory,
              "Where the tokens of clients are kept, by one controller at one time; with --tls-ca");
  DeclareTlsFlags(config, &flags->tls);
  config.Flag("tls-ca-key", &flags->tls_ca_key,
              "PEM file of the key of the first CA in --tls-ca: workers may join by a token "
              "(`fairway token create --worker`); without it they cannot");
  config.Flag("worker-certificate-life", &flags->worker_certificate_life,
              "How long the certificates of workers are valid that this controller signs; a worker "
              "renews its own when two thirds have passed");
  config.Flag("life-fd", &flags->life_fd, "Read end of a pipe; its end-of-file ends this process");
  config.Flag("notify-fd", &flags->notify_fd,
              "Write end of a pipe that gets one line of JSON per event");
}

// Whether the files that the flags name are there, and right.
absl::Status CheckFiles(const Flags& flags) {
  FAIRWAY_RETURN_IF_ERROR(LoadTls(flags.tls, Role::kController).status());
  if (flags.tls_ca_key.empty() || flags.tls.ca.empty()) return absl::OkStatus();
  Certified authority;
  FAIRWAY_ASSIGN_OR_RETURN(authority.certificate, ReadAuthorities(flags.tls.ca));
  auto key = ReadKeyFile(flags.tls_ca_key);
  if (!key.ok()) {
    return Annotate(key.status(), "--tls-ca-key (without it workers cannot join by a token)");
  }
  authority.key = *std::move(key);
  const auto made = MakeCertificate(authority, {Role::kWorker, "any"}, std::chrono::hours(1));
  if (!made.ok()) return Annotate(made.status(), "--tls-ca-key");
  return absl::OkStatus();
}

absl::Status CheckFlags(const Flags& flags) {
  for (const auto& [name, port] : {std::pair("port", flags.port),
                                   {"http-port", flags.http_port},
                                   {"link-port", flags.link_port},
                                   {"data-port", flags.data_port}}) {
    if (port < 0 || port > 65535) return InvalidArgument("--{}: {} is not 0 to 65535", name, port);
  }
  if (!IsAddress(flags.bind))
    return InvalidArgument("--bind is '{}', not an IP address", flags.bind);
  FAIRWAY_RETURN_IF_ERROR(CheckLogLevel(flags.log_level));
  if (flags.executor_deadline < std::chrono::milliseconds(100))
    return InvalidArgument("--executor-deadline must be at least 100ms");
  if (flags.relay_fan_out != 0 && (flags.relay_fan_out < 2 || flags.relay_fan_out > 1024))
    return InvalidArgument("--relay-fan-out is {}, not 0 or 2 to 1024", flags.relay_fan_out);
  if (flags.launches_ahead < 1 || flags.launches_ahead > kMostLaunchesAhead) {
    return InvalidArgument("--launches-ahead is {}, not 1 to {}", flags.launches_ahead,
                           kMostLaunchesAhead);
  }
  if (flags.worker_certificate_life < std::chrono::seconds(10))
    return InvalidArgument("--worker-certificate-life must be at least 10s");
  const bool tls = !flags.tls.certificate.empty();
  if (tls && flags.data_directory.empty()) {
    return InvalidArgument(
        "--data-directory is missing: with certificates clients need tokens, which are kept there "
        "(`fairway init` makes the first)");
  }
  if (!tls && !flags.data_directory.empty()) {
    return InvalidArgument(
        "--data-directory is for the tokens of clients, for which only a controller with "
        "certificates asks (--tls-ca)");
  }
  if (!tls && !flags.tls_ca_key.empty())
    return InvalidArgument("--tls-ca-key needs --tls-ca, --tls-certificate and --tls-key");
  if (tls) return absl::OkStatus();
  return Annotate(CheckPlainBind(flags.bind), "--bind=" + flags.bind);
}

// The settings as they are, and how they are read again.
struct Settings {
  Flags flags;
  std::vector<std::string> args;
  std::map<std::string, std::string> values;  // Config::Values
};

// Reads the settings that `settings->args`, the environment and the file have. `reload`: the files
// that they name have been read, and are not tried again.
Config::Outcome Read(Settings* settings, bool reload = false) {
  Config config(kProgram, kDescription);
  DeclareFlags(config, &settings->flags);
  config.Check([settings, reload] {
    if (!reload) FAIRWAY_RETURN_IF_ERROR(CheckFiles(settings->flags));
    return CheckFlags(settings->flags);
  });
  Config::Outcome outcome = config.Parse(settings->args, Config::ProcessEnvironment);
  settings->values = config.Values();
  return outcome;
}

class Controller {
 public:
  explicit Controller(Settings settings) : settings_(std::move(settings)) {}
  ~Controller() {
    if (ender_.joinable()) ender_.join();
  }

  absl::Status Start();
  int Run() {
    loop_.Run();
    return exit_code_;
  }

 private:
  HttpAnswer OnHttp(const HttpRequest& request);
  // Why somebody may read no more by HTTP than that this process lives: the one place that decides
  // it.
  std::optional<HttpAnswer> Refusal(const HttpRequest& request);
  AdminHooks Hooks();
  CallAccess Access();
  // Opens the doors for clients, with the callback router that they and the shell share.
  void OpenDoors(const Spool& spool, const std::shared_ptr<MemoryBudget>& memory);
  using Renewed = std::function<void(absl::StatusOr<IssuedCertificate>)>;
  // Makes the next certificate of a worker that has shown its present one.
  void Renew(const std::string& worker, const CertificateHash& shown, std::string request,
             Renewed done);
  // Ends what was opened with tokens that have expired, again and again.
  void EndExpired();
  void OnIslands(size_t up);
  void OnSignal(int number);
  // Reads the settings file again, and applies what of it can change while the process runs.
  void Reload();
  void Notify(const std::string& line);
  // Ends the process in order; the loop stops once all clients are gone.
  void End(std::string_view why, int exit_code);

  Settings settings_;
  const Flags& flags_ = settings_.flags;
  // The members below use the loop and the pool.
  EventLoop loop_;
  std::unique_ptr<Gate> gate_;             // nullptr: no certificates, and so no tokens
  std::shared_ptr<TlsIdentity> identity_;  // as gate_, and what follows
  std::unique_ptr<Issuer> issuer_;
  BlockingPool disk_{"fairway-disk", 1};
  BlockingPool tokens_{"fairway-tokens", 1};
  std::unique_ptr<ControllerShell> shell_;
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<CallbackGrpcService> callbacks_;
  std::unique_ptr<IfrtDoor> door_;
  std::unique_ptr<IfrtGrpcService> ifrt_;
  std::unique_ptr<NativeDoor> native_door_;
  std::unique_ptr<NativeGrpcService> native_;
  std::unique_ptr<HttpServer> http_;
  std::shared_ptr<Front> front_;  // of grpc_
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<ProcessWatch> watch_;
  std::thread ender_;
  Refusals refusals_;  // of HTTP
  bool ending_ = false;
  int exit_code_ = 0;
};

ControllerOptions OptionsOf(const Flags& flags, const Spool& spool,
                            std::shared_ptr<MemoryBudget> memory,
                            std::shared_ptr<TlsIdentity> tls) {
  ControllerOptions options;
  options.bind = flags.bind;
  options.link_port = flags.link_port;
  options.data_port = flags.data_port;
  options.executor_deadline = flags.executor_deadline;
  options.link_grace = flags.link_grace;
  options.relay_fan_out = flags.relay_fan_out;
  options.island_timeout = flags.island_timeout;
  options.forget_after = flags.forget_after;
  options.log_dir = flags.log_dir;
  options.cluster.max_gangs_per_device = flags.launches_ahead;
  options.cluster.record_memory = static_cast<size_t>(std::max<int64_t>(flags.record_memory, 0));
  options.cluster.memory = std::move(memory);
  options.cluster.max_singles_per_device = 2 * flags.launches_ahead;
  if (flags.life_fd >= 0) options.launcher_pid = ::getppid();
  options.tls = std::move(tls);
  options.spool = spool;
  return options;
}

AdminHooks Controller::Hooks() {
  AdminHooks hooks;
  hooks.loop = &loop_;
  hooks.disk = &disk_;
  hooks.snapshot = [this] { return shell_->Snapshot(); };
  hooks.restart_executor = [this](const std::string& worker) {
    return shell_->RestartExecutor(worker, "it was ended by `fairway restart`");
  };
  hooks.end_worker = [this](auto& worker, auto& why) { shell_->EndWorker(worker, why); };
  hooks.shutdown = [this] {
    shell_->StopWorkers("the cluster is taken down");
    End("told to end the cluster", 0);
  };
  hooks.log_dir = flags_.log_dir;
  hooks.access = Access();
  hooks.gate = gate_.get();
  hooks.tokens = &tokens_;
  hooks.issuer = issuer_.get();
  hooks.link_port = shell_->link_port();
  return hooks;
}

CallAccess Controller::Access() {
  return CallAccess(&loop_, gate_.get(),
                    [front = front_](const auto&... call) { return front->LetIn(call...); });
}

void Controller::OpenDoors(const Spool& spool, const std::shared_ptr<MemoryBudget>& memory) {
  const auto messages = std::make_shared<MemoryBudget>(kMessageBytes, memory);
  const CallAccess access = Access();
  SessionCaps caps;
  caps.compiling = std::make_shared<MemoryBudget>(kCompilingBytes, memory);
  callbacks_ = std::make_unique<CallbackGrpcService>(
      &loop_, CallbackLimits{.call_ms = flags_.callback_limit.count()},
      CallbackGrpcService::Executors{.answer =
                                         [this](ExecutorId executor, CallbackAnswer answer) {
                                           shell_->AnswerCallback(executor, std::move(answer));
                                         },
                                     .fetch_arguments =
                                         [this](ExecutorId executor, const CallbackCall& call) {
                                           shell_->FetchArguments(executor, call);
                                         }},
      access);
  shell_->set_callbacks(&callbacks_->router());
  door_ = std::make_unique<IfrtDoor>(
      &shell_->cluster(), &shell_->compiler(),
      IfrtSessionOptions{.caps = caps,
                         .blocks = BlockPool::Make(0, spool),
                         .fetched = std::make_shared<MemoryBudget>(int64_t{512} << 20, memory)});
  door_->set_callbacks(&callbacks_->router());
  ifrt_ = std::make_unique<IfrtGrpcService>(
      &loop_, door_.get(), IfrtGrpcOptions{.spool = spool, .messages = messages, .access = access});
  native_door_ = std::make_unique<NativeDoor>(
      &shell_->cluster(), &shell_->compiler(),
      NativeSessionOptions{.caps = caps, .server = "fairway-controller " FAIRWAY_VERSION});
  native_ = std::make_unique<NativeGrpcService>(&loop_, native_door_.get(),
                                                NativeGrpcOptions{spool, messages, access});
}

absl::Status Controller::Start() {
  const auto memory = std::make_shared<MemoryBudget>(
      std::max({kSessionMemory, flags_.transit_memory, flags_.record_memory}));
  const Spool spool{std::make_shared<MemoryBudget>(flags_.transit_memory, memory),
                    flags_.spool_directory, nullptr,
                    std::make_shared<BlockingPool>("fairway-files", 2),
                    std::make_shared<MemoryBudget>(kMappedFiles)};
  FAIRWAY_ASSIGN_OR_RETURN(auto tls, LoadTls(flags_.tls, Role::kController));
  if (tls != nullptr) {
    auto gate = Gate::Open(flags_.data_directory);
    if (!gate.ok()) return Annotate(gate.status(), "--data-directory");
    gate_ = *std::move(gate);
    FAIRWAY_ASSIGN_OR_RETURN(
        issuer_,
        Issuer::Open(gate_.get(), &tls->revocations(),
                     {flags_.tls.ca, flags_.tls_ca_key,
                      std::chrono::floor<std::chrono::seconds>(flags_.worker_certificate_life)}));
    identity_ = tls;
    EndExpired();
  }
  ControllerOptions options = OptionsOf(flags_, spool, memory, tls);
  if (issuer_ != nullptr) {
    options.renew = [this](auto&&... what) { Renew(std::forward<decltype(what)>(what)...); };
  }
  FAIRWAY_ASSIGN_OR_RETURN(shell_, ControllerShell::Start(loop_, std::move(options)));

  auto http = HttpServer::Listen(
      loop_, flags_.bind, flags_.http_port,
      [this](const HttpRequest& request) { return OnHttp(request); }, tls);
  if (!http.ok()) return Annotate(http.status(), fmt::format("--http-port={}", flags_.http_port));
  http_ = *std::move(http);
  shell_->set_http_address(
      fmt::format("{}{}", tls != nullptr ? "https://" : "", HostPort(flags_.bind, http_->port())));

  auto front = Front::Listen(flags_.bind, flags_.port, TlsUse{tls, std::nullopt});
  if (!front.ok()) return Annotate(front.status(), fmt::format("--port={}", flags_.port));
  front_ = *std::move(front);
  admin_ = MakeAdminService(Hooks());
  OpenDoors(spool, memory);
  auto grpc =
      GrpcServer::Start(front_,
                        {[this](grpc::ServerBuilder* builder) { admin_->Register(builder); },
                         [this](grpc::ServerBuilder* builder) { ifrt_->Register(builder); },
                         [this](grpc::ServerBuilder* builder) { native_->Register(builder); },
                         [this](grpc::ServerBuilder* builder) { callbacks_->Register(builder); }},
                        tls);
  if (!grpc.ok()) return grpc.status();
  grpc_ = *std::move(grpc);
  grpc_->SetServing(false);

  shell_->set_on_islands([this](size_t up) { OnIslands(up); });
  std::vector<int> signals = {SIGTERM, SIGINT};
  // Without a file there is nothing to read again, and the end of a terminal ends what runs in it.
  if (!settings_.values.at("config").empty()) signals.push_back(SIGHUP);
  watch_ = ProcessWatch::Start(
      loop_, signals, flags_.life_fd,
      {.on_signal = [this](int number) { OnSignal(number); },
       .on_orphaned =
           [this] { End("the process that started this one went away", kExitOrphaned); }});

  const bool loopback = CheckPlainBind(flags_.bind).ok();
  spdlog::info("listening on {} ({}; {}): clients {}, HTTP {}, workers {}, data {}", flags_.bind,
               loopback ? "this host only; --bind changes that" : "reachable from other hosts",
               tls != nullptr ? "by TLS, for those who show a token"
                              : "in plain text, for this user and root",
               grpc_->port(), http_->port(), shell_->link_port(), shell_->data_port());
  const auto made_by_init = std::filesystem::path(flags_.tls.ca).parent_path();
  if (!flags_.tls_ca_key.empty() && std::filesystem::exists(made_by_init / "admin.token")) {
    spdlog::info("next, a token for each worker: fairway token create --worker NAME --from {}",
                 made_by_init.string());
  }
  Notify(fmt::format(
      R"({{"event":"listening","port":{},"http_port":{},"link_port":{},"data_port":{}}})",
      grpc_->port(), http_->port(), shell_->link_port(), shell_->data_port()));
  return absl::OkStatus();
}

std::optional<HttpAnswer> Controller::Refusal(const HttpRequest& request) {
  if (!request.not_ours.empty()) {
    refusals_.Log(request.peer, request.not_ours);
    return HttpAnswer{.status = 403, .body = "this is for another user\n"};
  }
  if (gate_ == nullptr) return std::nullopt;
  const std::string host(request.peer.substr(0, request.peer.rfind(':')));
  const Verdict verdict = gate_->Judge(
      {.verb = Verb::kReadMetrics, .authorization = request.authorization, .host = host});
  if (verdict.status.ok()) return std::nullopt;
  const bool unknown = verdict.status.code() == absl::StatusCode::kUnauthenticated;
  return HttpAnswer{
      .status = unknown ? 401 : 403, .body = Text(verdict.status) + "\n", .delay = verdict.delay};
}

HttpAnswer Controller::OnHttp(const HttpRequest& request) {
  const std::string_view path = request.path;
  if (path == "/healthz") return {.body = "ok\n"};
  if (path == "/readyz") {
    const size_t up = shell_->islands_up();
    if (ending_) return {.status = 503, .body = "ending\n"};
    if (up == 0) return {.status = 503, .body = "waiting\n"};
    return {.body = "ready\n"};
  }
  std::vector<std::string> names = flags_.http_names;
  names.push_back(HostName());
  if (const std::string refusal = RefusedPage(request, names); !refusal.empty())
    return {.status = 403, .body = refusal + "\n"};
  if (auto refusal = Refusal(request)) return *std::move(refusal);
  if (path == "/metrics")
    return {.content_type = kMetricsContentType, .body = MetricsText(shell_->Snapshot())};
  if (path == "/") {
    return {.body =
                fmt::format("Fairway controller {}: /healthz /readyz /metrics\n", FAIRWAY_VERSION)};
  }
  return {.status = 404, .body = "not found: there are /healthz, /readyz and /metrics\n"};
}

void Controller::Renew(const std::string& worker, const CertificateHash& shown, std::string request,
                       Renewed done) {
  if (tokens_.pending() >= kMostRenewing) {
    return done(Error(absl::StatusCode::kResourceExhausted,
                      "{} others wait for the controller's disk; try again", kMostRenewing));
  }
  // Workers take turns with each other, and with those who have tokens.
  const uint64_t owner = std::hash<std::string>()(worker) | 1ULL << 63;
  tokens_.Run(
      [this, worker, shown, request = std::move(request), done = std::move(done)]() mutable {
        auto made = issuer_->Renew(worker, shown, request);
        gate_->Record({}, Verb::kJoin, "renew the certificate of worker " + worker, made.status());
        loop_.Post("renewed", [done = std::move(done), made = std::move(made)]() mutable {
          done(std::move(made));
        });
      },
      owner);
}

void Controller::EndExpired() {
  gate_->EndExpired();
  loop_.PostAfter(kExpiryPeriod, "expired tokens", [this] { EndExpired(); });
}

void Controller::OnIslands(size_t up) {
  spdlog::info("islands up: {}", up);
  if (!ending_) grpc_->SetServing(up > 0);
  Notify(fmt::format(R"({{"event":"islands","up":{}}})", up));
}

void Controller::OnSignal(int number) {
  if (number == SIGHUP) return Reload();
  if (ending_) std::_Exit(kExitFailed);  // a second signal ends it at once
  End(number == SIGTERM ? "SIGTERM" : "SIGINT", 0);
}

void Controller::Reload() {
  Settings fresh{.flags = {}, .args = settings_.args, .values = {}};
  if (!TakeReload(Read(&fresh, /*reload=*/true), settings_.values, fresh.values, kReloaded)) return;
  Flags& flags = settings_.flags;
  flags.forget_after = fresh.flags.forget_after;
  flags.http_names = std::move(fresh.flags.http_names);
  flags.island_timeout = fresh.flags.island_timeout;
  flags.log_level = std::move(fresh.flags.log_level);
  shell_->set_timeouts(flags.island_timeout, flags.forget_after);
  SetLogLevel(flags.log_level);
}

void Controller::Notify(const std::string& line) {
  if (flags_.notify_fd < 0) return;
  const std::string text = line + "\n";
  // If the reader is gone or full it misses the line; nothing here depends on it.
  [[maybe_unused]] const ssize_t written = ::write(flags_.notify_fd, text.data(), text.size());
}

void Controller::End(std::string_view why, int exit_code) {
  if (ending_) return;
  ending_ = true;
  exit_code_ = exit_code;
  spdlog::info("ending: {}", why);
  ender_ = std::thread([this] {
    grpc_->SetServing(false);
    callbacks_->Shutdown(std::chrono::milliseconds(0));
    ifrt_->Shutdown(kShutdownGrace);
    native_->Shutdown(kShutdownGrace);
    grpc_->Shutdown(kShutdownGrace);
    loop_.Stop();
  });
}

int Main(int argc, char** argv) {
  Settings settings{.flags = {}, .args = {argv + 1, argv + argc}, .values = {}};
  const Config::Outcome outcome = Read(&settings);
  std::fputs(outcome.output.c_str(), stdout);
  std::fputs(outcome.error.c_str(), stderr);
  if (outcome.exit_code) return *outcome.exit_code;
  const Flags& flags = settings.flags;
  if (flags.life_fd >= 0 && ::fcntl(flags.life_fd, F_GETFD) < 0) {
    fmt::print(stderr, "{}: --life-fd is {}, not an open descriptor\n", kProgram, flags.life_fd);
    return kExitUsage;
  }
  InitLogging({.component = "controller", .island = {}, .worker = {}}, flags.log_level);
  std::signal(SIGPIPE, SIG_IGN);
  RaiseOpenFilesLimit();
  for (const int fd : {flags.life_fd, flags.notify_fd}) {
    if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  if (flags.notify_fd >= 0) ::fcntl(flags.notify_fd, F_SETFL, O_NONBLOCK);
  Controller controller(std::move(settings));
  if (absl::Status status = controller.Start(); !status.ok()) {
    spdlog::error("cannot start: {}", Text(status));
    return absl::IsAlreadyExists(status) ? kExitPortInUse : kExitFailed;
  }
  const int code = controller.Run();
  spdlog::info("ended");
  return code;
}

}  // namespace
}  // namespace fairway

int main(int argc, char** argv) { return fairway::Main(argc, argv); }
