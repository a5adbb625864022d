// SPDX-License-Identifier: Apache-2.0
// Sessions are told of a lost executor, or of an island that was given up, in slices
// (docs/design/0058-bounded-turns.md). Until a session has been told all, it takes no operation,
// and none of its nodes there, or that read from there, is prepared. Until all sessions have been
// told, the island prepares and launches nothing, and the successor of the lost executor gets no
// commands. So no slice sees anything that a later incarnation does.
#include <algorithm>
#include <set>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/ending.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {
// Items done between two looks at the unit count.
constexpr int kFew = 16;
constexpr uint64_t kFewUnits = 250;  // more units than kFew items: nodes may be of many pieces
}  // namespace

void Cluster::Fleet::ExecutorLost(ExecutorId id, const absl::Status& cause) {
  const Operation operation(*state_);
  State& s = *state_;
  const auto it = s.executors.find(id);
  if (it == s.executors.end() || !it->second.up) return;
  Executor& lost = it->second;
  lost.up = false;
  lost.last_error = Text(cause);
  Island& island = s.islands.at(lost.island);
  ++island.epoch;
  --island.up;
  s.UpdateOpen(island);
  if (lost.telling > 0) return;  // it was given nothing since the loss before this one
  lost.lost_open = std::exchange(lost.open, {});
  for (const auto& [executable, install] : std::exchange(lost.installs, {}))
    lost.lost_installs.push_back(executable);
  island.victims.clear();
  island.search = {};
  lost.dropped.clear();
  lost.frees.clear();
  s.losses.BeginLoss(
      island, &lost,
      Error(absl::StatusCode::kDataLoss, "island {}: the executor of worker {} was lost: {}",
            island.name, lost.spec.worker, Text(cause)));
  s.work.GoOn();
}

void Cluster::Fleet::IslandGivenUp(IslandId id, const absl::Status& cause) {
  const Operation operation(*state_);
  State& s = *state_;
  const auto it = s.islands.find(id);
  if (it == s.islands.end() || s.IslandUp(it->second)) return;
  it->second.gone =
      Error(absl::StatusCode::kUnavailable, "island {}: {}", it->second.name, Text(cause));
  s.losses.BeginLoss(it->second, nullptr, it->second.gone);
  s.work.GoOn();
}

void Cluster::Losses::BeginLoss(Island& island, Executor* lost, const absl::Status& status) {
  s.memory.LookAnew();
  std::vector<SessionId> told;
  for (const auto& [session, has] : s.holdings) {
    const auto stake = has.stakes.find(island.id);
    if (stake == has.stakes.end()) continue;
    if (stake->second.groups != nullptr || stake->second.nodes > 0) told.push_back(session);
  }
  std::sort(told.begin(), told.end());
  s.Charge(told.size() + s.holdings.size() / 16);
  for (const SessionId session : told) {
    std::deque<Loss>& losses = s.WorkOf(session).losses;
    // Losses of executors of one island that come together are told together.
    const bool joins = lost != nullptr && !losses.empty() && losses.back().island == island.id &&
                       losses.back().phase == Loss::Phase::kBegin && losses.back().given_up.ok();
    if (!joins) {
      losses.emplace_back();
      losses.back().number = ++num_losses;
      losses.back().island = island.id;
      ++open_losses;
      ++island.telling;
    }
    if (lost == nullptr) {
      losses.back().given_up = status;
    } else {
      losses.back().executors.emplace(lost->id, Loss::Lost{losses.back().executors.size(), status});
      ++lost->telling;
    }
  }
  if (told.empty() && lost != nullptr) DropShared(island, {lost});
  s.to_pump.insert(island.id);
}

bool Cluster::Losses::HasLosses(SessionId session) const {
  if (open_losses == 0) return false;
  const auto list = s.worklists.find(session);
  return list != s.worklists.end() && !list->second.losses.empty();
}

void Cluster::Losses::FinishLosses(SessionId session) {
  if (!HasLosses(session)) return;
  Worklist& list = s.worklists.at(session);
  while (!list.losses.empty()) {
    for (; !list.endings.empty(); list.endings.pop_front())
      s.nodes.GoOnEnding(*list.endings.front(), UINT64_MAX);
    for (; !list.taking_back.empty(); list.taking_back.pop_front(), --s.nodes.taking_back)
      s.nodes.GoOnTakingBack(list.taking_back.front(), UINT64_MAX);
    GoOnLoss(session, list);
  }
}

