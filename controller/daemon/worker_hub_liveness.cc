// SPDX-License-Identifier: Apache-2.0
// Liveness: silent hosts, silent processes, deaths, restarts (docs/design/0057-liveness.md).
#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "base/planted.h"
#include "controller/daemon/executor_log.h"
#include "controller/daemon/worker_hub_peers.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

// An executor that was silent for longer is shown as stalled.
constexpr milliseconds kStalledAfter{3000};
// Bytes of reports after which they are acknowledged; fewer are with the next heartbeat.
constexpr size_t kAcknowledgedBytes = 256 << 10;

double Seconds(milliseconds duration) { return static_cast<double>(duration.count()) / 1000; }

}  // namespace

void WorkerHub::DeclareLost(Executor& executor, const std::string& how, const std::string& log,
                            bool asked) {
  executor.state = Executor::State::kLost;
  LeaveLog(executor);
  // The core adds which executor it is; this text tells how it was lost.
  const absl::Status cause = Error(absl::StatusCode::kDataLoss, "{} (host {}, pid {}){}", how,
                                   executor.host, executor.pid, log);
  if (stopping_) return;  // sessions are told that the controller ends, not what they lose by it
  if (asked) {
    spdlog::info("the executor of worker {} ({}) is started anew: {} (host {}, pid {})",
                 executor.spec.worker, executor.spec.island, how, executor.host, executor.pid);
  } else {
    spdlog::warn("the executor of worker {} ({}) was lost: {}", executor.spec.worker,
                 executor.spec.island, Text(cause));
  }
  events_->OnExecutorLost(executor.id, cause);
}

void WorkerHub::EndExecutor(Executor& executor, const std::string& why, bool asked) {
  if (Planted(Bug::kForgetKill)) return DeclareLost(executor, why, {}, asked);
  if (const auto it = supervisors_.find(executor.spec.worker); it != supervisors_.end()) {
    v1::FromController kill;
    kill.mutable_kill_executor()->set_incarnation(executor.spec.incarnation.value);
    kill.mutable_kill_executor()->set_reason(why);
    kill.mutable_kill_executor()->set_asked(asked);
    Reply(*peers_[it->second->peer], kill);
  }
  if (executor.state == Executor::State::kUp)
    FencePeer(*peers_.at(executor.peer), asked ? why : "declared lost: " + why, asked);
  DeclareLost(executor, why, {}, asked);
}

bool WorkerHub::Restarting(const Island& island) const {
  return std::ranges::any_of(executors_, [&](const auto& entry) {
    const Executor& executor = *entry.second;
    const auto was = island.restarted.find(executor.spec.worker);
    return was != island.restarted.end() && executor.spec.incarnation == was->second;
  });
}

absl::StatusOr<Incarnation> WorkerHub::RestartExecutor(const std::string& worker,
                                                       const std::string& reason) {
  const Executor* const asked_for = FindExecutor(worker);
  if (asked_for == nullptr) {
    std::vector<std::string> known;
    for (const auto& [id, executor] : executors_) known.push_back(executor->spec.worker);
    std::ranges::sort(known);  // they register in any order
    return Error(absl::StatusCode::kNotFound, "no executor of a worker '{}' has registered; of {}",
                 worker, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  }
  const std::string island = asked_for->spec.island;
  std::map<std::string, Incarnation>& ended = asked_for->island->restarted;
  if (!Restarting(*asked_for->island) || Planted(Bug::kRestartAgain)) ended.clear();
  if (const auto under_way = ended.find(worker); under_way != ended.end()) {
    spdlog::info("worker {}: a restart of {} is under way already", worker, island);
    return under_way->second;
  }
  if (!IsUp(*asked_for) && !supervisors_.contains(worker))
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the executor of worker {} is down, and its worker, which is to start it anew, is "
                 "not connected: see whether fairway-worker runs on its host",
                 worker);
  for (const auto& [id, executor] : executors_) {
    if (executor->spec.island == island) ended[executor->spec.worker] = executor->spec.incarnation;
  }
  const Incarnation was = ended.at(worker);
  // All of them, because the others would wait for gangs that the ended one never finishes.
  EndIsland(island, reason);
  return was;
}

void WorkerHub::EndIsland(const std::string& island, const std::string& reason) {
  for (const auto& [id, executor] : executors_) {
    if (Planted(Bug::kRestartOne) && id.value % 2 == 0) continue;
    if (executor->spec.island == island && IsUp(*executor))
      EndExecutor(*executor, reason, /*asked=*/true);
  }
}

