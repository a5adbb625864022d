// SPDX-License-Identifier: Apache-2.0
// Relays of the islands' logs (docs/design/0066-relays.md).
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/host.h"
#include "controller/daemon/worker_hub_peers.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {

void WorkerHub::OnRegisterRelay(Peer& peer, const v1::RegisterRelay& message) {
  if (!Agree(peer, message.protocol(), message.newest_protocol(), message.worker())) return;
  if (peer.protocol < kTakesSpans)
    return FencePeer(peer, fmt::format("a relay that speaks link protocol {}, and {} is needed: "
                                       "upgrade its worker",
                                       peer.protocol, kTakesSpans));
  if (message.worker().empty() || !SplitHostPort(message.endpoint()).ok())
    return FencePeer(peer, "a relay needs the name of a worker, and the host:port of its own port");
  if (const auto it = relays_.find(message.worker()); it != relays_.end()) {
    if (it->second->host != message.host())
      return FencePeer(peer, fmt::format("the relay of worker '{}' is already connected from host "
                                         "{} (pid {})",
                                         message.worker(), it->second->host, it->second->pid));
    // Its successor is here before its end was seen.
    Peer& old = *peers_.at(it->second->peer);
    RelayEnded(old);
    Finish(old);
  }
  auto& relay = relays_[message.worker()];
  relay = std::make_unique<RelayRecord>();
  relay->peer = peer.number;
  relay->host = message.host();
  relay->pid = message.pid();
  relay->incarnation = Incarnation(message.incarnation());
  relay->endpoint = message.endpoint();
  peer.role = Role::kRelay;
  peer.link->LimitFrames(kMaxLogReportBytes);
  peer.worker = message.worker();
  ReplyRegistered(peer);
  TellRevocations(peer);
  spdlog::info("the relay of worker {} is connected: {}, host {}, pid {}", message.worker(),
               message.endpoint(), message.host(), message.pid());
  OfferRelay(message.worker());
}

void WorkerHub::OnRelayMessage(Peer& peer, const v1::ToController& message) {
  if (message.has_heartbeat()) {
    LinkTraffic& passed_on = relays_.at(peer.worker)->passed_on;
    passed_on.messages = message.heartbeat().relayed_messages();
    passed_on.bytes = message.heartbeat().relayed_bytes();
    return OnHeartbeat(peer, message.heartbeat());
  }
  if (message.has_relay_trouble()) return OnRelayTrouble(peer, message.relay_trouble());
  spdlog::warn("the relay of worker {} sent a message that does not belong on this link; ignored",
               peer.worker);
}

void WorkerHub::RelayEnded(const Peer& peer) {
  const auto it = relays_.find(peer.worker);
  if (it == relays_.end() || it->second->peer != peer.number) return;
  spdlog::info("the relay of worker {} is disconnected", peer.worker);
  relays_.erase(it);
  DropRelay(peer.worker);
}

void WorkerHub::OfferRelay(const std::string& worker) {
  if (options_.links.fanout == 0) return;
  const auto it = relays_.find(worker);
  const Executor* const executor = FindExecutor(worker);
  if (it == relays_.end() || executor == nullptr || executor->island == nullptr) return;
  const RelayRecord& relay = *it->second;
  executor->island->links.RelayUp(executor->id, peers_.at(relay.peer)->link.get(),
                                  relay.incarnation, relay.endpoint, worker);
  SendSoon(*executor->island);
}

void WorkerHub::DropRelay(const std::string& worker) {
  if (options_.links.fanout == 0) return;
  const Executor* const executor = FindExecutor(worker);
  if (executor == nullptr || executor->island == nullptr) return;
  executor->island->links.RelayDown(executor->id);
  if (executor->island->links.wants_send()) SendSoon(*executor->island);
}

