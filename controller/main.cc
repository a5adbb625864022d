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
#include "async/service_manager.h"
#include "base/config.h"
#include "base/host.h"
#include "base/log.h"
#include "base/recent_lines.h"
#include "controller/access/call_access.h"
#include "controller/admin/admin_service.h"
#include "controller/callbacks/grpc_service.h"
#include "controller/daemon/controller_shell.h"
#include "controller/daemon/grpc_server.h"
#include "controller/daemon/metrics.h"
#include "controller/daemon/own_certificate.h"
#include "controller/daemon/process_watch.h"
#include "controller/daemon/web_pages.h"
#include "controller/events/event_ring.h"
#include "controller/ifrt/door.h"
#include "controller/ifrt/grpc_service.h"
#include "controller/native/door.h"
#include "controller/native/grpc_service.h"
#include "controller/settings.h"
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
constexpr size_t kMostRenewing = 64;  // renewals that wait for the disk

// What the controller holds for all sessions, of all kinds together (docs/design/0059-shares.md).
// Whoever gives one kind more gives all of them as much.
constexpr int64_t kSessionMemory = int64_t{768} << 20;
// Of these: for programs that are being compiled, and the messages to their compilers.
constexpr int64_t kCompilingBytes = int64_t{256} << 20;
// A quarter of the mappings that Linux allows a process by default.
constexpr int64_t kMappedFiles = 16384;

// What Controller::Reload applies; the other settings are for the life of the process.
const std::set<std::string> kReloaded = {"forget-after", "http-name", "island-timeout",
                                         "log-level"};

class Controller {
 public:
  // `lines`: what this process logs.
  Controller(ControllerSettings settings, std::shared_ptr<RecentLines> lines)
      : settings_(std::move(settings)), lines_(std::move(lines)) {}
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
  // Why somebody may read no more by HTTP than that this process lives: decided here alone.
  std::optional<HttpAnswer> Refusal(const HttpRequest& request);
  AdminHooks Hooks();
  NoteEvent Noting();
  CallAccess Access();
  // Opens the doors for clients, with the callback router that they and the shell share.
  void OpenDoors(const Spool& spool, const std::shared_ptr<MemoryBudget>& memory);
  using Renewed = std::function<void(absl::StatusOr<IssuedCertificate>)>;
  // Makes the next certificate of a worker that has shown its present one.
  void Renew(const std::string& worker, const CertificateHash& shown, std::string request,
             Renewed done);
  // Has its own certificate renewed, if the CA's key is there.
  void RenewOwn();
  // Ends what was opened with tokens that have expired, again and again.
  void EndExpired();
  void OnIslands(size_t up);
  void OnSignal(int number);
  // Reads the settings file again, and applies what of it can change while the process runs.
  void Reload();
  void Notify(const std::string& line);
  // Ends the process in order; the loop stops once all clients are gone.
  void End(std::string_view why, int exit_code);

