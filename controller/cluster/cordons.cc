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

absl::Status NoSuchIsland(const Registry& registry, const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& [known, id] : registry.island_by_name) {
    if (names.size() == kMostNamed) break;
    names.push_back(known);
  }
  const bool more = names.size() < registry.island_by_name.size();
  return Error(absl::StatusCode::kNotFound, "there is no island '{}' (there {})",
               BoundedText(name, 200),
               names.empty() ? "is none"
                             : fmt::format("are {}{}", fmt::join(names, ", "),
                                           more ? ", ...; `fairway get islands` lists all" : ""));
}

IslandHolder HolderOf(const Stake& stake, bool ended, const std::map<SessionId, size_t>& running) {
  IslandHolder holder{
      .session = stake.session, .ended = ended, .arrays = stake.arrays, .bytes = stake.bytes};
  if (const auto runs = running.find(stake.session); runs != running.end())
    holder.running = std::min(runs->second, stake.nodes);
  holder.unfinished = stake.nodes - holder.running + stake.calls;
  return holder;
}

// Keeps those that are told: with most bytes, and of those with as many the ones opened first.
void KeepMost(std::vector<IslandHolder>& holders) {
  const size_t told = std::min(holders.size(), kMostHolders);
  std::ranges::partial_sort(holders, holders.begin() + static_cast<std::ptrdiff_t>(told),
                            [](const IslandHolder& a, const IslandHolder& b) {
                              return std::pair(-a.bytes, a.session) <
                                     std::pair(-b.bytes, b.session);
                            });
  holders.resize(told);
}

}  // namespace

absl::StatusOr<bool> Cluster::Fleet::CordonIsland(const std::string& name, Cordon cordon) {
  const Operation operation(*state_);
  State& s = *state_;
  if (s.cordons.contains(name)) return false;
  const auto known = s.island_by_name.find(name);
  if (known == s.island_by_name.end()) return NoSuchIsland(s, name);
  if (s.cordons.size() >= kMostCordons)
    return Error(
        absl::StatusCode::kResourceExhausted,
        "{} islands are cordoned, and no more may be; uncordon some (`fairway get islands` "
        "lists them, also those that are absent)",
        s.cordons.size());
  cordon.drained = false;
  s.cordons.emplace(name, std::move(cordon));
  s.UpdateOpen(s.islands.at(known->second));
  return true;
}

absl::StatusOr<bool> Cluster::Fleet::UncordonIsland(const std::string& name) {
  const Operation operation(*state_);
  State& s = *state_;
  const bool cordoned = s.cordons.erase(name) > 0;
  const auto known = s.island_by_name.find(name);
  if (known != s.island_by_name.end()) {
    s.UpdateOpen(s.islands.at(known->second));
  } else if (!cordoned) {
    return NoSuchIsland(s, name);
  }
  return cordoned;
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
    progress.holders = island.holders.size();
    progress.watching = island.sessions;
  }
  Cordon& kept = s.cordons.at(name);
  const size_t ignored = Planted(Bug::kDrainForgetsHolder) ? 1 : 0;
  progress.closed = !kept.drained && progress.holders <= ignored;
  kept.drained = kept.drained || progress.closed;
  progress.drained = kept.drained;  // what has come since then fails
  return progress;
}

bool Cluster::Fleet::LookAtHolders(const std::string& name, DrainProgress& progress) const {
  const Operation operation(*state_);
  State& s = *state_;
  const auto known = s.island_by_name.find(name);
  if (known == s.island_by_name.end()) return true;  // it was forgotten meanwhile
  const Island& island = s.islands.at(known->second);
  DrainProgress::Look& look = progress.look;
  if (!look.launches_done) {
    if (look.end == NodeId()) look.end = NodeId(s.nodes.next_node);
    const std::vector<NodeId> nodes = island.sequencer.Running(look.next, kMostLooks);
    s.Charge(nodes.size());
    for (const NodeId id : nodes) {
      look.next = NodeId(id.value + 1);
      if (const Node* const node = s.FindNode(id)) ++look.running[node->session];
    }
    look.launches_done = nodes.size() < kMostLooks || look.next >= look.end;
    return false;
  }
  auto next = island.holders.upper_bound(look.after);
  for (size_t i = 0; i < kMostLooks && next != island.holders.end(); ++i, ++next) {
    look.after = *next;
    const bool ended = !s.sessions.contains(*next);
    const Stake& stake = s.holdings.at(*next).stakes.at(island.id);
    progress.most.push_back(HolderOf(stake, ended, look.running));
    look.open += ended ? 0 : 1;
    ++look.holders;
    s.Charge(1);
  }
  KeepMost(progress.most);
  if (next != island.holders.end()) return false;
  for (IslandHolder& holder : progress.most) {
    if (const Session* const session = s.RestOf(holder.session))
      holder.tenant = BoundedText(session->tenant, 256);
  }
  progress.holders = look.holders;
  progress.watching = island.sessions - std::min(island.sessions, look.open);
  return true;
}

}  // namespace fairway
