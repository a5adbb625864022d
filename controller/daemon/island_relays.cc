// SPDX-License-Identifier: Apache-2.0
// IslandLinks: relays (docs/design/0066-relays.md).
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/planted.h"
#include "controller/daemon/island_links.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {

void IslandLinks::RelayUp(ExecutorId host, Link* link, Incarnation incarnation,
                          std::string endpoint, std::string worker) {
  Relay& relay = relays_[host];
  if (relay.link == link || (Planted(Bug::kLostRelayStays) && relay.placed)) return;
  relay.link = link;
  relay.incarnation = incarnation;
  relay.secret = options_.secret();
  relay.endpoint = std::move(endpoint);
  relay.worker = std::move(worker);
  (relay.placed ? version_due_ : replan_) = true;
}

void IslandLinks::RelayDown(ExecutorId host) {
  const auto it = relays_.find(host);
  if (it == relays_.end()) return;
  Relay& relay = it->second;
  if (Planted(Bug::kLostRelayStays) && relay.placed) {
    relay.link = nullptr;
    return;
  }
  if (relay.placed) version_due_ = true;
  if (relay.child) {
    head_.Detach(*relay.child);
    end_of_child_[*relay.child] = nullptr;
  }
  for (auto& [id, member] : members_) {
    if (member.above == &relay) member.above = nullptr;
  }
  std::erase(due_, &relay);
  relays_.erase(it);
}

TreePlan IslandLinks::Plan() const {
  std::vector<ExecutorIndex> well, hosts;
  std::vector<ExecutorIndex> unwell;
  for (const auto& [id, member] : members_) (member.well_after ? unwell : well).push_back(id.value);
  for (const auto& [host, relay] : relays_) {
    if (!relay.well_after && relay.link != nullptr) hosts.push_back(host.value);
  }
  TreePlan plan = PlanTree(well, hosts, options_.fanout);
  plan.executors.insert(plan.executors.end(), unwell.begin(), unwell.end());
  std::ranges::sort(plan.executors);
  return plan;
}

LogChild IslandLinks::Below(size_t relay) const {
  LogChild out;
  for (const ExecutorIndex executor : plan_.relays[relay].executors)
    out.live.push_back({executor, members_.at(ExecutorId(executor)).joined});
  for (const size_t below : plan_.relays[relay].relays) {
    const LogChild child = Below(below);
    out.live.insert(out.live.end(), child.live.begin(), child.live.end());
  }
  return out;
}

v1::RelayTask IslandLinks::TaskOf(size_t relay, const std::string& parent) const {
  v1::RelayTask out;
  out.set_version(head_.version());
  out.set_controller_incarnation(options_.controller.value);
  out.set_parent(parent);
  out.set_secret(relays_.at(ExecutorId(plan_.relays[relay].host)).secret);
  const auto add = [&](Incarnation incarnation, const std::string& secret,
                       const std::string& worker, const LogChild& below) {
    v1::RelayTask::Child* const child = out.add_children();
    child->set_incarnation(incarnation.value);
    child->set_secret(secret);
    child->set_worker(worker);
    for (const LogMember& member : below.live) {
      v1::RelayTask::Member* const one = child->add_below();
      one->set_executor(member.executor);
      one->set_joined(member.joined);
    }
    return child;
  };
  for (const ExecutorIndex executor : plan_.relays[relay].executors) {
    const Member& member = members_.at(ExecutorId(executor));
    add(member.incarnation, member.secret, member.worker, {{{executor, member.joined}}})
        ->set_floor(head_.floor(executor));
  }
  for (const size_t below : plan_.relays[relay].relays) {
    const Relay& other = relays_.at(ExecutorId(plan_.relays[below].host));
    add(other.incarnation, other.secret, other.worker, Below(below))->set_relay(true);
  }
  return out;
}