void Cluster::Losses::GoOnLoss(SessionId session, Worklist& list) {
  Loss& loss = list.losses.front();
  const uint64_t until = s.units + kFewUnits;
  const auto has = s.holdings.find(session);  // none: all of it has ended meanwhile
  switch (loss.phase) {
    case Loss::Phase::kBegin:
      loss.phase = loss.given_up.ok() ? Loss::Phase::kGroups : Loss::Phase::kNodes;
      if (has == s.holdings.end()) break;
      if (const auto stake = has->second.stakes.find(loss.island);
          stake != has->second.stakes.end())
        stake->second.walk = stake->second.groups;
      break;
    case Loss::Phase::kGroups:
      LoseGroups(session, loss);
      break;
    case Loss::Phase::kNodes: {
      for (int i = 0; i < kFew && s.units < until; ++i) {
        if (Planted(Bug::kLossForgetsNodes) && i == 1) loss.heard = NodeId(UINT64_MAX);
        s.Charge(1);
        if (!loss.unlaunched.empty()) {
          if (s.launches.GoOnLost(loss.unlaunched.back())) loss.unlaunched.pop_back();
          continue;
        }
        const auto still = s.holdings.find(session);
        const auto next = still == s.holdings.end() ? absl::btree_set<NodeId>::iterator()
                                                    : still->second.nodes.upper_bound(loss.heard);
        if (still == s.holdings.end() || next == still->second.nodes.end()) {
          loss.phase = Loss::Phase::kTakeBack;
          break;
        }
        loss.heard = *next;
        LoseNode(*s.FindNode(loss.heard), loss);
      }
      break;
    }
    case Loss::Phase::kTakeBack:
      if (Planted(Bug::kLossTakesNothingBack)) loss.again.clear();
      // Younger nodes first, so that readers go before the nodes that they read.
      for (int i = 0; i < kFew && s.units < until && !loss.again.empty(); ++i) {
        const Loss::Again again = loss.again.back();
        loss.again.pop_back();
        Node* const node = s.FindNode(again.node);
        // What is left of it comes before the rest of the loss.
        if (node != nullptr && node->attempt == again.attempt &&
            !s.nodes.TakeBack(*node, loss.executors.begin()->second.status))
          break;
      }
      if (loss.again.empty()) loss.phase = Loss::Phase::kDone;
      break;
    case Loss::Phase::kDone:
      LossHeard(std::exchange(loss, Loss()));
      list.losses.pop_front();
      break;
  }
}

void Cluster::Losses::LoseGroups(SessionId session, Loss& loss) {
  const auto has = s.holdings.find(session);
  const auto stake = has == s.holdings.end() ? std::map<IslandId, Stake>::iterator()
                                             : has->second.stakes.find(loss.island);
  const uint64_t until = s.units + kFewUnits;
  for (int i = 0; i < kFew; ++i) {
    if (has == s.holdings.end() || stake == has->second.stakes.end() ||
        stake->second.walk == nullptr || (Planted(Bug::kLossForgetsGroups) && i == 2)) {
      loss.phase = Loss::Phase::kNodes;
      return;
    }
    Group& group = *stake->second.walk;
    stake->second.walk = group.next;
    s.ChargeShards(group.places.size());
    if (s.units >= until) i = kFew;  // the last one of this slice
    if (group.state != GroupState::kReady || group.stored != nullptr || Planted(Bug::kIgnoreLoss))
      continue;
    const Loss::Lost* first = nullptr;
    ExecutorId last;
    for (const Place& place : group.places) {
      if (std::exchange(last, place.executor) == place.executor) continue;
      const auto lost = loss.executors.find(place.executor);
      if (lost == loss.executors.end()) continue;
      if (first == nullptr || lost->second.order < first->order) first = &lost->second;
    }
    if (first == nullptr) continue;
    group.lost_in = loss.number;
    s.groups.SetFailed(group, first->status, NodeId());
  }
}

