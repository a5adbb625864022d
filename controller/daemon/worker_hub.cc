// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/worker_hub.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "base/planted.h"
#include "controller/daemon/executor_log.h"
#include "controller/daemon/worker_hub_peers.h"
#include "transport/frame.h"
#include "wire/limits.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxFirstFrame = 128 << 10;        // of links on which nobody has registered yet
constexpr size_t kParsedAtOnce = size_t{64} << 10;  // another thread parses larger messages

// Executors may say anything.
std::chrono::nanoseconds Nanoseconds(uint64_t said) {
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min<uint64_t>(said, INT64_MAX)));
}

}  // namespace

WorkerHub::WorkerHub(Loop& loop, WorkerHubOptions options, WorkerHubEvents* events,
                     std::function<Clock::time_point()> now)
    : loop_(loop),
      options_(std::move(options)),
      events_(events),
      now_(std::move(now)),
      alive_(std::make_shared<bool>(true)),
      strangers_(options_.unregistered_links) {}

WorkerHub::~WorkerHub() { *alive_ = false; }

void WorkerHub::Accept(std::unique_ptr<Link> link) {
  link->LimitFrames(kMaxFirstFrame);
  auto peer = std::make_unique<Peer>();
  Peer& p = *peer;
  p.number = next_peer_++;
  p.link = std::move(link);
  p.heard = now_();
  p.stranger = strangers_.Add(p.link->peer(), [this, &p] {
    refusals_.Log(p.link->peer(), fmt::format("over {} links wait for a registration",
                                              options_.unregistered_links));
    peers_.erase(p.number);  // at once: it is not trusted to take a last message
  });
  p.link->on_frame = [this, &p](Frame frame) { OnFrame(p, std::move(frame)); };
  p.link->on_closed = [this, &p](absl::Status status) { OnClosed(p, status); };
  peers_[p.number] = std::move(peer);
}

void WorkerHub::Reply(Peer& peer, const v1::FromController& message) {
  Frame frame = PackFrame(message);
  if (peer.role == Role::kExecutor) executors_[peer.executor]->kept.Stamp(frame);
  peer.link->Send(std::move(frame));
}

bool WorkerHub::IsUp(const Executor& executor) {
  return executor.state == Executor::State::kUp ||
         (executor.state == Executor::State::kLinkEnded && executor.resumes);
}

void WorkerHub::FencePeer(Peer& peer, const std::string& reason, bool asked) {
  if (peer.role == Role::kNew && options_.refused)
    options_.refused(std::string(peer.link->peer()), reason);
  v1::FromController message;
  message.mutable_fence()->set_reason(reason);
  message.mutable_fence()->set_asked(asked);
  Reply(peer, message);
  Finish(peer);
}

void WorkerHub::Finish(Peer& peer) {
  if (peer.role == Role::kDone) return;
  peer.role = Role::kDone;
  strangers_.Remove(peer.stranger);
  peer.heard = now_();
  peer.link->Close();
}

void WorkerHub::OnFrame(Peer& peer, Frame frame) {
  if (peer.role == Role::kDone) return;
  if (!Planted(Bug::kReportsAreSilence) || peer.role == Role::kNew) peer.heard = now_();
  if (frame.type == kLogReportFrame && peer.role == Role::kExecutor)
    return OnLogReport(peer, frame);
  if (frame.type == kLogReportFrame && peer.role == Role::kRelay) return OnRelayReport(peer, frame);
  if (peer.role == Role::kSupervisor && frame.payload.size() > kParsedAtOnce &&
      options_.off_loop != nullptr)
    return TakeLarge(peer, std::move(frame));
  v1::ToController message;
  if (absl::Status status = UnpackFrame(frame, &message); !status.ok())
    return Malformed(peer, status);
  OnMessage(peer, message, frame, std::nullopt);
}

