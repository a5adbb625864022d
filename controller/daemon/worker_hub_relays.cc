// SPDX-License-Identifier: Apache-2.0
// Relays of the islands' logs (docs/design/0066-relays.md).
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "controller/daemon/worker_hub_peers.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {

void WorkerHub::OfferRelay(const std::string& worker) {
  if (options_.links.fanout == 0) return;
  const auto it = supervisors_.find(worker);
  const Executor* const executor = FindExecutor(worker);
  if (it == supervisors_.end() || it->second->relay_endpoint.empty() || executor == nullptr ||
      executor->island == nullptr)
    return;
  const Supervisor& supervisor = *it->second;
  executor->island->links.RelayUp(executor->id, peers_.at(supervisor.peer)->link.get(),
                                  supervisor.incarnation, supervisor.relay_endpoint);
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
  if (const absl::Status status = links.TakeFromRelay(host->id, frame.payload, now_());
      !status.ok()) {
    spdlog::warn("the relay of worker {} sent a bad report of the log: {}", peer.worker,
                 Text(status));
    links.RelayDown(host->id);
  }
  if (links.wants_send()) SendSoon(*host->island);
}

void WorkerHub::OnRelayTrouble(Peer& peer, const v1::RelayTrouble& trouble) {
  const Executor* const host = FindExecutor(peer.worker);
  if (host == nullptr || host->island == nullptr) return;
  spdlog::info("the relay of worker {} gives up a child: {}", peer.worker, trouble.reason());
  const std::optional<ExecutorId> behind = host->island->links.TakeTrouble(trouble, now_());
  if (host->island->links.wants_send()) SendSoon(*host->island);
  if (!behind) return;
  Executor& executor = *executors_.at(*behind);
  if (IsUp(executor))
    EndExecutor(executor,
                fmt::format("it came back to a relay and could not go on: {}", trouble.reason()));
}

WorkerHub::Relays WorkerHub::relays() const {
  Relays out;
  for (const auto& [name, island] : islands_) {
    out.count += island->links.relays();
    out.depth = std::max(out.depth, island->links.depth());
    out.troubles += island->links.troubles();
  }
  return out;
}

}  // namespace fairway
