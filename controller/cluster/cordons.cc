// SPDX-License-Identifier: Apache-2.0
// Operators keep new sessions from islands, and wait until nobody has anything there.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "controller/cluster/fleet.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {

constexpr size_t kMostHolders = 50;  // told
constexpr size_t kMostNamed = 20;    // islands, in an error

bool IsEmpty(const Stake& stake) { return stake.arrays == 0 && stake.nodes == 0; }

absl::Status NoSuchIsland(const Registry& registry, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, id] : registry.island_by_name) names.push_back(known);
  std::ranges::sort(names);
  const size_t left_out = names.size() - std::min(names.size(), kMostNamed);
  names.resize(names.size() - left_out);
  return Error(
      absl::StatusCode::kNotFound, "there is no island '{}' (there {})", BoundedText(name, 200),
      names.empty() ? "is none"
                    : fmt::format("are {}{}", fmt::join(names, ", "), left_out > 0 ? ", ..." : ""));
}

}  // namespace

absl::StatusOr<bool> Cluster::Fleet::CordonIsland(const std::string& name, Cordon cordon) {
  const Operation operation(*state_);
  State& s = *state_;
  if (s.cordons.contains(name)) return false;
  if (!s.island_by_name.contains(name)) return NoSuchIsland(s, name);
  if (s.cordons.size() >= kMostCordons)
    return Error(absl::StatusCode::kResourceExhausted,
                 "{} islands are cordoned, and no more may be; uncordon some (`fairway uncordon`)",
                 s.cordons.size());
  cordon.drained = false;
  s.cordons.emplace(name, std::move(cordon));
  return true;
}

absl::StatusOr<bool> Cluster::Fleet::UncordonIsland(const std::string& name) {
  const Operation operation(*state_);
  State& s = *state_;
  if (s.cordons.erase(name) > 0) return true;
  if (!s.island_by_name.contains(name)) return NoSuchIsland(s, name);
  return false;
}

absl::StatusOr<DrainProgress> Cluster::Fleet::DrainIsland(const std::string& name,
                                                          std::optional<Cordon> cordon) {
  DrainProgress progress;
  if (cordon.has_value()) {
    FAIRWAY_ASSIGN_OR_RETURN(progress.cordoned, CordonIsland(name, *std::move(cordon)));
  } else if (!state_->cordons.contains(name)) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        "island {} is not cordoned any more: somebody uncordoned it (`fairway get events`), "
        "or the controller has been restarted; `fairway drain {}` begins anew",
        BoundedText(name, 200), BoundedText(name, 200));
  }
  const Operation operation(*state_);
  State& s = *state_;
  if (const auto known = s.island_by_name.find(name); known != s.island_by_name.end()) {
    const Island& island = s.islands.at(known->second);
    std::map<SessionId, size_t> running;
    for (const NodeId id : island.sequencer.Running()) {
      s.Charge(1);
      if (const Node* const node = s.FindNode(id)) ++running[node->session];
    }
    size_t open = 0;  // of the holders
    for (const auto& [id, has] : s.holdings) {
      const auto stake = has.stakes.find(island.id);
      if (stake == has.stakes.end() || IsEmpty(stake->second)) continue;
      IslandHolder holder{.session = id,
                          .ended = !s.sessions.contains(id),
                          .arrays = stake->second.arrays,
                          .bytes = stake->second.bytes};
      const auto runs = running.find(id);
      holder.running = runs == running.end() ? 0 : std::min(runs->second, stake->second.nodes);
      holder.unfinished = stake->second.nodes - holder.running;
      open += holder.ended ? 0 : 1;
      progress.most.push_back(std::move(holder));
    }
    s.Charge(progress.most.size() + s.holdings.size() / 16);
    progress.holders = progress.most.size();
    const size_t told = std::min(progress.holders, kMostHolders);
    std::ranges::partial_sort(
        progress.most, progress.most.begin() + static_cast<std::ptrdiff_t>(told),
        [](const IslandHolder& a, const IslandHolder& b) {
          return std::pair(-a.bytes, a.session) < std::pair(-b.bytes, b.session);
        });
    progress.most.resize(told);
    for (IslandHolder& holder : progress.most) {
      if (const Session* const session = s.RestOf(holder.session))
        holder.tenant = BoundedText(session->tenant, 256);
    }
    progress.watching = island.sessions - std::min(island.sessions, open);
  }
  Cordon& kept = s.cordons.at(name);
  progress.closed = !kept.drained && progress.holders == 0;
  kept.drained = kept.drained || progress.closed;
  progress.drained = kept.drained;  // what has come since then fails
  return progress;
}

}  // namespace fairway
