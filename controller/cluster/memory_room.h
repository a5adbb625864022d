// SPDX-License-Identifier: Apache-2.0
// Who waits for device memory, and what becomes of it (rule B2). Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_MEMORY_ROOM_H_
#define FAIRWAY_CONTROLLER_CLUSTER_MEMORY_ROOM_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "controller/cluster/cluster.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"
#include "scheduler/admission.h"

namespace fairway {

// Judges what waits for memory: makes room for the oldest one by taking younger ones back that have
// not begun, and fails what has waited for its grace when nothing under way would free enough. Who
// holds what, and who is next, is in Admission; this adds what the graph knows.
//
// Invariants: an island with victims admits and launches nothing (Pump), and its victims are
// prepared nodes or gone.
class Cluster::MemoryRoom {
 public:
  explicit MemoryRoom(State& state) : s(state) {}

  // Chooses younger nodes that have not begun, to be taken back so that `node` fits. Returns
  // whether it will.
  bool MakeRoom(const Node& node);
  // Takes some of the island's victims back, until `units` reaches `until`. Returns whether all
  // are.
  bool TakeVictims(Island& island, uint64_t until);
  // Fails what has waited for memory for a grace that nothing under way will free.
  void GiveUpStuck(int64_t now_ms);
  // RESOURCE_EXHAUSTED: what the node needs, and `why` it does not get it.
  absl::Status Exhausted(const Admission::Shortage& shortage, std::string_view why) const;

 private:
  // Whether the node's end may free memory there; with `device`, on that one.
  bool HoldsMemoryOf(const Node& node, IslandId island, DeviceId device = DeviceId()) const;
  bool AnotherWillFree(IslandId island, const std::set<NodeId>& live) const;
  // Whether something that was there before it began to wait, and ends, may free memory for it.
  bool WillBeFreed(const Admission::Shortage& first, const Island::Stuck& stuck,
                   const Island& island, const std::set<NodeId>& live) const;
  // The same of what runs already, of which there is little: no need to look further.
  bool RunsBefore(const Admission::Shortage& first, NodeId before, const Island& island) const;
  // The nodes that will end without anything being freed by clients: all others wait for memory,
  // directly or not.
  std::set<NodeId> LiveNodes();
  // Fails `stuck` and what has waited as long for the same device, up to Node::submitted `through`.
  void FailStuck(Island& island, const Admission::Shortage& stuck, uint64_t through);
  // Bytes and shard buffers of each session on a device.
  using Held = std::map<SessionId, std::pair<int64_t, int>>;
  Held HeldOn(DeviceId device) const;
  static std::string WhoHolds(const Held& held, SessionId asking);

  State& s;  // of which this is a part
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_MEMORY_ROOM_H_