void WorkerHub::Forget(ExecutorId id) {
  const auto it = executors_.find(id);
  if (it == executors_.end() || it->second->state == Executor::State::kUp) return;
  if (it->second->state == Executor::State::kLinkEnded)
    DeclareLost(*it->second, it->second->link_cause);
  DropRelay(it->second->spec.worker);
  const ExecutorSpec spec = std::move(it->second->spec);
  executors_.erase(it);
  executor_of_worker_.erase(spec.worker);
  std::erase_if(island_of_endpoint_, [&](const auto& entry) {
    return entry.first == spec.data_endpoint && entry.second == spec.island;
  });
  if (std::ranges::any_of(
          executors_, [&](const auto& other) { return other.second->spec.island == spec.island; }))
    return;
  if (const auto island = islands_.find(spec.island); island != islands_.end()) {
    TellEnded(*island->second);
    std::erase(due_, island->second.get());
    islands_.erase(island);
  }
  std::erase_if(transferred_bytes_, [&](const auto& entry) {
    return entry.first.first == spec.island || entry.first.second == spec.island;
  });
}

void WorkerHub::CountTransfer(const std::string& from, const std::string& to, uint64_t bytes) {
  auto pair = std::pair(from, to);
  if (transferred_bytes_.size() >= kMostPairs && !transferred_bytes_.contains(pair))
    pair.first = kOtherIslands;
  transferred_bytes_[pair] += bytes;
}

void WorkerHub::Tick() {
  const auto now = now_();
  std::vector<Peer*> silent;
  for (const auto& [number, peer] : peers_) {
    if (peer->role == Role::kPulse) continue;  // the kernels watch it
    NoteStalled(*peer, now);
    const auto limit = peer->role == Role::kNew ? options_.register_wait : options_.deadline;
    if (Planted(Bug::kSilentForEver) && peer->role == Role::kExecutor) continue;
    if (now - peer->heard > limit) silent.push_back(peer.get());
  }
  for (Peer* const peer : silent) {
    const Role role = peer->role;
    if (role == Role::kDone) {
      // Its link is closing, but the far end does not take the last message.
      peers_.erase(peer->number);
    } else if (role == Role::kNew) {
      refusals_.Log(peer->link->peer(), "it did not register in time");
      Finish(*peer);
    } else if (role == Role::kRelay) {
      RelayEnded(*peer);
      Finish(*peer);
    } else if (role == Role::kSupervisor) {
      spdlog::warn("worker {} was silent for {:.1f} s", peer->worker, Seconds(options_.deadline));
      SupervisorEnded(*peer);
      Finish(*peer);
    } else {
      EndExecutor(*executors_[peer->executor],
                  fmt::format("it was silent for {:.1f} s (--executor-deadline)",
                              Seconds(options_.deadline)));
    }
  }
  for (const std::string& worker : SilentWithoutPulse(now))
    HostSilent(worker, fmt::format("its host {} has no pulse and sent nothing for {:.0f} s",
                                   supervisors_.at(worker)->host, Seconds(kHostSilence)));
  for (const auto& [id, executor] : executors_) {
    if (Planted(Bug::kCauseNeverDue)) continue;
    if (executor->state == Executor::State::kLinkEnded && now >= executor->cause_due) {
      DeclareLost(*executor, executor->link_cause);
    }
  }
  lines_.Tick(now);
  std::erase_if(pulse_cut_until_, [now](const auto& entry) { return entry.second <= now; });
  for (const auto& [name, island] : islands_) {
    island->links.SendAll(now, sent_);
    TellParents(*island);
    TellEnded(*island);
  }
}

void WorkerHub::NoteStalled(Peer& peer, Clock::time_point now) {
  if (peer.role != Role::kExecutor) return;
  const auto silence = std::chrono::duration_cast<milliseconds>(now - peer.heard);
  if (std::exchange(peer.stalled, silence > kStalledAfter) || !peer.stalled) return;
  spdlog::warn(
      "the executor of worker {} is stalled: it was silent for {:.1f} s, while its host answers. "
      "Is it "
      "stopped, or its machine overloaded? It is given up after {:.1f} s (--executor-deadline)",
      peer.worker, Seconds(silence), Seconds(options_.deadline));
}

std::map<ExecutorId, milliseconds> WorkerHub::Stalled() const {
  std::map<ExecutorId, milliseconds> out;
  for (const auto& [number, peer] : peers_) {
    const auto silence = std::chrono::duration_cast<milliseconds>(now_() - peer->heard);
    if (peer->role == Role::kExecutor && silence > kStalledAfter) out[peer->executor] = silence;
  }
  return out;
}

WorkersSaid WorkerHub::Said() const {
  WorkersSaid out;
  for (const auto& [id, executor] : executors_) {
    out.loads[id] = executor->load;
    if (IsUp(*executor)) out.executors[id] = executor->counters;
  }
  for (const auto& [name, supervisor] : supervisors_) out.daemons[name] = supervisor->counters;
  return out;
}