void WorkerHub::TellParents(Island& island) {
  for (auto& [id, parent] : island.links.TakeParents()) {
    const auto it = executors_.find(id);
    if (it == executors_.end() || !IsUp(*it->second)) continue;
    Executor& executor = *it->second;
    v1::FromController message;
    *message.mutable_log_parent() = std::move(parent);
    Frame frame = executor.kept.Keep(PackFrame(message));
    executor.kept.Stamp(frame);
    if (executor.state == Executor::State::kUp)
      peers_.at(executor.peer)->link->Send(std::move(frame));
  }
}

void WorkerHub::OnLogAsk(Peer& peer, const v1::LogAsk& ask) {
  const Executor& executor = *executors_[peer.executor];
  if (executor.peer != peer.number || executor.state != Executor::State::kUp ||
      !executor.refused.empty())
    return;
  if (const absl::Status status = executor.island->links.Ask(executor.id, ask); !status.ok())
    return GiveUp(peer, fmt::format("it could not go on without a relay: {}", Text(status)));
  if (executor.island->links.wants_send()) SendSoon(*executor.island);
}

void WorkerHub::OnRelayReport(Peer& peer, const Frame& frame) {
  const Executor* const host = FindExecutor(peer.worker);
  if (host == nullptr || host->island == nullptr) return;
  ++received_.messages;
  received_.bytes += kFrameHeaderBytes + frame.payload.size();
  IslandLinks& links = host->island->links;
  if (const absl::Status status = links.TakeFromRelay(host->id, frame, now_()); !status.ok()) {
    const std::string why = fmt::format("it sent a bad report of the log ({})", Text(status));
    spdlog::warn("the relay of worker {} is ended: {}", peer.worker, why);
    // Its supervisor starts it again, after a pause.
    RelayEnded(peer);
    return FencePeer(peer, why);
  }
  TellEnded(*host->island);
  if (links.wants_send()) SendSoon(*host->island);
}

void WorkerHub::AskRelays(std::chrono::nanoseconds late) {
  for (const auto& [name, island] : islands_) island->links.AskRelays(late, sent_);
}

void WorkerHub::OnRelayTrouble(Peer& peer, const v1::RelayTrouble& trouble) {
  const Executor* const host = FindExecutor(peer.worker);
  if (host == nullptr || host->island == nullptr) return;
  spdlog::info("the relay of worker {} gives up a child: {}", peer.worker,
               std::string_view(trouble.reason()).substr(0, 200));
  host->island->links.TakeTrouble(host->id, trouble, now_());
  if (host->island->links.wants_send()) SendSoon(*host->island);
}

std::vector<RelayStatus> WorkerHub::RelayTree() const {
  std::vector<RelayStatus> out;
  const auto name = [&](ExecutorIndex executor) {
    const ExecutorSpec* const spec = Spec(ExecutorId(executor));
    return spec == nullptr ? std::string() : spec->worker;
  };
  std::map<std::string, RelayStatus> placed;
  for (const auto& [island, record] : islands_) {
    const TreePlan& plan = record->links.plan();
    for (const TreePlan::Relay& relay : plan.relays) {
      RelayStatus& status = placed[name(relay.host)];
      status.executors = relay.executors.size();
      status.relays = relay.relays.size();
      for (const size_t below : relay.relays)
        placed[name(plan.relays[below].host)].above = name(relay.host);
    }
  }
  for (const auto& [worker, relay] : relays_) {
    RelayStatus& status = out.emplace_back(placed[worker]);
    status.worker = worker;
    const auto it = executor_of_worker_.find(worker);
    if (it != executor_of_worker_.end()) status.island = executors_.at(it->second)->spec.island;
    status.endpoint = relay->endpoint;
    status.passed_on = relay->passed_on;
  }
  return out;
}

WorkerHub::Relays WorkerHub::relays() const {
  Relays out;
  for (const auto& [name, island] : islands_) {
    out.count += island->links.relays();
    out.depth = std::max(out.depth, island->links.depth());
    out.troubles += island->links.troubles();
    out.moves += island->links.moves();
  }
  return out;
}

}  // namespace fairway