void WorkerHub::OnMessage(Peer& peer, v1::ToController& message, const Frame& frame,
                          std::optional<uint32_t> code_crc) {
  using Kind = v1::ToController::MessageCase;
  if (peer.role == Role::kNew) {
    strangers_.Remove(peer.stranger);  // it registers now, or is sent away
    return OnFirst(peer, message);
  }
  if (peer.role == Role::kPulse) return;  // a pulse carries no messages
  if (peer.role == Role::kRelay) return OnRelayMessage(peer, message);
  const bool executor = peer.role == Role::kExecutor;
  if (executor) {
    const absl::StatusOr<bool> fresh = executors_[peer.executor]->kept.Take(frame);
    if (!fresh.ok())
      return GiveUp(
          peer, fmt::format("its messages do not follow each other ({})", Text(fresh.status())));
    if (!*fresh) return;
  }
  switch (message.message_case()) {
    case Kind::kHeartbeat:
      return OnHeartbeat(peer, message.heartbeat());
    case Kind::kReport:
      if (!executor) break;
      ++received_.messages;
      received_.bytes += kFrameHeaderBytes + frame.payload.size();
      AcknowledgeReport(peer, frame.payload.size());
      return OnReport(peer, message.report());
    case Kind::kCallback:
      if (executor) return OnCallback(peer, message.callback());
      break;
    case Kind::kCallbackGivenUp:
      if (executor)
        return events_->OnCallbackGivenUp(peer.executor, message.callback_given_up().call());
      break;
    case Kind::kExecutorDied:
      if (!executor) return OnExecutorDied(peer, message.executor_died());
      break;
    case Kind::kCompileResponse:
      if (!executor)
        return OnCompileResponse(peer, std::move(*message.mutable_compile_response()), code_crc);
      break;
    case Kind::kRecentLines:
      if (!executor) return OnRecentLines(peer, std::move(*message.mutable_recent_lines()));
      break;
    case Kind::kLogAsk:
      if (executor) return OnLogAsk(peer, message.log_ask());
      break;
    case Kind::kRegisterExecutor:
    case Kind::kResumeExecutor:
    case Kind::kRegisterWorker:
    case Kind::kPulse:
    case Kind::kRegisterRelay:
    case Kind::kRelayTrouble:
    case Kind::kRenewCertificate:
    case Kind::MESSAGE_NOT_SET:
      break;
  }
  spdlog::warn("worker {} sent a message that does not belong on this link; ignored", peer.worker);
}

void WorkerHub::Malformed(Peer& peer, const absl::Status& status) {
  spdlog::warn("{} sent what is no message of ours ({}); closing the link", peer.link->peer(),
               Text(status));
  if (peer.role == Role::kExecutor) return GiveUp(peer, "it sent a malformed message");
  const Role role = peer.role;
  Finish(peer);
  if (role == Role::kSupervisor) SupervisorEnded(peer);
  if (role == Role::kRelay) RelayEnded(peer);
}

std::optional<std::string> WorkerHub::WorkerOf(const v1::ToController& message) const {
  if (message.has_register_executor()) return message.register_executor().spec().worker();
  if (message.has_register_worker()) return message.register_worker().worker();
  if (message.has_pulse()) return message.pulse().worker();
  if (message.has_register_relay()) return message.register_relay().worker();
  if (!message.has_resume_executor()) return std::nullopt;
  const auto executor = executors_.find(ExecutorId(message.resume_executor().executor()));
  if (executor == executors_.end()) return std::nullopt;
  return executor->second->spec.worker;
}

void WorkerHub::OnFirst(Peer& peer, const v1::ToController& message) {
  const std::optional<Subject> proved = peer.link->subject();
  const std::optional<std::string> worker = WorkerOf(message);
  if (proved && worker && proved->name != *worker) {
    return FencePeer(
        peer, fmt::format("it calls itself worker '{}', and its certificate (--tls-certificate) is "
                          "that of worker '{}': use one name in --name and in the certificate",
                          BoundedText(*worker, 200), proved->name));
  }
  if (message.has_register_executor()) return OnRegisterExecutor(peer, message.register_executor());
  if (message.has_resume_executor()) return OnResumeExecutor(peer, message.resume_executor());
  if (message.has_register_worker()) return OnRegisterWorker(peer, message.register_worker());
  if (message.has_pulse()) return OnPulse(peer, message.pulse());
  if (message.has_register_relay()) return OnRegisterRelay(peer, message.register_relay());
  if (message.has_renew_certificate()) return OnRenewCertificate(peer, message.renew_certificate());
  FencePeer(peer, "the first message on a link must be a registration");
}

WorkerHub::Executor* WorkerHub::FindExecutor(const std::string& worker) {
  const auto it = executor_of_worker_.find(worker);
  return it == executor_of_worker_.end() ? nullptr : executors_.at(it->second).get();
}

v1::FromController WorkerHub::Accepted(ExecutorId id, uint32_t protocol) const {
  v1::FromController reply;
  auto* const registered = reply.mutable_registered();
  registered->set_controller_incarnation(options_.controller.value);
  registered->set_executor(id.value);
  registered->set_heartbeat_interval_ms(HeartbeatInterval().count());
  registered->set_deadline_ms(options_.deadline.count());
  registered->set_data_endpoint(options_.data_endpoint);
  registered->set_link_grace_ms(options_.link_grace.count());
  registered->set_protocol(protocol);
  return reply;
}