std::map<ExecutorId, LinkHealth> WorkerHub::Health() const {
  std::map<ExecutorId, LinkHealth> out;
  for (const auto& [id, executor] : executors_) {
    LinkHealth& health = out[id];
    if (executor->island != nullptr) health = executor->island->links.Health(id, now_());
    health.round_trip = executor->round_trip;
    health.links_resumed = executor->links_resumed;
    health.protocol = executor->protocol;
  }
  for (const auto& [name, island] : islands_) {
    for (const TreePlan::Relay& relay : island->links.plan().relays) {
      const ExecutorSpec* const host = Spec(ExecutorId(relay.host));
      for (const ExecutorIndex executor : relay.executors) {
        if (host != nullptr && out.contains(ExecutorId(executor)))
          out[ExecutorId(executor)].log_from = host->worker;
      }
    }
  }
  return out;
}

bool WorkerHub::Agree(Peer& peer, uint32_t oldest, uint32_t newest, const std::string& worker) {
  const absl::StatusOr<uint32_t> agreed =
      AgreeOnLinkProtocol(oldest, newest, fmt::format("worker '{}'", BoundedText(worker, 200)));
  if (agreed.ok()) {
    peer.protocol = *agreed;
  } else {
    FencePeer(peer, Text(agreed.status()));
  }
  return agreed.ok();
}

void WorkerHub::ReplyRegistered(Peer& peer) {
  v1::FromController reply;
  auto* const registered = reply.mutable_worker_registered();
  registered->set_controller_incarnation(options_.controller.value);
  registered->set_heartbeat_interval_ms(HeartbeatInterval().count());
  registered->set_deadline_ms(options_.deadline.count());
  registered->set_protocol(peer.protocol);
  Reply(peer, reply);
}

void WorkerHub::OnPulse(Peer& peer, const v1::Pulse& pulse) {
  const auto it = supervisors_.find(pulse.worker());
  if (it == supervisors_.end() || it->second->host != pulse.host() ||
      it->second->pid != pulse.pid())
    return FencePeer(peer, fmt::format("no worker '{}' with pid {} is connected from host {}",
                                       pulse.worker(), pulse.pid(), pulse.host()));
  PulseRecord& record = pulses_[pulse.worker()];
  if (const auto old = peers_.find(record.peer); old != peers_.end()) Finish(*old->second);
  record = {peer.number, pulse.host(), pulse.pid()};
  pulse_cut_until_.erase(pulse.worker());
  peer.role = Role::kPulse;
  peer.worker = pulse.worker();
  peer.link->WatchHost();
}

void WorkerHub::PulseEnded(Peer& pulse, const absl::Status& status) {
  const auto it = pulses_.find(pulse.worker);
  if (it == pulses_.end() || it->second.peer != pulse.number) return;
  const PulseRecord record = it->second;
  pulses_.erase(it);
  if (status.code() == absl::StatusCode::kDeadlineExceeded)
    return HostSilent(pulse.worker, fmt::format("its host {} acknowledged nothing for {:.0f} s",
                                                record.host, Seconds(kHostSilence)));
  // Nothing is sent on it, so the end of its process closes it in order, though without a word of
  // TLS. Its process never does: it leaves a pulse that another replaces to OnPulse.
  const bool process_ended = status.ok() || status.code() == absl::StatusCode::kAborted;
  if (!process_ended || Planted(Bug::kDeathIsCut))
    pulse_cut_until_[pulse.worker] = now_() + options_.link_grace;
  LoseIfAlone(pulse.worker);
}

bool WorkerHub::MayReturn(const std::string& worker) const {
  return supervisors_.contains(worker) || pulses_.contains(worker) ||
         pulse_cut_until_.contains(worker);
}

void WorkerHub::LoseIfAlone(const std::string& worker) {
  Executor* const executor = FindExecutor(worker);
  if (executor != nullptr && executor->state == Executor::State::kLinkEnded && !MayReturn(worker))
    DeclareLost(*executor, "its worker went away too");
}

std::vector<std::string> WorkerHub::SilentWithoutPulse(Clock::time_point now) {
  std::vector<std::string> out;
  for (const auto& [worker, supervisor] : supervisors_) {
    if (pulses_.contains(worker) || now - peers_.at(supervisor->peer)->heard <= kHostSilence)
      continue;
    const Executor* const executor = FindExecutor(worker);
    if (executor != nullptr && executor->state == Executor::State::kUp &&
        now - peers_.at(executor->peer)->heard <= kHostSilence)
      continue;
    out.push_back(worker);
  }
  return out;
}

