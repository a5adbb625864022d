// SPDX-License-Identifier: Apache-2.0
// Accounts for device memory in the controller (rule B2), and keeps the lines in which nodes wait
// for it.
//
// A node reserves all its memory on its island at once. It waits in one line for each device that
// it needs: after the older nodes of its own session, and never after nodes of another session that
// cannot run. The first waiting node of a session is protected if work under way will make room for
// it: other nodes take only memory that leaves that room. So many small nodes do not starve a large
// one, and a node whose room is held by arrays that clients keep holds up nobody
// (docs/design/0056).
//
// The nodes of a session that need the same devices are one line, so what a node costs does not
// depend on how many others wait, and only lines whose first node may fit are looked at. A session
// may wait with a line for each list of its devices, of which there is no end: so no line knows the
// others, and all that goes through lines or sets is done some at a time.
//
// The oldest waiting node of a session sees all older ones end: they hold their memory, and depend
// only on nodes before them.
#ifndef FAIRWAY_SCHEDULER_ADMISSION_H_
#define FAIRWAY_SCHEDULER_ADMISSION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>

#include "base/block_vector.h"
#include "base/ids.h"
#include "base/shared_vector.h"
#include "scheduler/session_policy.h"

namespace fairway {

// The memory that is needed on each of some devices in a row, from `device` on.
struct MemoryNeed {
  DeviceId device;
  int64_t bytes = 0;
  uint32_t count = 1;
  DeviceId at(uint32_t i) const { return DeviceId(device.value + i); }
  friend bool operator==(const MemoryNeed&, const MemoryNeed&) = default;
};
// The same needs in the order of their devices, as few rows as that takes. A device may be in
// several of `needs`, which have one device each.
std::vector<MemoryNeed> InRows(std::vector<MemoryNeed> needs);

// Owned by the controller's core. Not thread-safe. Memory is in bytes per device; limit 0 means
// kNoLimit. A device belongs to one island.
class Admission {
 public:
  void SetDevice(DeviceId device, int64_t limit);

  // Puts `node` into its lines, at its place in the submission order of its session. At most one
  // need per device.
  void Enqueue(NodeId node, SessionId session, IslandId island, SharedVector<MemoryNeed> needs);
  // Takes the node out of its lines. Returns whether it was waiting.
  bool Remove(NodeId node, IslandId island);

  // Forgets the island's devices, which are gone. Nothing waits for them, and none of their memory
  // is in use.
  void Forget(IslandId island);
  void ForgetDevice(DeviceId device);

  // Gives `bytes` back on each of `count` devices from `device` on.
  void Release(DeviceId device, int64_t bytes, uint32_t count = 1);
  // Adds to (or takes from) the bytes in use there that will be given back when the work that has
  // them ends, whatever clients do.
  void WillRelease(DeviceId device, int64_t bytes, uint32_t count = 1);

  // Devices, sessions and lines that it has looked at since the last call.
  size_t TakeSteps() { return std::exchange(steps_, 0); }

  static constexpr int64_t kNoLimit = int64_t{1} << 60;

  // Returns the nodes of the island that fit now, in order of age; their needs are reserved. Looks
  // at new nodes, and at the first node of each session on devices where memory was given back;
  // sessions take turns. Looks at no more than `most` nodes; see HasCandidates. A node that fits
  // and that `may` refuses is held: it waits in its lines as if it did not fit.
  using May = absl::FunctionRef<bool(NodeId node)>;
  std::vector<NodeId> Admit(
      IslandId island, size_t most = SIZE_MAX, May may = [](NodeId) { return true; });
  // Has the next Admit look at the nodes that are held, from `from` on. Returns them, in order of
  // age; at most the first `most`. Of a session no two are held that need the same device, unless
  // one came late.
  std::vector<NodeId> TryHeldAgain(IslandId island, NodeId from = NodeId(), size_t most = SIZE_MAX);
  // Gives the session the next turn there, because room was made for its first node.
  void ServeNext(IslandId island, SessionId session);

  // Returns whether Admit has more nodes to look at.
  bool HasCandidates(IslandId island) const;