void Cluster::Losses::LoseNode(Node& node, Loss& loss) {
  for (const Participant& p : node.participants) {
    if (loss.executors.contains(p.executor)) s.executors.at(p.executor).lost_open.erase(p.seq);
  }
  if (!loss.given_up.ok()) {
    const Group* fetched = s.FindGroup(node.fetched.group);
    const bool stored = fetched != nullptr && fetched->stored != nullptr;  // not on the island
    const bool waits = node.island == loss.island && !stored &&
                       node.state != NodeState::kLaunched &&
                       (node.state != NodeState::kWaiting || node.held());
    if (waits) s.nodes.Fail(node, loss.given_up, node.id);
    return;
  }
  if (node.state == NodeState::kLaunched) return LoseLaunched(node, loss);
  if (s.nodes.FailIfPoisoned(node)) return;
  if (node.kind == NodeKind::kFetch) {
    // It failed before, and not because of the loss.
    if (!node.deferred.ok() && !PeerGone(node.deferred))
      s.nodes.Fail(node, absl::Status(node.deferred), node.id);
    return;
  }
  Island& island = s.islands.at(node.island);
  for (const GroupId read : node.reads) {
    if (s.FindGroup(read)->lost_in != loss.number) continue;
    ++node.unlaunched_inputs;
    if (node.kind == NodeKind::kLaunch) island.sequencer.InputsMissing(node.id);
  }
  if (IsSequence(node) && node.unsettled_inputs == 0) s.launches.MaybeArrived(node);
  s.ChargeShards(node.sources.size() + node.participants.size() + loss.executors.size());
  const bool touches =
      std::any_of(node.participants.begin(), node.participants.end(),
                  [&](const Participant& p) { return loss.executors.contains(p.executor); }) ||
      (node.for_all && std::ranges::any_of(loss.executors, [&](const auto& lost) {
         return PartOn(*node.layout, lost.first) >= 0;
       }));
  const bool from = std::any_of(node.sources.begin(), node.sources.end(), [&](const ShardRef& ref) {
    return ref.group != node.outputs[0] &&
           loss.executors.contains(s.FindGroup(ref.group)->places[ref.shard].executor);
  });
  if ((touches || from) && node.state == NodeState::kPrepared) {
    loss.again.push_back({node.id, node.attempt});
  } else if (from && node.state == NodeState::kQueued && s.admission.Remove(node.id, node.island)) {
    s.parked.insert(node.id);
    s.to_pump.insert(node.island);
  }
}

void Cluster::Losses::LoseLaunched(Node& node, Loss& loss) {
  if (node.for_all) return LoseForAll(node, loss);
  std::vector<std::pair<size_t, size_t>> parts;  // order of the loss, participant
  for (size_t p = 0; p < node.participants.size() && node.island == loss.island; ++p) {
    if (const auto lost = loss.executors.find(node.participants[p].executor);
        lost != loss.executors.end())
      parts.emplace_back(lost->second.order, p);
  }
  s.ChargeShards(node.participants.size());
  if (node.kind == NodeKind::kReceive) return LoseReceive(node, loss, parts.size());
  if (parts.empty()) return;
  std::sort(parts.begin(), parts.end());
  const auto status_of = [&](size_t part) {
    return loss.executors.at(node.participants[part].executor).status;
  };
  const NodeId id = node.id;
  node.failure = status_of(parts[0].second);
  s.launches.Lost(node, loss.unlaunched);
  if (!node.deferred.ok()) {  // the other executors have already reported the loss of a peer
    s.nodes.Conclude(node, absl::Status(node.failure), id);
    return;
  }
  for (const auto& [order, part] : parts) {
    if (s.FindNode(id) == nullptr) return;
    s.nodes.ParticipantEnded(node, part, status_of(part));
  }
}

void Cluster::Losses::LoseForAll(Node& node, Loss& loss) {
  ExecutorId on;
  const Loss::Lost* first = nullptr;
  s.ChargeShards(loss.executors.size());
  for (const auto& [id, lost] : loss.executors) {
    if (PartOn(*node.layout, id) < 0 || (first != nullptr && first->order < lost.order)) continue;
    first = &lost;
    on = id;
  }
  if (first == nullptr) return;
  const NodeId id = node.id;
  node.failure = first->status;
  s.launches.Lost(node, loss.unlaunched);
  if (!node.deferred.ok()) return s.nodes.Conclude(node, absl::Status(node.failure), id);
  s.nodes.PartFailed(node, on, node.failure);  // the log will say when the others have ended it
}