void WorkerHub::HostSilent(const std::string& worker, const std::string& how) {
  if (Planted(Bug::kDeafToPulse)) return;
  Executor* const executor = FindExecutor(worker);
  if (executor != nullptr && executor->state != Executor::State::kLost) EndExecutor(*executor, how);
  spdlog::warn("worker {} is disconnected: {}", worker, how);
  const auto it = supervisors_.find(worker);
  if (it == supervisors_.end()) return;
  Peer& supervisor = *peers_.at(it->second->peer);
  SupervisorEnded(supervisor);
  Finish(supervisor);
}

// ---- Connections that break ----

void WorkerHub::GiveUp(Peer& peer, const std::string& how) {
  Finish(peer);
  ExecutorLinkEnded(peer, how);
}

void WorkerHub::ExecutorLinkEnded(Peer& peer, const std::string& how, bool cut) {
  Executor& executor = *executors_[peer.executor];
  if (executor.peer != peer.number || executor.state != Executor::State::kUp) return;
  executor.link_cause = how;
  executor.resumes = cut && executor.refused.empty() && options_.link_grace.count() > 0 &&
                     !Planted(Bug::kCutIsEnd);
  executor.resumes ? executor.island->links.Cut(executor.id) : LeaveLog(executor);
  if (!MayReturn(peer.worker)) return DeclareLost(executor, how);
  executor.state = Executor::State::kLinkEnded;
  executor.cause_due = now_() + (executor.resumes ? options_.link_grace : options_.cause_wait);
  if (executor.resumes)
    spdlog::info(
        "the executor of worker {} has lost its connection ({}); it has {:.1f} s to come "
        "back (--link-grace)",
        peer.worker, how, Seconds(options_.link_grace));
}

absl::StatusOr<WorkerHub::Executor*> WorkerHub::ToResume(const v1::ResumeExecutor& message) {
  const auto it = executors_.find(ExecutorId(message.executor()));
  if (message.controller_incarnation() != options_.controller.value || it == executors_.end() ||
      it->second->spec.incarnation.value != message.incarnation())
    return absl::NotFoundError("this controller does not know the registration");
  Executor& executor = *it->second;
  if (!IsUp(executor) && !Planted(Bug::kResumeOfLost))
    return absl::FailedPreconditionError("it was declared lost");
  if (!executor.refused.empty()) return absl::FailedPreconditionError(executor.refused);
  return &executor;
}

void WorkerHub::OnResumeExecutor(Peer& peer, const v1::ResumeExecutor& message) {
  v1::FromController reply;
  const auto refuse = [&](const absl::Status& why) {
    reply.mutable_not_resumed()->set_reason(Text(why));
    Reply(peer, reply);
    Finish(peer);
  };
  const absl::StatusOr<Executor*> found = ToResume(message);
  if (!found.ok()) return refuse(found.status());
  Executor& executor = **found;
  // Its end of the old connection may have heard of the cut before ours did.
  if (executor.state == Executor::State::kUp) {
    Finish(*peers_.at(executor.peer));
    executor.island->links.Cut(executor.id);
  }
  absl::StatusOr<std::vector<Frame>> again = executor.kept.Resume(message.taken());
  const absl::Status resumed =
      again.ok() ? executor.island->links.Resume(executor.id, peer.link.get(), message.version(),
                                                 message.applied())
                 : again.status();
  if (!resumed.ok()) {
    refuse(resumed);
    return DeclareLost(executor,
                       fmt::format("it came back and could not go on: {}", Text(resumed)));
  }
  executor.state = Executor::State::kUp;
  executor.peer = peer.number;
  executor.link_cause.clear();
  peer.role = Role::kExecutor;
  peer.link->LimitFrames(kMaxFrameBytes);
  peer.worker = executor.spec.worker;
  peer.executor = executor.id;
  ++links_resumed_;
  ++executor.links_resumed;
  reply.mutable_resumed()->set_taken(executor.kept.taken());
  Reply(peer, reply);
  TellRevocations(peer);
  for (Frame& frame : *again) {
    executor.kept.Stamp(frame);
    peer.link->Send(std::move(frame));
  }
  SendSoon(*executor.island);
  spdlog::info("the executor of worker {} is connected again and goes on", peer.worker);
}

void WorkerHub::AcknowledgeReport(Peer& peer, size_t bytes) {
  Executor& executor = *executors_[peer.executor];
  executor.unacknowledged += bytes;
  if (executor.unacknowledged < kAcknowledgedBytes) return;
  executor.unacknowledged = 0;
  v1::FromController message;
  message.mutable_heartbeat_ack();
  Reply(peer, message);
}

}  // namespace fairway
