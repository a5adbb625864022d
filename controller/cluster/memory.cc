// SPDX-License-Identifier: Apache-2.0
// Waiting for memory (rule B2). On each device the nodes of a session are admitted in program
// order, so the oldest waiting node depends only on nodes that hold their memory. A node may come
// late, because its bytes came late or an executor was away. Then younger nodes, perhaps its own
// dependants, were admitted before it, as were nodes of other sessions that passed it. For the
// oldest waiting node of an island, younger nodes that have not begun make room again.
#include <algorithm>
#include <cassert>
#include <set>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {
// Steps (kStepsPerUnit) of a search for victims that any turn does, and those of a look at what
// runs.
constexpr size_t kLeastSteps = 16, kMostRunning = 1000;
}  // namespace

void AddReservation(Reservations& list, DeviceId device, int64_t output, int64_t temp,
                    size_t position) {
  std::vector<Reservation>& reservations = list.Own();
  if (position == reservations.size()) reservations.push_back({device, 0, 0, 0});
  Reservation& it = reservations[position];
  assert(it.device == device);
  // More than any device has; sums of a few of these fit into 64 bits.
  constexpr int64_t kMost = 2 * Admission::kNoLimit;
  it.output = std::min(it.output + Rounded(std::min(output, kMost)), kMost);
  it.temp = std::min(it.temp + Rounded(std::min(temp, kMost)), kMost);
}

const Reservation* ReservationOn(const Node& node, DeviceId device, size_t position) {
  const Reservations& list = node.reservations;
  if (position < list.size() && list[position].device == device) return &list[position];
  const auto* const it = std::find_if(list.begin(), list.end(),
                                      [&](const Reservation& r) { return r.device == device; });
  return it == list.end() ? nullptr : it;
}

void AddCredit(Node& node, const Reservation& reservation, int64_t credit) {
  if (credit == 0) return;
  const auto position = static_cast<size_t>(&reservation - node.reservations.begin());
  node.reservations.Own()[position].credit += credit;
}

namespace {

// Whether it reserves what every launch of its code does.
bool SharesReservations(const Node& node) {
  return node.layout != nullptr && node.reservations.Shares(node.layout->reservations);
}

}  // namespace

SharedVector<MemoryNeed> Needs(const Node& node) {
  return SharesReservations(node) ? node.layout->needs : NeedsOf(node.reservations);
}

SharedVector<MemoryNeed> NeedsOf(const Reservations& reservations) {
  std::vector<MemoryNeed> needs;
  needs.reserve(reservations.size());
  for (const Reservation& r : reservations) needs.push_back({r.device, r.total()});
  return InRows(std::move(needs));
}

SharedVector<MemoryNeed> RoomOf(const std::vector<Place>& places) {
  std::vector<MemoryNeed> room;
  room.reserve(places.size());
  for (const Place& place : places) room.push_back({place.device, Rounded(place.bytes)});
  return InRows(std::move(room));
}

const SharedVector<MemoryNeed>& RoomOf(Group& group) {
  if (group.room.empty()) group.room = RoomOf(group.places.get());
  return group.room;
}

Cluster::MemoryRoom::Held Cluster::MemoryRoom::HeldOn(DeviceId device) const {
  Held held;
  const Executor& executor = *s.ExecutorOf(device);
  s.Charge(s.holdings.size() / kStepsPerUnit);
  for (const auto& [session, has] : s.holdings) {
    const auto stake = has.stakes.find(executor.island);
    if (stake == has.stakes.end()) continue;
    const size_t at = device.value - stake->second.first_device;
    if (at >= stake->second.held.size() || stake->second.held[at].shards == 0) continue;
    held[session] = {stake->second.held[at].bytes, stake->second.held[at].shards};
  }
  return held;
}

std::string Cluster::MemoryRoom::WhoHolds(const Held& held, SessionId asking) {
  // Those that hold most. It goes into the error of each node that fails.
  constexpr size_t kNamed = 8;
  std::vector<std::pair<SessionId, std::pair<int64_t, int>>> most(held.begin(), held.end());
  const size_t named = std::min(kNamed, most.size());
  std::ranges::partial_sort(
      most, most.begin() + static_cast<ptrdiff_t>(named), [](const auto& a, const auto& b) {
        return a.second.first != b.second.first ? a.second.first > b.second.first
                                                : a.first < b.first;
      });
  std::string text;
  for (size_t i = 0; i < named; ++i) {
    const auto& [session, sum] = most[i];
    text +=
        fmt::format("{}session {}{} holds {} bytes in {} shard buffers", text.empty() ? "" : ", ",
                    session, session == asking ? " (this one)" : "", sum.first, sum.second);
  }
  if (named < most.size()) text += fmt::format(", and {} others hold less", most.size() - named);
  return text.empty() ? "no session holds any" : text;
}

