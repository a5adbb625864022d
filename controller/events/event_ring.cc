// SPDX-License-Identifier: Apache-2.0
#include "controller/events/event_ring.h"

#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/status.h"

namespace fairway {

NewEvent IslandEvent(const std::string& island, std::string reason, std::string text,
                     bool warning) {
  return {.kind = EventKind::kFleet,
          .warning = warning,
          .reason = std::move(reason),
          .object = "island " + island,
          .text = std::move(text),
          .owner = island,
          .open = true};
}

NewEvent SessionEvent(uint64_t session, const std::string& tenant, std::string reason,
                      std::string text) {
  return {.kind = EventKind::kSessions,
          .reason = std::move(reason),
          .object = fmt::format("session {}", session),
          .text = std::move(text),
          .owner = tenant,
          .tenant = tenant,
          .session = session};
}

bool EventRing::ByWhat::operator()(const Event* a, const Event* b) const {
  const auto key = [](const NewEvent& of) {
    const bool alike = of.kind == EventKind::kFleet;
    return std::tuple(of.kind, std::string_view(of.owner), std::string_view(of.reason),
                      std::string_view(of.object),
                      alike ? std::string_view() : std::string_view(of.text));
  };
  return key(a->what) < key(b->what);
}

EventRing::Part EventRing::PartOf(const Owner& owner, const std::set<uint64_t>& ids) {
  return {ids.size(), ids.empty() ? 0 : UINT64_MAX - *ids.begin(), owner};
}

EventRing::Owner EventRing::OwnPart(const Room& room, const NewEvent& what) const {
  if (what.kind == EventKind::kSessions && tenants_ == Tenants::kOfTokens) return what.owner;
  const size_t own = room.ids.size() - (room.ids.contains(std::nullopt) ? 1 : 0);
  const bool has_one = room.ids.contains(what.owner);
  if (has_one || own < kParts.at(static_cast<size_t>(what.kind))) return what.owner;
  return std::nullopt;
}

void EventRing::Add(NewEvent what, Time now) {
  constexpr size_t kSaysSo = 64;  // that something is cut
  what.text = BoundedText(what.text, kMostText - kSaysSo);
  for (std::string* const name : {&what.object, &what.owner, &what.tenant})
    *name = BoundedText(*name, kMostName - kSaysSo);
  Kept event{{.id = next_++, .what = std::move(what), .first = now, .last = now, .count = 1}, {}};
  if (const auto known = known_.find(&event); known != known_.end()) {
    event.first = (*known)->first;
    event.count = (*known)->count + 1;
    Remove(**known);
  }
  Room& room = RoomOf(event);
  while (room.size >= kRooms.at(static_cast<size_t>(event.what.kind))) {
    const Owner& most = std::get<Owner>(*room.parts.rbegin());
    Remove(events_.at(*room.ids.at(most).begin()));
  }
  event.part = OwnPart(room, event.what);
  Insert(std::move(event));
}

void EventRing::Insert(Kept event) {
  Room& room = RoomOf(event);
  std::set<uint64_t>& own = room.ids[event.part];
  room.parts.erase(PartOf(event.part, own));
  own.insert(event.id);
  room.parts.insert(PartOf(event.part, own));
  ++room.size;
  const uint64_t id = event.id;
  known_.insert(&events_.emplace(id, std::move(event)).first->second);
}

void EventRing::Remove(const Kept& event) {
  Room& room = RoomOf(event);
  const auto own = room.ids.find(event.part);
  room.parts.erase(PartOf(own->first, own->second));
  own->second.erase(event.id);
  if (own->second.empty()) {
    room.ids.erase(own);
  } else {
    room.parts.insert(PartOf(own->first, own->second));
  }
  --room.size;
  known_.erase(&event);
  events_.erase(event.id);
}

EventRing::Page EventRing::List(const Asked& asked) const {
  Page page;
  for (auto it = events_.upper_bound(asked.after); it != events_.end(); ++it) {
    const NewEvent& what = it->second.what;
    if (asked.session != 0 && what.session != asked.session) continue;
    if (asked.tenant.has_value() && !what.open &&
        (what.session == 0 || what.tenant != *asked.tenant))
      continue;
    if (page.events.size() == kMostRows) {
      page.more = true;
      break;
    }
    page.events.push_back(it->second);
  }
  return page;
}

}  // namespace fairway