void IslandLinks::PlaceRelays(uint32_t child, Clock::time_point now) {
  std::vector<Relay*> had;
  for (auto& [host, relay] : relays_) {
    if (std::exchange(relay.placed, false)) had.push_back(&relay);
    relay.child.reset();
    relay.heard = relay.taken = now;
    relay.taken_to = 0;
    relay.trips.Clear();
  }
  for (size_t i = 0; i < plan_.relays.size(); ++i) {
    if (!plan_.relays[i].top) continue;
    Relay& relay = relays_.at(ExecutorId(plan_.relays[i].host));
    end_of_child_[child] = &relay;
    relay.child = child++;
    PlaceBelow(i, &relay, {});
    // The task precedes the frames of its version on this link, so nothing of older ones is in the
    // way.
    Expect(head_.Attach(*relay.child, Planted(Bug::kSkipOpen) ? head_.log().last() : 0));
    SetDue(relay);
  }
  v1::FromController none;
  none.mutable_relay_task()->set_version(head_.version());
  for (Relay* const relay : had) {
    if (!relay->placed && relay->link != nullptr) relay->link->Send(PackFrame(none));
  }
}

void IslandLinks::PlaceBelow(size_t index, Relay* top, const std::string& parent) {
  const TreePlan::Relay& plan = plan_.relays[index];
  Relay& relay = relays_.at(ExecutorId(plan.host));
  relay.placed = true;
  v1::FromController task;
  *task.mutable_relay_task() = TaskOf(index, parent);
  if (relay.link != nullptr) relay.link->Send(PackFrame(task));
  for (const ExecutorIndex executor : plan.executors) {
    Member& member = members_.at(ExecutorId(executor));
    member.above = top;
    TellParent(ExecutorId(executor), member, relay.endpoint,
               plan.executors.size() + plan.relays.size());
  }
  for (const size_t below : plan.relays) PlaceBelow(below, top, relay.endpoint);
}

void IslandLinks::TellParent(ExecutorId id, Member& member, const std::string& endpoint,
                             size_t children) {
  if (member.parent && *member.parent != endpoint) ++moves_;
  member.parent = endpoint;
  v1::LogParent parent;
  parent.set_version(head_.version());
  parent.set_endpoint(endpoint);
  if (!endpoint.empty()) parent.set_secret(member.secret);
  parent.set_children(static_cast<int>(children));
  parents_.emplace_back(id, std::move(parent));
}

absl::Status IslandLinks::Ask(ExecutorId executor, const v1::LogAsk& ask) {
  const auto it = members_.find(executor);
  if (it == members_.end())
    return absl::FailedPreconditionError("the log has nothing for this executor any more");
  Member& member = it->second;
  // It has yet to hear of a newer version.
  if (!member.asks || ask.version() != head_.version()) return absl::OkStatus();
  FAIRWAY_RETURN_IF_ERROR(CheckFloor(executor, ask.applied()));
  FAIRWAY_RETURN_IF_ERROR(head_.Attach(*member.child, ask.applied()));
  member.asks = false;
  SetDue(member);
  return absl::OkStatus();
}

absl::Status IslandLinks::TakeFromRelay(ExecutorId host, const Frame& frame,
                                        Clock::time_point now) {
  const auto it = relays_.find(host);
  if (it == relays_.end()) return absl::OkStatus();
  Relay& relay = it->second;
  FAIRWAY_ASSIGN_OR_RETURN(const LogReport report, DecodeLogReport(frame.payload));
  if (report.version < head_.version()) return absl::OkStatus();  // R3
  if (!relay.child)
    return InvalidArgument("a report of version {} came from a relay that is no child in it",
                           report.version);
  FAIRWAY_RETURN_IF_ERROR(head_.Take(*relay.child, report));
  relay.heard = now;
  relay.trips.Answer(frame.id, Exact());
  NoteConcluded();
  if (Leaves(relay)) SetDue(relay);
  return absl::OkStatus();
}

void IslandLinks::NoteTrouble(std::optional<Clock::time_point>& well_after, Clock::time_point now) {
  if (well_after) return;
  well_after = now + options_.trouble_pause;
  version_due_ = true;
  ++troubles_;
}

