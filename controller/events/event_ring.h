// SPDX-License-Identifier: Apache-2.0
// What operators want to know of a cluster's past: the latest events, in bounded memory.
#ifndef FAIRWAY_CONTROLLER_EVENTS_EVENT_RING_H_
#define FAIRWAY_CONTROLLER_EVENTS_EVENT_RING_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fairway {

// Each kind has a room of its own, so that none pushes out events of another one.
enum class EventKind : uint8_t {
  kFleet,     // islands and their workers, and what operators did with them
  kSessions,  // of clients
  kRefusals,  // of workers, by whoever may connect
};

// Something that has happened.
struct NewEvent {
  EventKind kind = EventKind::kFleet;
  bool warning = false;
  std::string reason;       // one word for programs: "IslandLost"
  std::string object;       // "island i0", "session 7"
  std::string text;         // a sentence for people
  std::string owner = {};   // whose part of the room it takes: an island, a tenant, a host
  std::string tenant = {};  // of a session; else it is the cluster's
  uint64_t session = 0;     // of a session
  bool open = false;        // also users may see it, whose tenant it is not of
};
// Takes events, in the loop.
using NoteEvent = std::function<void(NewEvent)>;

// About an island; everybody may see it.
NewEvent IslandEvent(const std::string& island, std::string reason, std::string text,
                     bool warning = false);
// About a session; its tenant may see it.
NewEvent SessionEvent(uint64_t session, const std::string& tenant, std::string reason,
                      std::string text);

struct Event {
  using Time = std::chrono::sys_time<std::chrono::milliseconds>;

  uint64_t id = 0;  // those that happened later have higher ones
  NewEvent what;
  Time first{};
  Time last{};
  uint64_t count = 0;  // it happened so often, between these times
};

// Keeps the latest events. When a room is full, the part that has most in it loses its oldest one:
// who has less than the others loses nothing, however much they do. Each owner has a part of its
// own, but when there are as many as kParts says, all other owners share one. So whoever names many
// owners leaves each of those that were there before at least kRooms / (kParts + 1) events. An
// event that repeats a kept one is the same event, which has happened once more: of the fleet if it
// has the same owner, reason and object, whatever its text, which may have the number of a process;
// of the others if it has the same text, too. Pure; loop-confined.
class EventRing {
 public:
  // Who may name the owners of sessions' events.
  enum class Tenants : uint8_t {
    kOfAnybody,  // whoever opens a session
    kOfTokens,   // admins: each tenant has a part of its own
  };
  explicit EventRing(Tenants tenants = Tenants::kOfAnybody) : tenants_(tenants) {}

  using Time = Event::Time;

  static constexpr std::array<size_t, 3> kRooms = {1024, 1024, 256};  // by EventKind
  static constexpr std::array<size_t, 3> kParts = {255, 31, 31};      // of one owner each
  static constexpr size_t kMostText = 4096;  // bytes; longer ones are cut, as BoundedText does
  static constexpr size_t kMostName = 256;   // the same, of objects, owners and tenants

  void Add(NewEvent event, Time now);

  struct Asked {
    std::optional<std::string> tenant = {};  // only its events, and open ones
    uint64_t session = 0;                    // only what is of this one; 0: of all
    uint64_t after = 0;                      // ids above this one
  };
  struct Page {
    std::vector<Event> events;  // in the order of their ids
    bool more = false;          // there are some behind these
  };
  // Looks at all that it keeps at most, and copies kMostRows events at most.
  static constexpr size_t kMostRows = 250;
  Page List(const Asked& asked) const;

  size_t size() const { return events_.size(); }

 private:
  struct ByWhat {
    bool operator()(const Event* a, const Event* b) const;
  };
  // Whose part it is; nullopt: that of all owners without one.
  using Owner = std::optional<std::string>;
  struct Kept : Event {
    Owner part;  // where it is
  };
  // A part, by what it has. The last of all loses an event first: it has most, and of those with as
  // many the oldest one.
  using Part = std::tuple<size_t, uint64_t, Owner>;
  struct Room {
    std::map<Owner, std::set<uint64_t>> ids;  // none is empty
    std::set<Part> parts;                     // of each of `ids`
    size_t size = 0;                          // the sum of these
  };

  static Part PartOf(const Owner& owner, const std::set<uint64_t>& ids);
  Room& RoomOf(const Event& event) { return rooms_.at(static_cast<size_t>(event.what.kind)); }
  // The part of an owner's next event.
  Owner OwnPart(const Room& room, const NewEvent& what) const;
  void Insert(Kept event);
  void Remove(const Kept& event);

  const Tenants tenants_;
  uint64_t next_ = 1;
  std::map<uint64_t, Kept> events_;
  std::set<const Kept*, ByWhat> known_;  // each of events_
  std::array<Room, 3> rooms_;            // by EventKind: each of events_
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_EVENTS_EVENT_RING_H_