void WorkerHub::OnRegisterExecutor(Peer& peer, const v1::RegisterExecutor& message) {
  if (!Agree(peer, message.protocol(), message.newest_protocol(), message.spec().worker())) return;
  auto spec = ExecutorSpecFromProto(message.spec());
  if (!spec.ok()) return FencePeer(peer, Text(spec.status()));
  spec->takes_spans = peer.protocol >= kTakesSpans;
  if (Executor* old = FindExecutor(spec->worker);
      old != nullptr && old->state != Executor::State::kLost) {
    if (old->state == Executor::State::kUp &&
        (old->host != message.host() || old->pid != message.pid())) {
      return FencePeer(
          peer,
          fmt::format(
              "worker '{}' is already connected from host {} (executor pid {}): the name of a "
              "worker must be unique in the cluster",
              spec->worker, old->host, old->pid));
    }
    // Either the same process registers again before its old link was seen to end, or its successor
    // registers before the cause of the end has come.
    if (old->state == Executor::State::kUp) {
      const auto it = peers_.find(old->peer);
      if (it != peers_.end()) Finish(*it->second);
    }
    DeclareLost(*old, old->link_cause.empty() ? "it registered anew" : old->link_cause);
  }
  std::vector<Early> early;
  early_ = &early;
  const auto id = events_->OnExecutorUp(*spec);
  early_ = nullptr;
  if (!id.ok()) {
    SendEarly(std::move(early));
    return FencePeer(peer, Text(id.status()));
  }

  auto& executor = executors_[*id];
  if (executor == nullptr) {
    executor = std::make_unique<Executor>();
  } else if (executor->spec.data_endpoint != spec->data_endpoint) {
    // Bytes that others have pulled from there since their last heartbeat are not counted.
    island_of_endpoint_.erase(executor->spec.data_endpoint);
  }
  executor_of_worker_[spec->worker] = *id;
  executor->id = *id;
  executor->state = Executor::State::kUp;
  executor->spec = *spec;
  executor->host = message.host();
  executor->pid = message.pid();
  executor->protocol = peer.protocol;
  executor->peer = peer.number;
  executor->link_cause.clear();
  executor->refused.clear();
  executor->kept = {};
  executor->unacknowledged = 0;
  executor->pulled.clear();
  peer.role = Role::kExecutor;
  peer.link->LimitFrames(kMaxFrameBytes);
  peer.worker = spec->worker;
  peer.executor = *id;
  island_of_endpoint_[spec->data_endpoint] = spec->island;
  if (const auto it = supervisors_.find(spec->worker); it != supervisors_.end())
    it->second->belongs = true;

  Reply(peer, Accepted(*id, executor->protocol));
  TellRevocations(peer);
  std::unique_ptr<Island>& island = islands_[spec->island];
  if (island == nullptr) {
    IslandLinksOptions links = options_.links;
    links.controller = options_.controller;
    island.reset(new Island{IslandLinks(std::move(links))});
  }
  executor->island = island.get();
  island->links.Join(*id, peer.link.get(), spec->incarnation, spec->worker);
  OfferRelay(spec->worker);
  SendSoon(*island);
  SendEarly(std::move(early));
  spdlog::info("executor of worker {} is up: {}, {} {} devices, host {}, pid {}", spec->worker,
               spec->island, spec->num_devices, spec->platform_name, message.host(), message.pid());
}

void WorkerHub::OnRegisterWorker(Peer& peer, const v1::RegisterWorker& message) {
  if (!Agree(peer, message.protocol(), message.newest_protocol(), message.worker())) return;
  if (message.worker().empty()) return FencePeer(peer, "a worker needs a name");
  if (const auto it = supervisors_.find(message.worker()); it != supervisors_.end()) {
    const Supervisor& old = *it->second;
    if (old.host != message.host() || old.pid != message.pid()) {
      return FencePeer(
          peer, fmt::format(
                    "worker '{}' is already connected from host {} (pid {}): the name of a worker "
                    "must be unique in the cluster; start this one with another --name",
                    message.worker(), old.host, old.pid));
    }
    const auto old_peer = peers_.find(old.peer);
    if (old_peer != peers_.end()) {
      Peer& stale = *old_peer->second;
      SupervisorEnded(stale);
      Finish(stale);
    }
  }
  if (const auto pulse = pulses_.find(message.worker());
      pulse != pulses_.end() && pulse->second.pid != message.pid()) {  // of another process
    if (const auto it = peers_.find(pulse->second.peer); it != peers_.end()) Finish(*it->second);
    pulses_.erase(pulse);
  }
  auto& supervisor = supervisors_[message.worker()];
  supervisor = std::make_unique<Supervisor>();
  supervisor->peer = peer.number;
  supervisor->island = message.island();
  supervisor->host = message.host();
  supervisor->pid = message.pid();
  supervisor->has_compiler = message.has_compiler();
  const Executor* const executor = FindExecutor(message.worker());
  supervisor->belongs = executor != nullptr && IsUp(*executor);
  peer.role = Role::kSupervisor;
  peer.link->LimitFrames(kMaxFrameBytes);
  peer.worker = message.worker();

  ReplyRegistered(peer);
  spdlog::info("worker {} is connected: {}, host {}, pid {}{}", message.worker(), message.island(),
               message.host(), message.pid(), message.has_compiler() ? ", with a compiler" : "");
}

