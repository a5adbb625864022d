// SPDX-License-Identifier: Apache-2.0
#include "worker/relay/relay_process.h"

#include <unistd.h>

#include <csignal>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/host.h"
#include "wire/link_codec.h"
#include "worker/process/exit_codes.h"
#include "worker/process/take_revocations.h"

namespace fairway {
namespace {

constexpr std::chrono::milliseconds kTick{100};

RelayCore::Time Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace

// The link to the controller, as RelayCore uses it. It outlives connections.
class RelayProcess::ControllerEnd final : public Link {
 public:
  explicit ControllerEnd(ControllerLink* link) : link_(link) {}
  void Send(Frame frame) override { link_->Send(std::move(frame)); }
  size_t queued_bytes() const override { return link_->queued_bytes(); }
  void Close() override {}  // the relay stays connected between its tasks
  std::string peer() const override { return link_->controller(); }

 private:
  ControllerLink* const link_;
};

RelayProcess::RelayProcess(EventLoop& loop, RelayConfig config)
    : loop_(loop),
      config_(std::move(config)),
      incarnation_(RandomIncarnation()),
      controller_(std::make_unique<ControllerEnd>(&link_)),
      core_({.self = incarnation_, .limits = {}}, this),
      port_(loop, &core_, Now),
      link_(loop, config_.controller, config_.tls,
            {.on_open = [this] { Register(); },
             .on_message = [this](const v1::FromController& message) { OnMessage(message); },
             .on_log_frame = [this](const Frame& frame) { OnLogFrame(frame); },
             .on_end = [this](const std::string& why, bool) { OnLinkEnd(why); },
             .fill_heartbeat =
                 [this](v1::Heartbeat& to) {
                   to.set_relayed_messages(core_.sent_messages());
                   to.set_relayed_bytes(core_.sent_bytes());
                 }}),
      parent_(loop, config_.tls,
              {.on_open = [this](Link* link) { core_.ParentUp(link); },
               .on_frame =
                   [this](const Frame& frame) {
                     const absl::Status status = core_.FromParent(frame, Now());
                     if (!status.ok()) parent_.End(Text(status));
                   },
               .on_end = [this](Link* link) { core_.ParentEnded(link); }}) {}

RelayProcess::~RelayProcess() = default;

absl::Status RelayProcess::Start() {
  FAIRWAY_ASSIGN_OR_RETURN(
      server_, ListenTcp(
                   loop_, config_.bind,
                   [this](std::unique_ptr<Link> link) { port_.Accept(std::move(link)); },
                   TlsUse{config_.tls, Role::kWorker}));
  std::string host = config_.advertise_host;
  if (host.empty()) host = config_.bind.substr(0, config_.bind.rfind(':'));
  if (host.empty() || host == "0.0.0.0" || host == "[::]") host = HostName();
  endpoint_ = fmt::format("{}:{}", host, server_->port());
  spdlog::info("the relay of worker {} listens at {}", config_.worker, endpoint_);
  link_.Connect();
  Tick();
  AskLater();
  return absl::OkStatus();
}

int RelayProcess::Run() {
  loop_.Run();
  return exit_code_.value_or(kExitInternal);
}

void RelayProcess::Tick() {
  core_.Tick(Now());
  port_.Tick();
  loop_.PostAfter(kTick, "relay tick", [this] { Tick(); });
}

void RelayProcess::AskLater() {
  const auto pause = AskPause(++asked_);
  loop_.PostAfter(pause, "ask relays", [this, due = Now() + pause] {
    core_.Ask(Now(), Now() - due);
    AskLater();
  });
}

void RelayProcess::Register() {
  v1::ToController message;
  v1::RegisterRelay* const to = message.mutable_register_relay();
  SayLinkProtocols(to);
  to->set_worker(config_.worker);
  to->set_incarnation(incarnation_.value);
  to->set_endpoint(endpoint_);
  to->set_host(HostName());
  to->set_pid(::getpid());
  link_.Send(message);
}

void RelayProcess::OnMessage(const v1::FromController& message) {
  switch (message.message_case()) {
    case v1::FromController::kWorkerRegistered:
      if (const auto protocol = TakenLinkProtocol(message.worker_registered().protocol());
          !protocol.ok())
        return link_.End(Text(protocol.status()));
      return link_.StartHeartbeats(message.worker_registered().heartbeat_interval_ms(),
                                   message.worker_registered().deadline_ms());
    case v1::FromController::kRelayTask:
      return OnTask(message.relay_task());
    case v1::FromController::kRevokedWorkers:
      if (const auto taken = TakeRevocations(message.revoked_workers(), config_.tls.get());
          !taken.ok())
        link_.End(Text(taken));
      return;
    case v1::FromController::kFence:
      spdlog::error("fenced by the controller: {}", message.fence().reason());
      exit_code_ = kExitFenced;
      return loop_.Stop();
    default:
      return link_.End("the controller sent a message that is not for relays");
  }
}

void RelayProcess::OnTask(const v1::RelayTask& task) {
  const absl::Status status = core_.OnTask(task, controller_.get(), Now());
  if (core_.parent().empty()) parent_.Follow({});
  if (!status.ok()) link_.End(Text(status));
}

void RelayProcess::OnLogFrame(const Frame& frame) {
  if (!core_.parent().empty()) return;  // of a task before
  if (const absl::Status status = core_.FromParent(frame, Now()); !status.ok())
    link_.End(Text(status));
}

void RelayProcess::OnLinkEnd(const std::string& why) {
  if (link_.end_is_news()) spdlog::warn("link to {} ended: {}", config_.controller, why);
  core_.Stop();
  parent_.Follow({});
  link_.Connect();
}

void RelayProcess::DialParent(const std::string& endpoint) { parent_.Follow(endpoint); }

void RelayProcess::Tell(v1::RelayTrouble trouble) {
  spdlog::warn("the relay gives up a child: {}", trouble.reason());
  v1::ToController message;
  *message.mutable_relay_trouble() = std::move(trouble);
  link_.Send(message);
}

int RunRelay(const RelayConfig& config) {
  std::signal(SIGPIPE, SIG_IGN);
  // These may come to the whole process group; the supervisor decides what they mean.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  EventLoop loop;
  RelayProcess process(loop, config);
  if (const absl::Status status = process.Start(); !status.ok()) {
    spdlog::error("--relay-bind: {}", Text(status));
    return absl::IsAlreadyExists(status) ? kExitPortTaken : kExitInternal;
  }
  return process.Run();
}

}  // namespace fairway