absl::Status Cluster::MemoryRoom::Exhausted(const Admission::Shortage& shortage,
                                            std::string_view why) const {
  const Node& node = *s.all_nodes.at(shortage.node);
  const Executor& executor = *s.ExecutorOf(shortage.device);
  return Error(
      absl::StatusCode::kResourceExhausted,
      "Out of memory: {} needs {} bytes on device {} of {}, which has {} and {} in use: {}. Delete "
      "arrays, donate inputs, use smaller shards, or devices with more memory (--device-memory of "
      "their workers, all of the host's by default)",
      node.name, shortage.need, shortage.device.value - executor.first_device.value,
      s.Where(node.island), shortage.limit, shortage.used, why);
}

void Cluster::MemoryRoom::BeginSearch(Island& island, const Node& node) {
  island.search = {};
  island.search.node = node.id;
  island.search.below = NodeId(UINT64_MAX);
  s.Charge(1 + node.reservations.size() / (kDevicesPerStep * kStepsPerUnit));
  for (const MemoryNeed& need : Needs(node)) {
    for (uint32_t i = 0; i < need.count; ++i) {
      const int64_t lacks = need.bytes - s.admission.room(need.at(i));
      if (lacks > 0) island.search.missing[need.at(i)] = lacks;
    }
  }
  s.to_pump.insert(island.id);
}

bool Cluster::MemoryRoom::Lacks(const Node& node) const {
  const SharedVector<MemoryNeed> needs = Needs(node);
  return std::any_of(needs.begin(), needs.end(), [&](const MemoryNeed& need) {
    for (uint32_t i = 0; i < need.count; ++i) {
      if (need.bytes > s.admission.room(need.at(i))) return true;
    }
    return false;
  });
}

bool Cluster::MemoryRoom::Search(Island& island, uint64_t until) {
  Island::Search& search = island.search;
  auto it = island.prepared.lower_bound(search.below);
  size_t steps = 0;
  while (!search.missing.empty() && it != island.prepared.begin() && *std::prev(it) > search.node) {
    if (steps >= kLeastSteps && s.units + steps / kStepsPerUnit >= until) {
      s.Charge(steps / kStepsPerUnit);
      s.to_pump.insert(island.id);
      return false;
    }
    const Node& younger = *s.all_nodes.at(*--it);
    search.below = younger.id;
    bool helps = false;
    for (const Reservation& r : younger.reservations) {
      const auto lacks = search.missing.find(r.device);
      if (lacks == search.missing.end() || r.total() == 0) continue;
      helps = true;
      if ((lacks->second -= r.total()) <= 0) search.missing.erase(lacks);
    }
    if (helps) search.victims.push_back({younger.id, younger.attempt});
    steps += 1 + younger.reservations.size() / kDevicesPerStep;
  }
  s.Charge(steps / kStepsPerUnit);
  Node* const node = s.FindNode(search.node);
  if (node == nullptr || node->state != NodeState::kQueued || !Lacks(*node)) {
    search = {};  // it has ended, or fits
  } else if (!search.missing.empty()) {
    search.in_vain = search.for_tick;
    search.round = rounds_;
    if (!search.for_tick) search = {};
  } else {
    // Younger nodes first, so that readers go before the nodes that they read.
    island.victims.assign(search.victims.rbegin(), search.victims.rend());
    island.room_made_for = search.node;
    search = {};
    // The victims may fit again beside it if more memory comes back, so it goes before them.
    s.admission.ServeNext(island.id, node->session);
    s.to_pump.insert(island.id);
  }
  return true;
}

bool Cluster::MemoryRoom::MakeRoom(Island& island, uint64_t until) {
  if (island.search.under_way() && !Search(island, until)) return false;
  for (bool first = true; !island.victims.empty() && (first || s.units < until); first = false) {
    s.Charge(1);
    const Island::Victim victim = island.victims.back();
    Node* const node = s.FindNode(victim.node);
    // If it is not over, its session goes on with it.
    if (node != nullptr && node->attempt == victim.attempt &&
        !s.nodes.TakeBack(*node, absl::AbortedError("an older node needs the memory")))
      break;
    island.victims.pop_back();
  }
  if (!island.victims.empty()) s.to_pump.insert(island.id);
  return island.victims.empty();
}

bool Cluster::MemoryRoom::HasVictims(Island& island, const Node& oldest, uint64_t until) {
  if (!island.victims.empty()) return true;
  const bool asked = island.search.node == oldest.id &&
                     (island.search.under_way() || rounds_ <= island.search.round + 1);
  if (!asked) BeginSearch(island, oldest);
  island.search.for_tick = true;
  if (island.search.under_way() && !Search(island, until)) return true;
  // What takes no turns is found out again by the next tick.
  if (!asked) island.search = {};
  return !island.victims.empty();
}

