// SPDX-License-Identifier: Apache-2.0
// Looking things up in the core's tables.
#include "controller/cluster/state.h"

#include <algorithm>
#include <set>

#include "base/planted.h"

namespace fairway {

absl::StatusOr<Session*> Cluster::State::FindSession(SessionId id) {
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, LookAt(id));
  losses.FinishLosses(id);
  requests.FinishBusy(id);
  return session;
}

absl::StatusOr<Session*> Cluster::State::LookAt(SessionId id) {
  const auto it = sessions.find(id);
  if (it == sessions.end())
    return Error(absl::StatusCode::kNotFound, "there is no session {}: it has ended", id);
  return &it->second;
}

absl::StatusOr<Array*> Cluster::State::FindArray(SessionId session_id, uint64_t handle) {
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, FindSession(session_id));
  return FindIn(*session, handle);
}

absl::StatusOr<Array*> Cluster::State::FindIn(Session& session, uint64_t handle) {
  Charge(1);
  if (Array* array = session.arrays.find(handle); array != nullptr) return array;
  if (Planted(Bug::kCrossSession)) {
    for (auto& [id, other] : sessions) {
      if (Array* array = other.arrays.find(handle); array != nullptr) return array;
    }
  }
  return Error(
      absl::StatusCode::kNotFound,
      "there is no array {} in this session: it was never made, or its handle was given up",
      handle);
}

Session* Cluster::State::RestOf(SessionId id) {
  if (const auto open = sessions.find(id); open != sessions.end()) return &open->second;
  const auto list = worklists.find(id);
  if (list == worklists.end() || list->second.closing == nullptr) return nullptr;
  return &list->second.closing->session;
}

absl::StatusOr<uint64_t> Cluster::State::NewHandle(Session& session, uint64_t asked) {
  FAIRWAY_RETURN_IF_ERROR(CheckRoom(session, 1));
  if (asked == 0) return session.next_handle++;
  if (asked >= kFirstServerHandle)
    return InvalidArgument("handle {} is in the server's range; clients make theirs below 2^60",
                           asked);
  if (session.arrays.contains(asked) || session.executables.contains(asked) ||
      session.programs.contains(asked))
    return Error(absl::StatusCode::kAlreadyExists, "handle {} is in use", asked);
  return asked;
}

absl::StatusOr<std::vector<uint64_t>> Cluster::State::NewHandles(Session& session,
                                                                 const std::vector<uint64_t>& asked,
                                                                 size_t count) {
  if (!asked.empty() && asked.size() != count)
    return InvalidArgument("{} result handles for {} arrays", asked.size(), count);
  std::vector<uint64_t> handles;
  std::set<uint64_t> fresh;
  for (size_t i = 0; i < count; ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle,
                             NewHandle(session, asked.empty() ? 0 : asked[i]));
    if (!fresh.insert(handle).second)
      return Error(absl::StatusCode::kAlreadyExists, "handle {} is given for two results", handle);
    handles.push_back(handle);
  }
  return handles;
}

absl::StatusOr<IslandId> Cluster::State::IslandOf(const Session& session,
                                                  const std::vector<int32_t>& devices) const {
  FAIRWAY_ASSIGN_OR_RETURN(const IslandId id, fairway::IslandOf(session.devices, devices));
  FAIRWAY_RETURN_IF_ERROR(TakesWork(islands.at(id)));
  return id;
}

Group* Cluster::State::FindGroup(GroupId id) { return all_groups.Find(id); }

Holdings& Cluster::State::HoldingsOf(SessionId session) {
  const auto [it, absent] = holdings.try_emplace(session);
  if (absent) it->second.commands = commands.Share();
  return it->second;
}

Stake& Cluster::State::StakeOf(SessionId session, Holdings& has, IslandId island) {
  const auto [it, absent] = has.stakes.try_emplace(island);
  if (absent) {
    Island& there = islands.at(island);
    it->second.first_device = there.first_device.value;
    it->second.session = session;
    it->second.holders = &there.holders;
  }
  return it->second;
}

void Cluster::State::Hold(SessionId session, CallHold& call, const std::vector<IslandId>& on) {
  constexpr size_t kPerUnit = 8;
  Charge(1 + on.size() / kPerUnit);
  Holdings& has = HoldingsOf(session);
  for (const IslandId island : on) call.Add(StakeOf(session, has, island));
}

void Cluster::State::ForgetHoldings(SessionId session) {
  if (sessions.contains(session)) return;
  const auto it = holdings.find(session);
  if (it == holdings.end() || !it->second.nodes.empty()) return;
  const auto& stakes = it->second.stakes;
  if (std::all_of(stakes.begin(), stakes.end(), [](const auto& stake) {
        return stake.second.groups == nullptr && stake.second.calls == 0;
      }))
    holdings.erase(it);
}

Node* Cluster::State::FindNode(NodeId id) { return all_nodes.Find(id); }

bool Cluster::State::Needed(const Island& island) const {
  if (island.sessions > 0 || island.telling > 0) return true;
  // Sessions that have ended may still have launched work, which runs to its end.
  for (const auto& [session, has] : holdings) {
    const auto stake = has.stakes.find(island.id);
    if (stake == has.stakes.end()) continue;
    if (stake->second.groups != nullptr || stake->second.Holds()) return true;
  }
  return std::ranges::any_of(executables,
                             [&](const auto& entry) { return entry.second.island == island.id; });
}

}  // namespace fairway