milliseconds WorkerHub::HeartbeatInterval() const {
  return std::clamp(options_.deadline / 10, milliseconds(20), milliseconds(500));
}

void WorkerHub::OnHeartbeat(Peer& peer, const v1::Heartbeat& heartbeat) {
  v1::FromController reply;
  reply.mutable_heartbeat_ack()->set_sequence(heartbeat.sequence());
  Reply(peer, reply);
  const ProcessLoad process{Nanoseconds(heartbeat.cpu_ns()), heartbeat.resident_bytes()};
  if (const auto it = supervisors_.find(peer.worker);
      peer.role == Role::kSupervisor && it != supervisors_.end()) {
    it->second->counters = {.island = it->second->island,
                            .executor_starts = heartbeat.executor_starts(),
                            .compile_starts = heartbeat.compile_starts(),
                            .compile_crashes = heartbeat.compile_crashes(),
                            .compile_processes = heartbeat.compile_processes(),
                            .process = process};
  }
  if (peer.role != Role::kExecutor) return;
  Executor& executor = *executors_[peer.executor];
  executor.counters = {.launches = heartbeat.launches(),
                       .served_bytes = heartbeat.served_bytes(),
                       .buffers = heartbeat.buffers(),
                       .executables = heartbeat.executables(),
                       .process = process};
  executor.round_trip = Nanoseconds(heartbeat.round_trip_ns());
  executor.load.turn_units = std::max(executor.load.turn_units, heartbeat.turn_units_max());
  executor.load.handler =
      std::max(executor.load.handler, Nanoseconds(heartbeat.handler_cpu_ns_max()));
  const std::string& here = executor.spec.island;
  for (const auto& pulled : heartbeat.pulled()) {
    const auto source = island_of_endpoint_.find(pulled.endpoint());
    if (source == island_of_endpoint_.end()) continue;  // the controller, or nobody
    uint64_t& before = executor.pulled[pulled.endpoint()];
    if (pulled.bytes() > before) CountTransfer(source->second, here, pulled.bytes() - before);
    before = std::max(before, pulled.bytes());
  }
  if (heartbeat.crowded()) events_->OnCrowded(peer.executor);
}

void WorkerHub::OnReport(Peer& peer, const v1::Report& message) {
  auto report = ReportFromProto(message);
  if (!report.ok()) {
    spdlog::warn("worker {} sent a bad report: {}", peer.worker, Text(report.status()));
    return GiveUp(peer, fmt::format("it sent a bad report ({})", Text(report.status())));
  }
  events_->OnReport(peer.executor, Incarnation(message.incarnation()), *std::move(report));
}

void WorkerHub::OnCallback(Peer& peer, const v1::LinkCallback& message) {
  auto call = CallbackFromProto(message);
  if (!call.ok()) return Answer(peer.executor, {message.call(), call.status(), {}, {}});
  events_->OnCallback(peer.executor, *std::move(call));
}

void WorkerHub::Answer(ExecutorId id, const CallbackAnswer& answer) {
  const auto it = executors_.find(id);
  if (it == executors_.end() || !IsUp(*it->second)) return;
  Executor& executor = *it->second;
  v1::FromController message;
  ToProto(answer, message.mutable_callback_answer());
  if (const size_t bytes = message.ByteSizeLong(); bytes > options_.command_bytes) {
    const absl::Status status = Error(absl::StatusCode::kResourceExhausted,
                                      "the answer to a callback has {} bytes, a message has room "
                                      "for {}",
                                      bytes, options_.command_bytes);
    message.Clear();
    ToProto({answer.call, status, {}, {}}, message.mutable_callback_answer());
  }
  Frame frame = executor.kept.Keep(PackFrame(message));
  executor.kept.Stamp(frame);
  if (executor.state == Executor::State::kUp)
    peers_.at(executor.peer)->link->Send(std::move(frame));
}