void Cluster::MemoryRoom::CountLeaving(Group& group) {
  if (live_ && WillBeGivenBack(group)) live_->GivenUp(group);
  const bool leaving = (group.charged || group.reserved) && group.queued_readers == 0 &&
                       (group.handle_refs == 0 || group.all_deleted());
  if (std::exchange(group.leaving, leaving) == leaving) return;
  for (const MemoryNeed& room : RoomOf(group))
    s.admission.WillRelease(room.device, leaving ? room.bytes : -room.bytes, room.count);
}

void Cluster::MemoryRoom::CountTemporary(const Node& node, bool begins) {
  if (SharesReservations(node)) {
    for (const MemoryNeed& temp : node.layout->temps)
      s.admission.WillRelease(temp.device, begins ? temp.bytes : -temp.bytes, temp.count);
    return;
  }
  for (const Reservation& r : node.reservations) {
    if (r.temp > 0) s.admission.WillRelease(r.device, begins ? r.temp : -r.temp);
  }
}

bool WillBeGivenBack(const Group& group) {
  return group.stored == nullptr && (group.handle_refs == 0 || group.all_deleted());
}

bool Cluster::MemoryRoom::WillBeFreed(const Admission::Shortage& first, NodeId before,
                                      const Island& island) const {
  if (Planted(Bug::kWaitForEver) || Planted(Bug::kGiveUpEarly)) return Planted(Bug::kWaitForEver);
  // The end of its work may let its own session free memory. Other sessions are not counted on.
  return live_->WillFree(before, first.device, island.id, first.session);
}

Cluster::MemoryRoom::Helper Cluster::MemoryRoom::FirstHelper(const Admission::Shortage& first,
                                                             NodeId from,
                                                             const Island& island) const {
  if (Planted(Bug::kGiveUpEarly)) return {};
  size_t steps = 0;
  Helper helper;
  for (const NodeId id : island.sequencer.Running(from, kMostRunning + 1)) {
    if (steps >= kMostRunning) {
      helper = {id, false};
      break;
    }
    ++steps;
    const Node* const node = s.FindNode(id);
    if (node == nullptr || !node->has_memory()) continue;
    const bool own = node->session == first.session;
    if (!own) steps += node->reservations.size() / kDevicesPerStep;
    if (!own && ReservationOn(*node, first.device, 0) == nullptr) continue;
    helper = {id, true};
    break;
  }
  s.Charge(1 + steps / kStepsPerUnit);
  return helper;
}

void Cluster::MemoryRoom::Release(Island& island, DeviceId device, int64_t bytes, uint32_t count) {
  s.admission.Release(device, bytes, count);
  if (bytes > 0) ++island.moves;
}

void Cluster::MemoryRoom::ReleaseEnded(Island& island, const Node& node, bool keeps) {
  if (SharesReservations(node) && keeps) {
    for (const MemoryNeed& temp : node.layout->temps)
      Release(island, temp.device, temp.bytes, temp.count);
    return;
  }
  for (const Reservation& r : node.reservations) {
    Release(island, r.device, r.temp);
    if (!keeps) Release(island, r.device, r.output - r.credit);
  }
}

void Cluster::MemoryRoom::GiveUpStuck(int64_t now_ms) {
  if (s.losses.open_losses > 0) return;  // the work under way is about to change
  const uint64_t until = s.units + s.options.turn_units / 2;
  std::vector<Due> due;
  auto [next, from] = due_next_;
  size_t left = s.options.turn_units;
  bool over = true;
  for (size_t islands = s.islands.size(); islands > 0 && left > 0; --islands) {
    auto at = s.islands.lower_bound(next);
    if (at == s.islands.end()) at = s.islands.begin();
    if (std::exchange(next, at->first) != at->first) from = NodeId();
    if (!FindDue(at->second, now_ms, until, from, left, due)) over = false;
    if (!from) next = IslandId(next.value + 1);
  }
  if (Judge(std::move(due), now_ms) && over) due_next_ = {next, from};
}

