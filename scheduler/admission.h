// SPDX-License-Identifier: Apache-2.0
// Device memory as the controller accounts for it (rule B2), and the lines in which nodes wait for
// it.
//
// A node reserves all it needs on its island at once. It waits in one line for each device that it
// needs, behind the older nodes of its own session, and never behind those of another session that
// cannot run. A session's first waiting node is protected while what is under way will make room
// for it: others take only what leaves that room. So a large node is not starved by many small
// ones, and one whose room is held by arrays that clients keep holds up nobody (docs/design/0056).
//
// Because all older nodes of its session hold their memory and depend only on nodes before them,
// the oldest node that waits sees them end.
#ifndef FAIRWAY_SCHEDULER_ADMISSION_H_
#define FAIRWAY_SCHEDULER_ADMISSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace fairway {

struct MemoryNeed {
  DeviceId device;
  int64_t bytes = 0;
};

// Not thread-safe. Bytes per device; limit 0: as much as kNoLimit. A device belongs to one island.
class Admission {
 public:
  void SetDevice(DeviceId device, int64_t limit);

  // Puts `node` into its lines, each at its place in its session's submission order. At most one
  // need per device.
  void Enqueue(NodeId node, SessionId session, IslandId island, std::vector<MemoryNeed> needs);
  // Takes it out of its lines. Returns whether it was waiting.
  bool Remove(NodeId node, IslandId island);

  // The island's devices are gone, with nothing waiting for them and nothing in use.
  void Forget(IslandId island);
  void ForgetDevice(DeviceId device);

  // Gives `bytes` back.
  void Release(DeviceId device, int64_t bytes);
  // Of what is in use, so many bytes more (or less) will be given back when work that has its
  // memory has ended, whatever clients do.
  void WillRelease(DeviceId device, int64_t bytes);

  static constexpr int64_t kNoLimit = int64_t{1} << 60;

  // The nodes of the island that fit now, in order of age; their needs are reserved. Looks at those
  // that are new, and at the first ones of each session on devices on which something was given
  // back; sessions take turns. Looks at no more than `most`; see HasCandidates.
  std::vector<NodeId> Admit(IslandId island, size_t most = SIZE_MAX);
  // The session has the next turn: room was made for what it waits for there.
  void ServeNext(IslandId island, SessionId session);

  // Whether Admit has more to look at.
  bool HasCandidates(IslandId island) const;

  struct Shortage {
    NodeId node;
    SessionId session;
    DeviceId device;  // the first on which it does not fit
    int64_t need = 0;
    int64_t used = 0;
    int64_t limit = 0;
    int64_t lacks = 0;      // on all its devices
    bool hopeless = false;  // more than a device has altogether
  };
  // The first waiting node of the session, if it does not fit.
  std::optional<Shortage> First(IslandId island, SessionId session) const;
  // Those of all sessions, in order of age.
  std::vector<Shortage> Firsts(IslandId island) const;
  // Those that have become so since the last call.
  std::vector<Shortage> NewFirsts(IslandId island);

  // Those that wait, in order of age; at most the first `most`.
  std::vector<NodeId> Queue(IslandId island, size_t most = SIZE_MAX) const;
  size_t waiting(IslandId island) const;
  int64_t used(DeviceId device) const;
  int64_t limit(DeviceId device) const;
  // What is not in use of its limit.
  int64_t room(DeviceId device) const;
  int64_t will_release(DeviceId device) const;

 private:
  struct Device {
    int64_t used = 0;
    int64_t limit = 0;
    int64_t will_release = 0;
    IslandId island;  // of the nodes that wait for it
  };
  struct Waiting {
    SessionId session;
    std::vector<MemoryNeed> needs;
    bool in_lines = false;  // else it is a candidate
  };
  struct Island {
    std::map<NodeId, Waiting> waiting;
    // Those that may fit: new ones, and ones that lead lines where something changed. Of sessions
    // that have none there is no entry.
    std::map<SessionId, std::set<NodeId>> candidates;
    SessionId served;  // the last one that had its turn
    // No line is empty. A session's first node is the first of all its lines.
    std::map<std::pair<DeviceId, SessionId>, std::set<NodeId>> lines;
    std::map<SessionId, std::set<NodeId>> by_session;  // those in lines
    std::set<DeviceId> touched;                        // something was given back there
    std::map<SessionId, NodeId> told;                  // by NewFirsts
  };
  // What others leave on a device for an older node.
  struct Kept {
    NodeId node;
    int64_t bytes = 0;
  };
  using KeptOn = std::map<DeviceId, Kept>;

  std::optional<Shortage> ShortageOf(NodeId node, const Waiting& waiting) const;
  bool Fits(NodeId node, const Waiting& waiting, const KeptOn& kept) const;
  // Whether nothing of its own session is before it in any of its lines.
  static bool Leads(const Island& island, NodeId node, const Waiting& waiting);
  static void JoinLines(Island& island, NodeId node, Waiting& waiting);
  // The nodes that lead lines that it has left become candidates.
  static void LeaveLines(Island& island, NodeId node, const Waiting& waiting);
  static void DropCandidate(Island& island, SessionId session, NodeId node);
  // The next candidate, which is none any more; sessions take turns.
  static NodeId NextCandidate(Island& island);
  // Keeps room for the session's first node if what is under way will make room for it.
  void Protect(const Island& island, SessionId session, KeptOn& kept) const;

  // By number, which is dense; a device that nobody has set has no limit.
  Device& At(DeviceId device);
  Device Of(DeviceId device) const;
  void Touch(DeviceId device);
  std::vector<Device> devices_;
  std::map<IslandId, Island> islands_;
};

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_ADMISSION_H_
