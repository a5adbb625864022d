// SPDX-License-Identifier: Apache-2.0
// What the hub appends to the logs of the islands, and what comes of it.
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "controller/daemon/worker_hub.h"
#include "controller/daemon/worker_hub_peers.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

// Whether the command may leave together with a later one: it lets the executor begin nothing that
// somebody waits for.
bool MayLinger(const Command& command) {
  if (const auto* receive = std::get_if<PrepareReceive>(&command))
    return receive->has_reader && std::ranges::none_of(receive->sources, [](const ShardSource& s) {
             return s.kind == ShardSource::Kind::kController;  // its bytes take a while
           });
  return std::holds_alternative<PrepareLaunch>(command) ||
         std::holds_alternative<FreeGroups>(command);
}

}  // namespace

void WorkerHub::Send(ExecutorId id, Command command, std::shared_ptr<MemoryBudget> payer) {
  if (early_ != nullptr)
    return void(early_->push_back({id, std::nullopt, std::move(command), std::move(payer)}));
  const auto it = executors_.find(id);
  if (it == executors_.end() || !IsUp(*it->second)) return;
  Executor& executor = *it->second;
  if (!executor.refused.empty()) return;
  auto body = EncodeToSend(command, options_.command_bytes, &encoded_members_);
  if (!body.ok()) return RefuseCommand(executor, body.status());
  const bool lingers = MayLinger(command);
  if (const absl::Status status =
          executor.island->links.Append(id, *std::move(body), lingers, std::move(payer));
      !status.ok())
    return RefuseCommand(executor, status);
  ++commands_sent_;
  if (executor.island->links.wants_send()) SendSoon(*executor.island);
}

void WorkerHub::SendAll(ExecutorId first, ExecutorId last, Command command,
                        std::shared_ptr<MemoryBudget> payer) {
  if (early_ != nullptr)
    return void(early_->push_back({first, last, std::move(command), std::move(payer)}));
  const auto it = executors_.find(first);
  if (it == executors_.end() || it->second->island == nullptr) return;
  Executor& executor = *it->second;
  const auto* const launch = std::get_if<LaunchAll>(&command);
  const NodeId awaited = launch == nullptr ? NodeId() : launch->node;
  auto body = EncodeToSend(command, options_.command_bytes, &encoded_members_);
  if (!body.ok()) return RefuseCommand(executor, body.status());
  IslandLinks& links = executor.island->links;
  const bool lingers = MayLinger(command);
  if (const absl::Status status =
          links.AppendAll(first, last, *std::move(body), lingers, awaited, std::move(payer));
      !status.ok())
    return RefuseCommand(executor, status);
  ++commands_sent_;
  if (links.wants_send()) SendSoon(*executor.island);
}

void WorkerHub::SendEarly(std::vector<Early> early) {
  for (Early& one : early) {
    one.last ? SendAll(one.executor, *one.last, std::move(one.command), std::move(one.payer))
             : Send(one.executor, std::move(one.command), std::move(one.payer));
  }
}

void WorkerHub::TellEnded(Island& island) {
  std::vector<NodeId> ended = island.links.TakeEnded();
  if (!ended.empty()) events_->OnLaunchesEnded(std::move(ended));
}

void WorkerHub::SendSoon(Island& island) {
  if (std::exchange(island.due, true)) return;
  due_.push_back(&island);
  if (due_.size() > 1) return;
  loop_.Post("send commands", [this, alive = alive_] {
    if (!*alive) return;
    for (Island* const next : std::exchange(due_, {})) {
      next->due = false;
      next->links.Send(now_(), sent_);
      TellParents(*next);
      TellEnded(*next);
    }
  });
}

void WorkerHub::LeaveLog(const Executor& executor) {
  executor.island->links.Leave(executor.id);
  SendSoon(*executor.island);
}

void WorkerHub::RefuseCommand(Executor& executor, const absl::Status& why) {
  executor.refused = fmt::format(
      "it was to be sent {}: this is a bug of the controller, which should have refused what asked "
      "for it",
      Text(why));
  spdlog::error("worker {} is given up: {}", executor.spec.worker, executor.refused);
  // It leaves the log once its loss is known: what the others have ended must not count before.
  executor.island->links.Cut(executor.id);
  // The owner is in the middle of a call.
  loop_.Post("command too long", [this, alive = alive_, id = executor.id] {
    if (!*alive) return;
    const auto it = executors_.find(id);
    if (it == executors_.end() || it->second->refused.empty() || !IsUp(*it->second)) return;
    EndExecutor(*it->second, it->second->refused);
  });
}

void WorkerHub::OnLogReport(Peer& peer, const Frame& frame) {
  const Executor& executor = *executors_[peer.executor];
  if (executor.peer != peer.number || executor.state != Executor::State::kUp ||
      !executor.refused.empty())
    return;
  ++received_.messages;
  received_.bytes += kFrameHeaderBytes + frame.payload.size();
  if (const absl::Status status = executor.island->links.Take(peer.executor, frame.payload);
      !status.ok()) {
    spdlog::warn("worker {} sent a bad report of the log: {}", peer.worker, Text(status));
    return GiveUp(peer, fmt::format("it sent a bad report of the log ({})", Text(status)));
  }
  TellEnded(*executor.island);
  if (executor.island->links.wants_send()) SendSoon(*executor.island);
}

}  // namespace fairway
