// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/controller_shell.h"

#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <variant>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "async/timed.h"
#include "base/config.h"
#include "base/host.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/daemon/metrics.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

ControllerOptions WithNewKey(ControllerOptions options) {
  options.cluster.data_key = RandomPortKey();
  return options;
}

// A pause of the controller from which on it is logged.
constexpr milliseconds kWorthTelling{1000};

// So long after a worker was told that its certificates were revoked, its connections end.
constexpr milliseconds kEndRevokedAfter{1000};

// The cause, without the last lines of the executor's log, which may be of any program.
std::string FirstLineOf(const absl::Status& cause) {
  const std::string text = Text(cause);
  return text.substr(0, std::min(text.find("; the last lines of its log:"), text.find('\n')));
}

uint64_t InlineBytes(const Command& command) {
  uint64_t bytes = 0;
  if (const auto* receive = std::get_if<PrepareReceive>(&command)) {
    for (const ShardSource& source : receive->sources) {
      if (source.bytes != nullptr) bytes += source.bytes->size();
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControllerShell>> ControllerShell::Start(EventLoop& loop,
                                                                        ControllerOptions options) {
  std::unique_ptr<ControllerShell> shell(new ControllerShell(loop, std::move(options)));
  FAIRWAY_RETURN_IF_ERROR(shell->Listen());
  return shell;
}

ControllerShell::ControllerShell(EventLoop& loop, ControllerOptions options)
    : loop_(loop),
      options_(WithNewKey(std::move(options))),
      incarnation_(RandomIncarnation()),
      started_(Clock::now()),
      clock_(started_, 2 * TickInterval()),
      alive_(std::make_shared<bool>(true)),
      host_(HostName()),
      cluster_(std::make_unique<Cluster>(options_.cluster, this)),
      compiler_(std::make_unique<CompileService>(
          cluster_.get(), this, CompileService::kCacheBytes, options_.cluster.memory,
          [this](SessionId session, std::function<void()> work, std::function<void()> then) {
            packing_.Run(
                [&loop = loop_, work = std::move(work), then = std::move(then)]() mutable {
                  work();
                  loop.Post("code described", std::move(then));
                },
                session.value);
          })) {}

ControllerShell::~ControllerShell() { *alive_ = false; }

absl::Status ControllerShell::Listen() {
  auto data = MakeTcpDataPlane(
      loop_, HostPort(options_.bind, options_.data_port), options_.bind, incarnation_,
      options_.cluster.data_key,
      [this](PullRequest request, DataPlane::Answer answer) { Serve(request, std::move(answer)); },
      options_.spool, {}, {}, {}, TlsUse{options_.tls, std::nullopt});
  if (!data.ok()) return Annotate(data.status(), fmt::format("--data-port={}", options_.data_port));
  data_plane_ = *std::move(data);
  const std::string endpoint = data_plane_->endpoint();
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  data_port_ = std::stoi(port);

  WorkerHubOptions hub;
  hub.controller = incarnation_;
  hub.data_endpoint = ":" + port;
  hub.deadline = options_.executor_deadline;
  hub.link_grace = options_.link_grace;
  hub.links.fanout = static_cast<size_t>(options_.relay_fan_out);
  hub.links.secret = RandomSecret;
  hub.renew = options_.renew;
  hub.refused = [this](const std::string& peer, const std::string& why) {
    const std::string host = peer.substr(0, peer.rfind(':'));
    Note({.kind = EventKind::kRefusals,
          .warning = true,
          .reason = "WorkerRefused",
          .object = "host " + host,
          .text = "a worker was refused: " + why,
          .owner = host});
  };
  if (options_.tls != nullptr) {
    hub.revocations = &options_.tls->revocations();
    options_.tls->revocations().set_changed(
        [&loop = loop_, this, alive = alive_](const std::string& worker) {
          loop.Post("revocation", [this, alive, worker] {
            if (*alive) hub_->TellRevocation(worker);
          });
        });
  }
  hub.off_loop = [this](std::function<void()> work, std::function<void()> then) {
    packing_.Run(
        [&loop = loop_, work = std::move(work), then = std::move(then)]() mutable {
          work();
          loop.Post("large message", std::move(then));
        },
        0);
  };
  WorkerHubEvents* const events = this;
  hub_ = std::make_unique<WorkerHub>(loop_, hub, events, [this] { return clock_.now(); });
  auto server = ListenTcp(
      loop_, HostPort(options_.bind, options_.link_port),
      [this](std::unique_ptr<Link> link) { hub_->Accept(std::move(link)); },
      TlsUse{options_.tls, Role::kWorker});
  if (!server.ok())
    return Annotate(server.status(), fmt::format("--link-port={}", options_.link_port));
  link_server_ = *std::move(server);
  Tick();
  if (options_.relay_fan_out > 0) AskRelaysLater();
  return absl::OkStatus();
}

void ControllerShell::EndWorker(const std::string& worker, const std::string& why) {
  hub_->EndWorker(worker, why);
  if (options_.tls == nullptr) return;
  // Those at the data port, and links that have not ended by themselves once they heard the reason.
  loop_.PostAfter(kEndRevokedAfter, "end revoked",
                  [tls = options_.tls] { tls->revocations().EndRevoked(); });
}

int64_t ControllerShell::UptimeMs() const {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - started_).count();
}

int64_t ControllerShell::NowMs() const {
  return std::chrono::duration_cast<milliseconds>(clock_.now() - started_).count();
}

milliseconds ControllerShell::TickInterval() const {
  return std::clamp(options_.executor_deadline / 20, milliseconds(10), milliseconds(100));
}

void ControllerShell::Tick() {
  loop_.PostAfter(TickInterval(), "controller tick", [this, alive = alive_] {
    if (!*alive) return;
    const auto stopped = clock_.Advance(Clock::now());
    if (stopped > kWorthTelling)
      spdlog::warn("the controller did not run for {:.1f} s, which count for no deadline",
                   std::chrono::duration<double>(stopped).count());
    hub_->Tick();
    cluster_->Tick(NowMs());
    if (callbacks_ != nullptr) callbacks_->Tick(NowMs());
    WatchIslands();
    WatchStalled();
    ForgetGone();
    Tick();
  });
}

void ControllerShell::AskRelaysLater() {
  const milliseconds pause = AskPause(++relays_asked_);
  loop_.PostAfter(pause, "ask relays", [this, alive = alive_, due = Clock::now() + pause] {
    if (!*alive) return;
    hub_->AskRelays(Clock::now() - due);
    AskRelaysLater();
  });
}

void ControllerShell::WatchIslands() {
  const auto now = clock_.now();
  size_t up = 0;
  for (const IslandStatus& island : cluster_->fleet().Islands()) {
    IslandRecord& record = islands_[island.id];
    if (island.executors_up > 0) {
      record.empty_since.reset();
    } else if (!record.empty_since) {
      record.empty_since = now;
    }
    if (island.up && !std::exchange(record.is_up, true)) {
      const bool again = std::exchange(record.was_up, true);
      Note(IslandEvent(
          island.name, again ? "IslandBack" : "IslandUp",
          fmt::format("it is up{}: {} workers", again ? " again" : "", island.executors_up)));
    }
    if (!island.up && std::exchange(record.is_up, false))
      Note(IslandEvent(island.name, "IslandLost", "it is down: it has lost an executor",
                       /*warning=*/true));
    if (island.up) {
      ++up;
      record.down_since.reset();
      record.given_up = false;
      continue;
    }
    if (!record.down_since) record.down_since = now;
    if (now - *record.down_since < options_.island_timeout || std::exchange(record.given_up, true))
      continue;
    std::string last_error;
    for (const ExecutorStatus& executor : cluster_->fleet().Executors()) {
      if (executor.island == island.id && !executor.up) last_error = executor.last_error;
    }
    spdlog::warn("{} is given up: down for {}", island.name,
                 FormatDuration(options_.island_timeout));
    Note(IslandEvent(
        island.name, "IslandGivenUp",
        fmt::format("it was down for {} (--island-timeout): work that waits for it fails",
                    FormatDuration(options_.island_timeout)),
        /*warning=*/true));
    cluster_->fleet().IslandGivenUp(
        island.id,
        Error(absl::StatusCode::kUnavailable, "it did not come back within {}{}{}",
              FormatDuration(options_.island_timeout), last_error.empty() ? "" : ": ", last_error));
  }
  if (up == islands_up_) return;
  islands_up_ = up;
  if (on_islands_) on_islands_(up);
}

void ControllerShell::Note(NewEvent event) const {
  if (options_.note) options_.note(std::move(event));
}

void ControllerShell::NoteExecutor(ExecutorId executor, std::string reason, std::string text,
                                   bool warning) const {
  const ExecutorSpec* const spec = hub_->Spec(executor);
  if (spec == nullptr) return;
  NewEvent event = IslandEvent(spec->island, std::move(reason), std::move(text), warning);
  event.object = "worker " + spec->worker;
  Note(std::move(event));
}

void ControllerShell::WatchStalled() {
  const auto now = hub_->Stalled();
  for (const auto& [id, silence] : now) {
    if (stalled_.insert(id).second)
      NoteExecutor(
          id, "ExecutorStalled",
          "its executor is silent while its host answers: it is stopped, or its machine overloaded",
          /*warning=*/true);
  }
  std::erase_if(stalled_, [&](ExecutorId id) {
    if (now.contains(id)) return false;
    if (hub_->Connected(id)) NoteExecutor(id, "ExecutorRuns", "its executor goes on");
    return true;
  });
}

void ControllerShell::ForgetGone() {
  std::erase_if(forgetting_, [this](const auto& entry) {
    compiler_->ForgetIsland(entry.first);
    return cluster_->fleet().ForgetIsland(entry.first, entry.second);
  });
  if (options_.forget_after.count() == 0) return;
  const auto before = clock_.now() - options_.forget_after;
  const auto gone = [&](const auto& entry) {
    return entry.second.empty_since && *entry.second.empty_since < before;
  };
  if (std::ranges::none_of(islands_, gone)) return;
  for (const IslandStatus& island : cluster_->fleet().Islands()) {
    const auto record = islands_.find(island.id);
    if (record == islands_.end() || !gone(*record) || island.sessions > 0 ||
        hub_->HasWorker(island.name))
      continue;
    Forget(island, fmt::format("none of its workers was there for {} (--forget-after)",
                               FormatDuration(options_.forget_after)));
  }
}

void ControllerShell::Forget(const IslandStatus& island, const std::string& why) {
  std::vector<std::string> workers;
  for (const ExecutorStatus& executor : cluster_->fleet().Executors()) {
    if (executor.island != island.id) continue;
    workers.push_back(executor.spec.worker);
    hub_->Forget(executor.id);
    executors_.erase(executor.id);
  }
  spdlog::info("{} (workers {}) is forgotten: {}", island.name, fmt::join(workers, ", "), why);
  Note(IslandEvent(island.name, "IslandForgotten", "it is forgotten: " + why));
  islands_.erase(island.id);
  const absl::Status cause =
      Error(absl::StatusCode::kUnavailable, "it was forgotten: {}; open a new session", why);
  compiler_->ForgetIsland(island.id);
  if (!cluster_->fleet().ForgetIsland(island.id, cause)) forgetting_.emplace(island.id, cause);
}

void ControllerShell::MakePlaceFor(const ExecutorSpec& spec) {
  if (options_.forget_after.count() == 0 || spec.island_workers == 1) return;
  std::vector<std::string> members;
  std::string gone;
  const auto before = clock_.now() - options_.forget_after;
  for (const ExecutorStatus& executor : cluster_->fleet().Executors()) {
    if (executor.spec.island != spec.island) continue;
    if (executor.spec.worker == spec.worker) return;
    members.push_back(executor.spec.worker);
    const auto record = executors_.find(executor.id);
    if (record != executors_.end() && record->second.gone_since &&
        *record->second.gone_since < before && !hub_->Supervisors().contains(executor.spec.worker))
      gone = executor.spec.worker;
  }
  if (gone.empty() || members.size() < static_cast<size_t>(spec.island_workers)) return;
  const std::string why =
      fmt::format("worker {} takes the place of {}, which was away for {} (--forget-after)",
                  spec.worker, gone, FormatDuration(options_.forget_after));
  hub_->EndIsland(spec.island, why);
  for (const IslandStatus& island : cluster_->fleet().Islands()) {
    if (island.name == spec.island) Forget(island, why);
  }
}

// ---- Workers ----

absl::StatusOr<ExecutorId> ControllerShell::OnExecutorUp(const ExecutorSpec& spec) {
  MakePlaceFor(spec);
  auto id = cluster_->fleet().ExecutorUp(spec);
  if (id.ok()) {
    executors_[*id].gone_since.reset();
    loop_.Post("islands", [this, alive = alive_] {
      if (*alive) WatchIslands();
    });
  }
  return id;
}

void ControllerShell::OnExecutorLost(ExecutorId executor, const absl::Status& cause) {
  cluster_->fleet().ExecutorLost(executor, cause);
  NoteExecutor(executor, "ExecutorLost", "its executor was lost: " + FirstLineOf(cause),
               /*warning=*/true);
  executors_[executor].gone_since = clock_.now();
  if (callbacks_ != nullptr) callbacks_->ExecutorLost(executor);
  std::erase_if(results_, [&](const auto& entry) { return entry.second.executor == executor; });
  WatchIslands();
}

void ControllerShell::OnCrowded(ExecutorId executor) {
  for (const ExecutorStatus& status : cluster_->fleet().Executors()) {
    if (status.id == executor) compiler_->UnloadUnused(status.island);
  }
}

void ControllerShell::OnReport(ExecutorId executor, Incarnation incarnation, Report report) {
  cluster_->fleet().OnReport(executor, incarnation, std::move(report));
}

void ControllerShell::OnLaunchesEnded(std::vector<NodeId> nodes) {
  cluster_->fleet().LaunchesEnded(std::move(nodes));
}

// ---- ClusterActions ----

void ControllerShell::Send(ExecutorId executor, Command command,
                           std::shared_ptr<MemoryBudget> payer) {
  inline_uploaded_bytes_ += InlineBytes(command);
  hub_->Send(executor, std::move(command), std::move(payer));
}

void ControllerShell::SendAll(ExecutorId first, ExecutorId last, Command command,
                              std::shared_ptr<MemoryBudget> payer) {
  hub_->SendAll(first, last, std::move(command), std::move(payer));
}

void ControllerShell::OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) {
  uploads_[transfer] = std::move(blobs);
}

void ControllerShell::WithdrawUpload(TransferId transfer) { uploads_.erase(transfer); }

void ControllerShell::Serve(PullRequest request, DataPlane::Answer answer) {
  if (IsCallback(request.transfer)) return ServeResult(request, std::move(answer));
  const auto it = uploads_.find(request.transfer);
  if (it == uploads_.end() || request.index < 0 ||
      static_cast<size_t>(request.index) >= it->second.size() ||
      it->second[static_cast<size_t>(request.index)] == nullptr) {
    return answer(Error(absl::StatusCode::kNotFound,
                        "the controller has no shard {} of transfer {} (any more)", request.index,
                        request.transfer));
  }
  const BytesRef& blob = it->second[static_cast<size_t>(request.index)];
  answer(DataView{blob->view(), blob});
}

void ControllerShell::PullToHost(TransferId transfer, ExecutorId executor, int32_t index,
                                 int64_t bytes) {
  ++executors_[executor].fetches;
  const ExecutorSpec* const spec = hub_->Spec(executor);
  if (spec == nullptr || !hub_->Connected(executor)) {
    // The loss is on its way to the core, with its cause; the core waits for that.
    loop_.Post("pull from a lost executor", [this, alive = alive_, transfer] {
      if (*alive)
        cluster_->arrays().FetchArrived(transfer, absl::UnavailableError("it is not connected"));
    });
    return;
  }
  Pull(*spec, transfer, index, bytes,
       [this, alive = alive_, transfer](absl::StatusOr<std::shared_ptr<Blob>> blob) {
         if (!*alive) return;
         if (!blob.ok()) return cluster_->arrays().FetchArrived(transfer, blob.status());
         cluster_->arrays().FetchArrived(transfer, BytesRef(*std::move(blob)));
       });
}

void ControllerShell::Pull(const ExecutorSpec& from, TransferId transfer, int32_t index,
                           int64_t bytes, DataPlane::PullDone done) {
  PullRequest request;
  request.transfer = transfer;
  request.index = index;
  request.ticket = TicketFor(from.data_key, transfer, incarnation_);
  data_plane_->Pull(from.data_endpoint, from.incarnation, request, bytes, std::move(done));
}

void ControllerShell::WantTurn() {
  loop_.Post("core turn", [this, alive = alive_] {
    if (*alive) cluster_->Turn();
  });
}

void ControllerShell::Discard(std::shared_ptr<const void> garbage) {
  discards_.Run([garbage = std::move(garbage)] {});
}

// ---- CompileBackend ----

void ControllerShell::Compile(SessionId session, IslandId island,
                              std::shared_ptr<const std::string> program,
                              v1::CompileOptions options,
                              std::function<void(absl::StatusOr<CompiledCode>)> done) {
  if (const ExecutorSpec* const spec = cluster_->fleet().AnyOf(island); spec != nullptr) {
    packer_.Pack(
        session, std::move(program), std::move(options),
        [this, alive = alive_, name = spec->island, done = std::move(done)](Frame request) mutable {
          if (*alive) hub_->Compile(name, std::move(request), std::move(done));
        });
    return;
  }
  loop_.Post("no island", [island, done = std::move(done)] {
    done(Error(absl::StatusCode::kNotFound, "there is no island {}", island));
  });
}

// ---- Looking ----

ControllerSnapshot ControllerShell::Snapshot() const {
  ControllerSnapshot out;
  out.version = FAIRWAY_VERSION;
  out.incarnation = incarnation_;
  out.host = host_;
  out.controller_pid = ::getpid();
  out.launcher_pid = options_.launcher_pid;
  out.uptime_ms = UptimeMs();
  out.http_address = http_address_;
  out.link_address = HostPort(options_.bind, link_server_->port());
  out.log_dir = options_.log_dir;
  out.counts = cluster_->inspection().counts();
  out.islands = cluster_->fleet().Islands();
  out.absent_cordons = cluster_->fleet().AbsentCordons();
  out.executors = cluster_->fleet().Executors();
  // In the order of slices in sessions, not in the order of registration.
  std::sort(out.islands.begin(), out.islands.end(),
            [](const IslandStatus& a, const IslandStatus& b) { return a.name < b.name; });
  std::sort(out.executors.begin(), out.executors.end(),
            [](const ExecutorStatus& a, const ExecutorStatus& b) {
              return std::tie(a.spec.island, a.spec.worker) <
                     std::tie(b.spec.island, b.spec.worker);
            });
  out.usage = cluster_->fleet().Usage();
  out.supervisors = hub_->Supervisors();
  out.stalled = hub_->Stalled();
  out.said = hub_->Said();
  out.health = hub_->Health();
  out.relays = hub_->RelayTree();
  out.relay_troubles = hub_->relays().troubles;
  out.relay_moves = hub_->relays().moves;
  out.uploaded_bytes = inline_uploaded_bytes_ + data_plane_->ServedBytes();
  for (const auto& [endpoint, bytes] : data_plane_->PulledBytes()) out.fetched_bytes += bytes;
  for (const auto& [id, record] : executors_) out.executor_fetches[id] = record.fetches;
  out.transferred_bytes = hub_->transferred_bytes();
  out.commands = hub_->traffic().sent;
  out.reports = hub_->traffic().received;
  out.commands_sent = hub_->commands_sent();
  out.links_resumed = hub_->links_resumed();
  out.compilations = compiler_->compilations();
  out.compile_cache_hits = compiler_->cache_hits();
  out.longest_handler = LongestHandlerHere().processor;
  out.open_fds = CountOpenFds();
  out.threads = CountThreads();
  return out;
}

}  // namespace fairway