  ControllerSettings settings_;
  const ControllerFlags& flags_ = settings_.flags;
  const std::shared_ptr<RecentLines> lines_;
  // The members below use the loop and the pool.
  EventLoop loop_;
  ServiceManager manager_{loop_};          // before any thread starts
  std::unique_ptr<Gate> gate_;             // nullptr: no certificates, and so no tokens
  std::shared_ptr<TlsIdentity> identity_;  // as gate_, and what follows
  std::unique_ptr<Issuer> issuer_;
  EventRing events_{flags_.tls.certificate.empty() ? EventRing::Tenants::kOfAnybody
                                                   : EventRing::Tenants::kOfTokens};
  BlockingPool disk_{"fairway-disk", 1};
  std::unique_ptr<OwnCertificate> own_certificate_;  // nullptr: there is no key of the CA
  BlockingPool tokens_{"fairway-tokens", 1};         // which may still use that
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

ControllerOptions OptionsOf(const ControllerFlags& flags, const Spool& spool,
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
  options.cluster.max_singles_per_device = flags.launches_ahead;
  if (flags.life_fd >= 0) options.launcher_pid = ::getppid();
  options.tls = std::move(tls);
  options.spool = spool;
  return options;
}

AdminHooks Controller::Hooks() {
  AdminHooks hooks;
  hooks.loop = &loop_;
  hooks.logs = {
      .loop = &loop_,
      .disk = &disk_,
      .directory = flags_.log_dir,
      .lines = lines_,
      .workers = [this] { return shell_->Workers(); },
      .ask = [this](auto& worker, auto done) { shell_->AskRecentLines(worker, std::move(done)); }};
  hooks.snapshot = [this] { return shell_->Snapshot(); };
  hooks.cluster = &shell_->cluster();
  hooks.events = &events_;
  hooks.note = Noting();
  hooks.restart_executor = [this](const std::string& worker) {
    return shell_->RestartExecutor(worker, "it was ended by `fairway restart`");
  };
  hooks.end_worker = [this](auto& worker, auto& why) { shell_->EndWorker(worker, why); };
  hooks.shutdown = [this] {
    shell_->StopWorkers("the cluster is taken down");
    End("told to end the cluster", 0);
  };
  hooks.access = Access();
  hooks.gate = gate_.get();
  hooks.tokens = &tokens_;
  hooks.issuer = issuer_.get();
  hooks.link_port = shell_->link_port();
  return hooks;
}

NoteEvent Controller::Noting() {
  return [this](NewEvent event) {
    events_.Add(std::move(event),
                std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()));
  };
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
  door_->set_note(Noting());
  ifrt_ = std::make_unique<IfrtGrpcService>(
      &loop_, door_.get(), IfrtGrpcOptions{.spool = spool, .messages = messages, .access = access});
  native_door_ = std::make_unique<NativeDoor>(
      &shell_->cluster(), &shell_->compiler(),
      NativeSessionOptions{.caps = caps, .server = "fairway-controller " FAIRWAY_VERSION});
  native_door_->set_note(Noting());
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
    RenewOwn();
  }
  ControllerOptions options = OptionsOf(flags_, spool, memory, tls);
  options.note = Noting();
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
  RpcMethods methods;
  for (const RpcMethods& of :
       {admin_->methods(), ifrt_->methods(), native_->methods(), callbacks_->methods()})
    methods.insert(of.begin(), of.end());
  auto grpc = GrpcServer::Start(front_, std::move(methods), tls);
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
  loop_.Post("ready", [this] { manager_.Ready(); });
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

void Controller::RenewOwn() {
  if (flags_.tls_ca_key.empty()) return;
  own_certificate_ = std::make_unique<OwnCertificate>(
      loop_, tokens_, identity_, flags_.tls_ca_key, [this](const absl::Status& status) {
        gate_->Record({}, Verb::kJoin, "renew the certificate of the controller", status);
      });
  own_certificate_->Start();
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
  ControllerSettings fresh{.flags = {}, .args = settings_.args, .values = {}};
  if (!TakeReload(ReadSettings(&fresh, /*reload=*/true), settings_.values, fresh.values, kReloaded))
    return;
  ControllerFlags& flags = settings_.flags;
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
  manager_.Stopping(10 * kShutdownGrace);
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
  ControllerSettings settings{.flags = {}, .args = {argv + 1, argv + argc}, .values = {}};
  const Config::Outcome outcome = ReadSettings(&settings);
  std::fputs(outcome.output.c_str(), stdout);
  std::fputs(outcome.error.c_str(), stderr);
  if (outcome.exit_code) return *outcome.exit_code;
  const ControllerFlags& flags = settings.flags;
  if (flags.life_fd >= 0 && ::fcntl(flags.life_fd, F_GETFD) < 0) {
    fmt::print(stderr, "{}: --life-fd is {}, not an open descriptor\n", kControllerProgram,
               flags.life_fd);
    return kExitUsage;
  }
  const auto lines = std::make_shared<RecentLines>();
  InitLogging({.component = "controller", .island = {}, .worker = {}}, flags.log_level, lines);
  std::signal(SIGPIPE, SIG_IGN);
  RaiseOpenFilesLimit();
  for (const int fd : {flags.life_fd, flags.notify_fd}) {
    if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  if (flags.notify_fd >= 0) ::fcntl(flags.notify_fd, F_SETFL, O_NONBLOCK);
  Controller controller(std::move(settings), lines);
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