  struct Shortage {
    NodeId node;
    SessionId session;
    DeviceId device;  // the first on which it does not fit
    int64_t need = 0;
    int64_t used = 0;
    int64_t limit = 0;
    int64_t lacks = 0;      // summed over all its devices
    bool hopeless = false;  // it needs more than a device has
  };
  // Returns the first waiting node of the session, if it does not fit.
  std::optional<Shortage> First(IslandId island, SessionId session) const;
  // Returns those of all sessions, in order of age.
  std::vector<Shortage> Firsts(IslandId island) const;
  // Looks at `most` first nodes from `from` on, and sets `from` to the next one; 0: it has looked
  // at all. Adds those that do not fit to `firsts`. Returns at how many it has looked.
  size_t Firsts(IslandId island, size_t most, NodeId& from, std::vector<Shortage>& firsts) const;
  // Returns the oldest of these.
  std::optional<Shortage> Oldest(IslandId island) const;
  // Returns those that became first since the last call, of `most` sessions; see HasNewFirsts.
  std::vector<Shortage> NewFirsts(IslandId island, size_t most = SIZE_MAX);
  // Returns whether NewFirsts has more sessions to look at.
  bool HasNewFirsts(IslandId island) const;

  // Returns the waiting nodes, in order of age; at most the first `most`.
  std::vector<NodeId> Queue(IslandId island, size_t most = SIZE_MAX) const;
  size_t waiting(IslandId island) const;
  int64_t used(DeviceId device) const;
  int64_t limit(DeviceId device) const;
  // Returns the limit less the bytes in use.
  int64_t room(DeviceId device) const;
  int64_t will_release(DeviceId device) const;

 private:
  // The devices of nodes, ascending.
  using SetId = uint32_t;
  // The room that others must leave on a device for an older node.
  struct Kept {
    NodeId node;
    int64_t bytes = 0;
  };
  // What is counted of each device. Most nodes need the same on whole rows of devices.
  struct Room {
    int64_t used = 0;
    int64_t limit = 0;
    int64_t will_release = 0;
    IslandId island;  // of the nodes that wait for it
    int64_t free() const { return (limit == 0 ? kNoLimit : limit) - used; }
    friend bool operator==(const Room&, const Room&) = default;
  };
  struct Device {
    bool touched = false;  // Island::touched has it
    SetId marked = 0;      // of `sets`: those below it were told since it was touched
    bool again = false;    // it was touched meanwhile: they have to be told again
    std::set<SetId> sets;  // those with this device
    Kept kept;             // while Admit runs
  };
  struct Set {
    std::map<std::vector<DeviceId>, SetId>::iterator key;
    size_t users = 0;  // nodes that wait
    // The first nodes of its lines, by the least that the node needs on each of its devices.
    std::set<std::pair<int64_t, SessionId>> firsts;
    std::set<NodeId> heads;                // the same nodes, by age
    std::pair<int64_t, SessionId> served;  // of `firsts`: those behind it are looked at next
    size_t left = 0;                       // so many are to be looked at; 0: none may fit
    NodeId
        kept;  // while Admit runs: on all its devices room is kept for this node, or an older one
  };
  struct Waiting {
    SessionId session;
    SharedVector<MemoryNeed> needs;
    SetId set = 0;
    int64_t least = 0;      // of its needs
    bool in_lines = false;  // else it is a candidate
  };
  // The nodes of a session that are in lines. No line is empty. The first of `all` is first in all
  // its lines.
  struct Lines {
    std::map<SetId, std::set<NodeId>> lines;
    std::set<NodeId> all;
    // By device: the first nodes of the lines with it, from the second line on. (Most sessions wait
    // with one, and it may have many devices.)
    std::map<DeviceId, std::set<NodeId>> firsts;
    bool indexed = false;  // whether `firsts` is kept
  };
  struct Island {
    std::map<NodeId, Waiting> waiting;
    // Nodes that may fit: new ones, and first nodes of lines where something changed. No set is
    // empty.
    std::map<SessionId, std::set<NodeId>> candidates;
    RoundRobin policy;  // which of `candidates` Admit looks at next
    std::map<SessionId, Lines> by_session;
    std::set<std::pair<NodeId, SessionId>> firsts;  // the first of each in by_session
    std::deque<DeviceId> touched;                   // devices on which memory was given back
    std::set<SetId> looking;                        // has all sets with Set::left > 0
    SetId looked = 0;                               // of `looking`: those behind it are next
    std::set<NodeId> held;                          // of those in lines
    // The first nodes that NewFirsts has returned, and the sessions whose first may be new.
    std::map<SessionId, NodeId> told;
    std::set<SessionId> untold;
  };

