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
// The oldest waiting node of a session sees all older ones end: they hold their memory, and depend
// only on nodes before them.
#ifndef FAIRWAY_SCHEDULER_ADMISSION_H_
#define FAIRWAY_SCHEDULER_ADMISSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>

#include "base/ids.h"
#include "scheduler/session_policy.h"

namespace fairway {

// The memory that a node needs on one device.
struct MemoryNeed {
  DeviceId device;
  int64_t bytes = 0;
};

// Owned by the controller's core. Not thread-safe. Memory is in bytes per device; limit 0 means
// kNoLimit. A device belongs to one island.
class Admission {
 public:
  void SetDevice(DeviceId device, int64_t limit);

  // Puts `node` into its lines, at its place in the submission order of its session. At most one
  // need per device.
  void Enqueue(NodeId node, SessionId session, IslandId island, std::vector<MemoryNeed> needs);
  // Takes the node out of its lines. Returns whether it was waiting.
  bool Remove(NodeId node, IslandId island);

  // Forgets the island's devices, which are gone. Nothing waits for them, and none of their memory
  // is in use.
  void Forget(IslandId island);
  void ForgetDevice(DeviceId device);

  // Gives `bytes` back.
  void Release(DeviceId device, int64_t bytes);
  // Adds to (or takes from) the bytes in use that will be given back when the work that has them
  // ends, whatever clients do.
  void WillRelease(DeviceId device, int64_t bytes);

  static constexpr int64_t kNoLimit = int64_t{1} << 60;

  // Returns the nodes of the island that fit now, in order of age; their needs are reserved. Looks
  // at new nodes, and at the first node of each session on devices where memory was given back;
  // sessions take turns. Looks at no more than `most` nodes; see HasCandidates. A node that fits
  // and that `may` refuses is held: it waits in its lines as if it did not fit.
  using May = absl::FunctionRef<bool(NodeId node)>;
  std::vector<NodeId> Admit(
      IslandId island, size_t most = SIZE_MAX, May may = [](NodeId) { return true; });
  // Has the next Admit look at the nodes that are held. Returns them, in order of age.
  std::vector<NodeId> TryHeldAgain(IslandId island);
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
  // Returns those that became first since the last call.
  std::vector<Shortage> NewFirsts(IslandId island);

  // Returns the waiting nodes, in order of age; at most the first `most`.
  std::vector<NodeId> Queue(IslandId island, size_t most = SIZE_MAX) const;
  size_t waiting(IslandId island) const;
  int64_t used(DeviceId device) const;
  int64_t limit(DeviceId device) const;
  // Returns the limit less the bytes in use.
  int64_t room(DeviceId device) const;
  int64_t will_release(DeviceId device) const;

 private:
  struct Device {
    int64_t used = 0;
    int64_t limit = 0;
    int64_t will_release = 0;
    IslandId island;  // the island of the nodes that wait for it
  };
  struct Waiting {
    SessionId session;
    std::vector<MemoryNeed> needs;
    bool in_lines = false;  // else it is a candidate
  };
  struct Island {
    std::map<NodeId, Waiting> waiting;
    // Nodes that may fit: new ones, and first nodes of lines where something changed. No set is
    // empty.
    std::map<SessionId, std::set<NodeId>> candidates;
    RoundRobin policy;  // which of `candidates` Admit looks at next
    // No line is empty. The first node of a session is first in all its lines.
    std::map<std::pair<DeviceId, SessionId>, std::set<NodeId>> lines;
    std::map<SessionId, std::set<NodeId>> by_session;  // the nodes in lines
    std::set<DeviceId> touched;                        // devices on which memory was given back
    std::set<NodeId> held;                             // of those in lines
    // the first nodes that NewFirsts has returned
    std::map<SessionId, NodeId> told;
  };
  // The room that others must leave on a device for an older node.
  struct Kept {
    NodeId node;
    int64_t bytes = 0;
  };
  using KeptOn = std::map<DeviceId, Kept>;

  std::optional<Shortage> ShortageOf(NodeId node, const Waiting& waiting) const;
  bool Fits(NodeId node, const Waiting& waiting, const KeptOn& kept) const;
  // Returns whether no node of its own session is before it in any of its lines.
  static bool Leads(const Island& island, NodeId node, const Waiting& waiting);
  static void JoinLines(Island& island, NodeId node, Waiting& waiting);
  // Makes the nodes that now lead its former lines candidates.
  static void LeaveLines(Island& island, NodeId node, const Waiting& waiting);
  static void DropCandidate(Island& island, SessionId session, NodeId node);
  // Takes the next candidate out: the oldest of the session that the policy picks.
  static NodeId NextCandidate(Island& island);
  // Keeps room for the session's first node if work under way will make room for it.
  void Protect(const Island& island, SessionId session, KeptOn& kept) const;

  // By number; numbers are dense. A device that SetDevice has not set has no limit.
  Device& At(DeviceId device) {
    if (device.value >= devices_.size()) devices_.resize(device.value + 1);
    return devices_[device.value];
  }
  Device Of(DeviceId device) const;
  // The room on the device has changed.
  void Touch(DeviceId device, IslandId waiting);
  std::vector<Device> devices_;
  std::map<IslandId, Island> islands_;
};

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_ADMISSION_H_
