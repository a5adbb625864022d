// SPDX-License-Identifier: Apache-2.0
// Decides which gang of an island is launched next: by the room on its devices, and by turns.
#ifndef FAIRWAY_SCHEDULER_GANG_TURNS_H_
#define FAIRWAY_SCHEDULER_GANG_TURNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/block_vector.h"
#include "base/ids.h"
#include "base/shared_vector.h"

namespace fairway {

// Each device has at most so many gangs in flight. A gang waits for gangs of its own devices, and
// for no others. A device that is full takes no gang until a fourth of its gangs have ended: so
// those that wait go together, in few messages. None begins later for that, as the others are
// before it.
//
// Turns: the launchable gangs of one session on the same devices are a line. A line gets a ticket
// for one launch, unless its session has a ticket for one of its devices. The lowest ticket that
// finds room goes first, but it takes no device that a lower ticket waits for. So the sessions take
// turns on each device, however many lines they have, and a gang of many devices is not passed for
// ever by gangs of few.
//
// Owned by a sequencer. Not thread-safe.
class GangTurns {
 public:
  explicit GangTurns(int most_per_device)
      : most_(most_per_device), enough_(most_ - std::max(most_ / 4, 1)) {}

  // The devices of gangs, in their order. Some sets that nobody uses are kept, since the next gang
  // is likely to have the devices of one before it.
  using SetId = uint32_t;
  SetId Use(const SharedVector<DeviceId>& devices);
  void Release(SetId set);

  // The gang may be launched, or may not any more. They do nothing if that was so before. The set
  // stays in use until it is launched or removed.
  void Add(NodeId node, SessionId session, SetId set);
  void Remove(NodeId node, SessionId session, SetId set);
  // Takes out the gang that goes next, and counts it as in flight; nullopt: none may go.
  std::optional<NodeId> Next();
  // A gang that Next returned is not in flight any more. The set is still in use.
  void Ended(SetId set);

  // Devices and lines that it has looked at since the last call.
  size_t TakeSteps() { return std::exchange(steps_, 0); }

  size_t used_sets() const { return numbers_of_.size() - unused_.size(); }

  // Unused sets that are kept.
  static constexpr size_t kKept = 64;

  // Of a session, so many lines without a ticket are looked at each time, the oldest first. The
  // others wait for these.
  static constexpr size_t kLooked = 64;

 private:
  struct Set {
    std::map<std::vector<DeviceId>, SetId>::iterator key;
    // Places in in_flight_, as rows: the first, and how many. They are given in the order of the
    // first set.
    std::vector<std::pair<uint32_t, uint32_t>> rows;
    std::set<uint64_t> tickets;  // invariant: of lines with this set
    size_t users = 0;            // 0: the set is unused, or its number free
  };
  struct Line {
    SessionId session;
    SetId set;
    friend auto operator<=>(const Line&, const Line&) = default;
  };
  struct Waiting {
    std::set<NodeId> nodes;  // not empty
    uint64_t ticket = 0;     // 0: none
  };
  struct Session {
    std::set<uint64_t> tickets;
    std::set<std::pair<NodeId, Line>> others;  // lines without a ticket, with their lowest nodes
  };

  struct Device {
    int gangs = 0;      // in flight
    bool full = false;  // it takes none until enough have ended
    friend bool operator==(const Device&, const Device&) = default;
  };
  bool Full(const Device& device) const;
  // Gives tickets to lines of the session that may have them.
  void GiveTickets(Session& session);
  void EndTicket(const Line& line, Waiting& waiting);
  void AddTicket(uint64_t ticket, const Line& line);
  void RemoveTicket(uint64_t ticket, SetId set);

  int most_;    // per device
  int enough_;  // a full device takes gangs again when it has so many
  std::map<DeviceId, uint32_t> places_;
  BlockVector<Device> in_flight_;  // by the place of the device
  std::map<std::vector<DeviceId>, SetId> numbers_of_;
  std::vector<Set> sets_;
  std::vector<SetId> free_sets_;
  std::vector<SetId> unused_;  // sets that nobody uses, the oldest first; at most kKept
  // That Use returned, while its number is not free, and for which list. Most gangs have the
  // devices of the one before them, which may be many.
  std::optional<SetId> last_;
  SharedVector<DeviceId> last_devices_;

  // Puts `only_`, if there is one, into the lines.
  void LineUp();
  void Enter(NodeId node, const Line& line);
  bool HasRoom(SetId set);
  void UnmarkAll();
  void Mark(SetId set);
  bool IsMarked(SetId set);  // any of its devices
  // Counts a gang more, or less, on the devices of the set.
  void Count(SetId set, int more);

  // A gang that came when no other was waiting. Most go at once, and need no line and no ticket.
  struct Only {
    NodeId node;
    Line line;
  };
  std::optional<Only> only_;  // if it is there, there are no lines
  std::map<Line, Waiting> waiting_;
  std::map<SessionId, Session> sessions_;  // those that have a line
  std::map<uint64_t, Line> tickets_;       // in the order in which they were given
  // Of `tickets_`, the lowest of each set: those behind it wait for the same devices.
  std::map<uint64_t, SetId> heads_;
  uint64_t last_ticket_ = 0;
  std::set<SessionId> changed_;  // sessions whose lines may now get tickets
  bool stuck_ = false;           // no ticket finds room until something changes
  BlockVector<bool> marked_;     // by the place of the device, within a function
  size_t steps_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_GANG_TURNS_H_