void IslandLinks::EndTroubles(Clock::time_point now) {
  const auto end = [&](std::optional<Clock::time_point>& well_after) {
    if (!well_after || *well_after > now) return;
    well_after.reset();
    replan_ = true;
  };
  for (auto& [id, member] : members_) end(member.well_after);
  for (auto& [host, relay] : relays_) end(relay.well_after);
}

void IslandLinks::TakeTrouble(ExecutorId host, const v1::RelayTrouble& trouble,
                              Clock::time_point now) {
  if (trouble.version() != head_.version() || Planted(Bug::kTroubleUnheard)) return;
  const auto from = std::ranges::find(plan_.relays, host.value, &TreePlan::Relay::host);
  if (from == plan_.relays.end()) return;
  for (const ExecutorIndex executor : from->executors) {
    const auto it = members_.find(ExecutorId(executor));
    if (it == members_.end() || it->second.incarnation.value != trouble.incarnation()) continue;
    NoteTrouble(it->second.well_after, now);
  }
  for (const size_t below : from->relays) {
    const auto it = relays_.find(ExecutorId(plan_.relays[below].host));
    if (it == relays_.end() || it->second.incarnation.value != trouble.incarnation()) continue;
    NoteTrouble(it->second.well_after, now);
  }
}

void IslandLinks::AskRelays(RoundTrips::Time late, LinkTraffic& sent) {
  own_.Add(late);
  for (auto& [host, relay] : relays_) {
    if (relay.link == nullptr || !relay.child || relay.link->queued_bytes() > 0 ||
        head_.outbox(*relay.child).bytes() > kMostWhenAsked)
      continue;
    Frame frame;
    frame.type = kLogFrame;
    frame.id = relay.trips.Ask(Exact());
    if (frame.id == 0) continue;
    frame.payload = LogFrameWriter(head_.version(), {}).Take();
    ++sent.messages;
    sent.bytes += kFrameHeaderBytes + frame.bytes();
    relay.link->Send(std::move(frame));
  }
}

std::string IslandLinks::TroubleOf(const Relay& relay, LateRelays& late,
                                   Clock::time_point now) const {
  if (now - relay.heard > options_.relay_patience) return "it is silent";
  if (now - relay.taken > options_.relay_patience) return "it does not take its entries";
  return late.IsLate(relay.trips) ? relay.trips.LateText() : std::string();
}

void IslandLinks::JudgeRelays(Clock::time_point now) {
  // If this process did not run, no relay was silent because of itself.
  const bool stalled = now - std::exchange(judged_, now) > options_.relay_patience / 2;
  if (stalled) own_.Clear();
  LateRelays late(options_.relay_soon, own_);
  for (auto& [host, relay] : relays_) {
    if (stalled) relay.trips.Clear();
    if (relay.child) late.Add(relay.trips);
  }
  for (auto& [host, relay] : relays_) {
    if (!relay.child || relay.well_after || Planted(Bug::kSilentRelayStays)) continue;
    if (Planted(Bug::kLostRelayStays) && relay.link == nullptr) continue;
    const LogOutbox& outbox = head_.outbox(*relay.child);
    if (stalled) relay.heard = now;
    if (stalled || !outbox.Crowded(options_.relay_bytes) || outbox.applied() != relay.taken_to) {
      relay.taken = now;
      relay.taken_to = outbox.applied();
    }
    const std::string why = TroubleOf(relay, late, now);
    if (why.empty()) continue;
    spdlog::info("the relay of worker {} is left out for {} s: {}", relay.worker,
                 options_.trouble_pause.count(), why);
    NoteTrouble(relay.well_after, now);
  }
}

int IslandLinks::depth() const {
  int depth = members_.empty() ? 0 : 1;
  for (const TreePlan::Relay& relay : plan_.relays)
    depth = std::max(depth, relay.relays.empty() ? 2 : 3);
  return depth;
}

}  // namespace fairway