bool Cluster::MemoryRoom::FindDue(Island& island, int64_t now_ms, uint64_t until, NodeId& from,
                                  size_t& left, std::vector<Due>& due) {
  if (!from) ++island.stuck_looks;
  std::vector<Admission::Shortage> firsts;
  if (s.IslandUp(island)) {
    const size_t looked = s.admission.Firsts(island.id, left, from, firsts);
    left -= looked;
    s.Charge(s.admission.TakeSteps() / kShardsPerUnit + looked / kStepsPerUnit);
  } else {
    from = NodeId();
  }
  for (const Admission::Shortage& first : firsts) {
    const auto stuck = island.stuck.find(first.session);
    if (stuck != island.stuck.end()) stuck->second.seen = island.stuck_looks;
  }
  if (!from) {
    std::erase_if(island.stuck,
                  [&](const auto& entry) { return entry.second.seen != island.stuck_looks; });
  }
  if (firsts.empty()) return true;
  const NodeId oldest = s.admission.Oldest(island.id)->node;
  if (HasVictims(island, *s.FindNode(oldest), until)) return !island.search.under_way();
  for (const Admission::Shortage& first : firsts) {
    Island::Stuck& stuck = island.stuck[first.session];
    if (stuck.more && FailsYet(first.session)) continue;
    const uint64_t submitted = s.FindNode(first.node)->submitted;
    stuck.more &=
        island.moves == stuck.moves && first.device == stuck.device && submitted <= stuck.through;
    if (stuck.more) stuck.node = first.node;
    // A node that was taken back since has a grace of its own.
    if (stuck.node != first.node || submitted > stuck.through) {
      stuck = {first.node,  NodeId(s.nodes.next_node),
               now_ms,      s.nodes.num_submitted,
               first.lacks, std::max<int64_t>(first.lacks / 16, 1)};
    } else if (first.lacks <= stuck.lacks - stuck.step) {
      stuck.since = now_ms;
      stuck.through = s.nodes.num_submitted;
      stuck.lacks = first.lacks;
    }
    stuck.seen = island.stuck_looks;
    if (now_ms - stuck.since >= s.options.admission_grace_ms)
      due.push_back({stuck.before, island.id, first.session});
  }
  return true;
}

bool Cluster::MemoryRoom::Judge(std::vector<Due> due, int64_t now_ms) {
  const uint64_t until = s.units + s.options.turn_units / 2;
  std::ranges::sort(due);
  if (!live_ && !due.empty()) judged_up_to_ = due.back().before;
  bool any = false;
  for (const auto& [before, id, session] : due) {
    Island& island = s.islands.at(id);
    Island::Stuck& stuck = island.stuck.at(session);
    // Its grace may be over again before all others were judged.
    if (!stuck.more && stuck.judged == rounds_) continue;
    if (std::exchange(any, true) && s.units >= until) return false;  // the next tick goes on
    if (!stuck.more && live_ && (before > judged_up_to_ || before < live_->next())) continue;
    const Admission::Shortage first = *s.admission.First(id, session);
    const Helper helper = FirstHelper(first, NodeId(), island);
    const bool runs = helper.node && helper.node < before;
    bool freed = runs && helper.known;
    // Those that are stuck with one that has failed are not judged anew.
    if (!freed && (!stuck.more || runs)) {
      if (live_ && (before > judged_up_to_ || before < live_->next())) continue;
      if (!live_) live_.emplace(s);
      looks_up_to_ = before;
      GoOnLooking(until);
      if (looks_) return false;
      freed = WillBeFreed(first, before, island);
    }
    // The failure of one may make room for others, which the next tick will see.
    if (!freed) {
      FailStuck(island, first, stuck);
      return false;
    }
    stuck.more = false;
    stuck.since = now_ms;
    stuck.through = s.nodes.num_submitted;
    stuck.judged = rounds_;
  }
  LookAnew();
  return true;
}

bool Cluster::MemoryRoom::FailsYet(SessionId session) const {
  const auto left = s.worklists.find(session);
  return left != s.worklists.end() && left->second.follows();
}

void Cluster::MemoryRoom::FailStuck(Island& island, const Admission::Shortage& first,
                                    Island::Stuck& stuck) {
  const uint64_t until = s.units + s.options.turn_units / 2;
  const Held held = HeldOn(first.device);
  const Helper helper = FirstHelper(first, stuck.before, island);
  stuck.more = false;
  stuck.device = first.device;
  stuck.moves = island.moves;
  for (bool begins = true;; begins = false) {
    // As long as nothing is freed and nothing begins, all nodes that have waited as long for the
    // same device are stuck as well.
    const auto next = s.admission.First(island.id, first.session);
    if (!next || next->device != stuck.device || island.moves != stuck.moves) return;
    Node& node = *s.FindNode(next->node);
    if (node.submitted > stuck.through) return;
    if (!begins) {
      // Nodes that began after the first of them may free enough for the later ones.
      if (helper.node && helper.node < node.id) return;
      if (s.units >= until) break;
    }
    ++island.given_up;
    island.last_given_up = node.id;
    island.given_up_for = next->device;
    s.nodes.Fail(node,
                 Exhausted(*next, WhoHolds(held, node.session) +
                                      ". No work that is under way would free enough"),
                 node.id);
    // Its dependants fail with it first, so that none of them is given up for the same reason.
    while (FailsYet(first.session) && s.units < until)
      s.work.DoItem(first.session, s.worklists.at(first.session));
    if (FailsYet(first.session)) break;
  }
  stuck.more = true;
}

}  // namespace fairway