void Cluster::Losses::LoseReceive(Node& node, Loss& loss, size_t own) {
  const Loss::Lost* first = nullptr;
  const auto lost = [&](ExecutorId id) {
    const auto found = loss.executors.find(id);
    if (found == loss.executors.end()) return;
    if (first == nullptr || found->second.order < first->order) first = &found->second;
  };
  if (own > 0) {
    for (const Participant& p : node.participants) lost(p.executor);
    node.failure = first->status;
    s.launches.Lost(node, loss.unlaunched);
  } else {
    s.ChargeShards(node.sources.size());
    for (const ShardRef& ref : node.sources) {
      if (ref.group != node.outputs[0]) lost(s.FindGroup(ref.group)->places[ref.shard].executor);
    }
    if (first == nullptr) return;
  }
  // Its pulls may take a minute to notice.
  s.nodes.CancelReceive(node, first->status);
  s.nodes.ReceiveEnded(node);
}

void Cluster::Losses::LossHeard(const Loss& loss) {
  --open_losses;
  std::vector<Executor*> all_know;
  for (const auto& [id, lost] : loss.executors) {
    Executor& executor = s.executors.at(id);
    if (--executor.telling > 0) continue;
    executor.lost_open.clear();
    all_know.push_back(&executor);
  }
  s.ChargeShards(16 * loss.executors.size());
  DropShared(s.islands.at(loss.island), all_know);
  if (!all_know.empty()) UnparkAll();
  if (Planted(Bug::kLossHeardByNobody)) return;
  if (--s.islands.at(loss.island).telling == 0) s.to_pump.insert(loss.island);
}

void Cluster::Losses::DropShared(Island& island, const std::vector<Executor*>& lost) {
  std::set<ExecutableId> shared;
  for (Executor* executor : lost) {
    s.ChargeEnds(executor->lost_installs.size());
    for (const ExecutableId id : std::exchange(executor->lost_installs, {})) shared.insert(id);
  }
  if (shared.empty() || Planted(Bug::kKeepShared)) return;
  drops_.push_back({island.id, {shared.begin(), shared.end()}, 0});
  ++island.telling;
}

void Cluster::Losses::GoOnDropping(uint64_t until) {
  while (!drops_.empty() && s.units < until) {
    Dropping& drop = drops_.front();
    const ExecutableId id = drop.shared.back();
    const auto layout = s.layouts.find(id);
    const size_t parts = layout == s.layouts.end() ? 0 : layout->second.parts.size();
    for (; drop.next < parts && s.units < until; ++drop.next) {
      s.Charge(1);
      Executor& executor = s.executors.at(layout->second.parts[drop.next].executor);
      const auto install = executor.installs.find(id);
      if (install == executor.installs.end()) continue;
      if (!install->second.installed) ++executor.dropped[id];
      layout->second.installed_as_of = 0;
      executor.installs.erase(install);
      s.commands.Send(executor, DropExecutable{id}, SessionId());
    }
    if (drop.next < parts) return;
    drop.next = 0;
    drop.shared.pop_back();
    if (!drop.shared.empty()) continue;
    if (--s.islands.at(drop.island).telling == 0) s.to_pump.insert(drop.island);
    drops_.pop_front();
  }
}

void Cluster::Losses::AfterLosses(Node& node) {
  if (node.kind != NodeKind::kReceive || !(HasLosses(node.session) || s.nodes.ReadsTakenBack(node)))
    return s.nodes.Prepare(node);
  for (const Reservation& r : node.reservations) s.admission.Release(r.device, r.total());
  s.parked.insert(node.id);
  s.worklists.at(node.session).held.push_back(node.id);
}

void Cluster::Losses::Unpark() {
  if (!unpark_after_) return;
  auto next = s.parked.upper_bound(*unpark_after_);
  for (int i = 0; i < 2 * kFew && next != s.parked.end(); ++i) {
    s.Charge(1);
    const NodeId id = *next;
    unpark_after_ = id;
    s.parked.erase(next);
    s.nodes.Submit(*s.FindNode(id));
    next = s.parked.upper_bound(id);
  }
  if (next == s.parked.end()) unpark_after_.reset();
}

}  // namespace fairway