void WorkerHub::OnClosed(Peer& peer, const absl::Status& status) {
  const Role role = std::exchange(peer.role, Role::kDone);
  strangers_.Remove(peer.stranger);
  if (role == Role::kPulse) PulseEnded(peer, status);
  if (role == Role::kExecutor) {
    ExecutorLinkEnded(
        peer, status.ok() ? "its process ended" : fmt::format("its link broke: {}", Text(status)),
        /*cut=*/true);
  }
  if (role == Role::kRelay) RelayEnded(peer);
  if (role == Role::kSupervisor) {
    SupervisorEnded(peer);
    spdlog::warn("worker {} is disconnected{}{}", peer.worker, status.ok() ? "" : ": ",
                 Text(status));
  }
  // The link may still be on the stack.
  loop_.Post("remove link", [this, alive = alive_, number = peer.number] {
    if (*alive) peers_.erase(number);
  });
}

void WorkerHub::SupervisorEnded(Peer& peer) {
  const auto it = supervisors_.find(peer.worker);
  if (it == supervisors_.end() || it->second->peer != peer.number) return;
  supervisors_.erase(it);
  lines_.Gone(peer.worker);
  LoseIfAlone(peer.worker);
  std::vector<std::function<void(absl::StatusOr<CompiledCode>)>> failed;
  for (auto c = compilations_.begin(); c != compilations_.end();) {
    if (c->second.worker == peer.worker && !Planted(Bug::kKeepCompilation)) {
      failed.push_back(std::move(c->second.done));
      c = compilations_.erase(c);
    } else {
      ++c;
    }
  }
  for (auto& done : failed) {
    done(Error(absl::StatusCode::kUnavailable, "worker {} went away while it compiled",
               peer.worker));
  }
}

void WorkerHub::OnExecutorDied(Peer& peer, const v1::ExecutorDied& died) {
  const std::string how = died.cause().empty() ? "it ended" : died.cause();
  Executor* const executor = FindExecutor(peer.worker);
  if (executor == nullptr ||
      (executor->state == Executor::State::kLost && !Planted(Bug::kLostTwice)) ||
      (executor->spec.incarnation.value != died.incarnation() && !Planted(Bug::kAnyDeath))) {
    spdlog::log(died.asked() ? spdlog::level::info : spdlog::level::warn,
                "executor of worker {} ended: {}{}", peer.worker, how,
                died.asked() ? std::string() : LogText(died));
    return;
  }
  if (const auto it = peers_.find(executor->peer); it != peers_.end()) Finish(*it->second);
  DeclareLost(*executor, how, LogText(died));
}

size_t WorkerHub::open_entries() const {
  size_t open = 0;
  for (const auto& [name, island] : islands_) open += island->links.open();
  return open;
}

absl::Status WorkerHub::CheckInvariants(std::optional<int64_t> charged) const {
  int64_t held = 0;
  for (const auto& [name, island] : islands_) held += island->links.charged_bytes();
  if (charged.value_or(held) != held)
    return Error(absl::StatusCode::kInternal,
                 "{} bytes of commands are counted, but the logs have {}", *charged, held);
  for (const auto& [id, executor] : executors_) {
    const auto it = executor_of_worker_.find(executor->spec.worker);
    if (it == executor_of_worker_.end() || it->second != id ||
        executor_of_worker_.size() != executors_.size())
      return Error(absl::StatusCode::kInternal, "worker {} is not found by its name",
                   executor->spec.worker);
  }
  for (const auto& [name, island] : islands_) {
    FAIRWAY_RETURN_IF_ERROR(Annotate(island->links.CheckInvariants(), "the log of " + name));
  }
  return absl::OkStatus();
}

void WorkerHub::StopWorkers(const std::string& reason) {
  v1::FromController message;
  message.mutable_stop_worker()->set_reason(reason);
  stopping_ = true;
  for (const auto& [worker, supervisor] : supervisors_) Reply(*peers_[supervisor->peer], message);
}

bool WorkerHub::Connected(ExecutorId executor) const {
  const auto it = executors_.find(executor);
  return it != executors_.end() && IsUp(*it->second);
}

const ExecutorSpec* WorkerHub::Spec(ExecutorId executor) const {
  const auto it = executors_.find(executor);
  return it == executors_.end() ? nullptr : &it->second->spec;
}

bool WorkerHub::HasWorker(const std::string& island) const {
  return std::ranges::any_of(supervisors_,
                             [&](const auto& entry) { return entry.second->island == island; });
}

std::set<std::string> WorkerHub::Supervisors() const {
  std::set<std::string> out;
  for (const auto& [worker, supervisor] : supervisors_) out.insert(worker);
  return out;
}

}  // namespace fairway