  std::optional<Shortage> ShortageOf(NodeId node, const Waiting& waiting) const;
  bool Fits(NodeId node, const Waiting& waiting) const;
  // Returns whether no node of its own session is before it in any of its lines.
  bool Leads(const Island& island, NodeId node, const Waiting& waiting) const;
  void JoinLines(Island& island, NodeId node, Waiting& waiting);
  // Makes the nodes that now lead its former lines candidates.
  void LeaveLines(Island& island, NodeId node, const Waiting& waiting);
  static void DropCandidate(Island& island, SessionId session, NodeId node);
  // Takes the next candidate out: the oldest of the session that the policy picks.
  static NodeId NextCandidate(Island& island);
  // The node does not fit: if it is the first of its session, NewFirsts is to say so.
  static void NoteShort(Island& island, NodeId node, SessionId session);
  // Puts the first nodes of the line and of the session in their order.
  void SetFirst(Island& island, const Waiting& waiting, NodeId was, NodeId is);
  // Puts the first node of a line into Lines::firsts, and takes out the one before it.
  void MoveHead(Lines& of, SetId set, NodeId was, NodeId is);
  void Index(Lines& of);
  // Makes the first nodes of lines candidates that memory was given back for, and that may fit: a
  // few of each set at a time, because they may take the room of all others, and of so many sets.
  static constexpr int kTried = 8;
  static constexpr size_t kMarkedAtOnce = 1024, kLookedAtOnce = 64;
  void TakeTouched(Island& island);
  void MarkTouched(Island& island);
  void LookAt(Island& island, SetId id);
  // Keeps room for the session's first node if work under way will make room for it.
  void Protect(Island& island, SessionId session);
  // The same for the first nodes of the sessions that have waited longest: so many are protected.
  static constexpr int kProtected = 64;
  void ProtectOldest(Island& island);
  // Ends what Protect did for the node.
  void Unprotect(NodeId node, const Waiting& waiting);
  void UnprotectAll();

  SetId Use(const SharedVector<MemoryNeed>& needs);
  void EndUse(SetId set);
  void ForgetSet(SetId id);  // it is in `unused_` no more

  // By number; numbers are dense. A device that SetDevice has not set has no limit.
  Device& At(DeviceId device) {
    if (device.value >= devices_.size()) devices_.resize(device.value + 1);
    return devices_[device.value];
  }
  const Room& RoomOf(DeviceId device) const;
  // Changes what is counted of `count` devices.
  template <typename F>
  void Change(DeviceId device, uint32_t count, F change) {
    rooms_.Grow(device.value + count);
    steps_ += rooms_.Change(device.value, count, change);
  }
  // Whether the node would fit if room were kept for nobody.
  bool HasRoom(const Waiting& waiting) const;
  void Touch(DeviceId device, uint32_t count);
  std::vector<Device> devices_;
  BlockVector<Room> rooms_;
  std::map<IslandId, Island> islands_;
  std::map<std::vector<DeviceId>, SetId> numbers_of_;
  std::deque<Set> sets_;  // grows piece by piece
  std::vector<SetId> free_sets_;
  std::vector<SetId> unused_;  // sets without users, the oldest first; at most kKept
  static constexpr size_t kKept = 64;
  SharedVector<MemoryNeed> last_needs_;  // of the node that came last, and their set
  SetId last_set_ = 0;
  std::vector<SetId> protected_;  // with Set::kept
  // A look into a map of lines or sets costs as much as so many looks at a device.
  static constexpr size_t kMapSteps = 16;
  mutable size_t steps_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_ADMISSION_H_
