// SPDX-License-Identifier: Apache-2.0
// Which nodes will end without any free by a client. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LIVE_NODES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LIVE_NODES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <variant>

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include "base/ids.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/group.h"
#include "controller/cluster/node.h"

namespace fairway {

// Finds the nodes that will end without any free by a client, and whose end may free memory. All
// others wait for memory or for a client, directly or not. It goes through the nodes once, in the
// order of their ids, some at a time. A node that is not live now is kept with what it waits for,
// the end of a node or memory on an island, and looked at again when that comes.
//
// Nodes go on meanwhile. One that has moved is looked at again, so a node that is live when the
// search is over has been found. One that was live before and is not any more may have been found,
// too. A group that its client gives up meanwhile is counted on, whenever its reader was looked at.
class Cluster::LiveNodes {
 public:
  explicit LiveNodes(State& state) : s(state) {}

  // Looks at nodes until `units` reaches `until`. Returns whether all live nodes below `before` are
  // known. Of those that were made later it takes no account.
  bool GoOn(NodeId before, uint64_t until);
  // The node is in another state.
  void Moved(NodeId node) {
    if (node < next_) looks_.push_back({node, 0});
  }
  // No client holds the group any more, so its last reader frees it.
  void GivenUp(const Group& group);
  // It has begun to look at nodes up to this one.
  NodeId next() const { return next_; }
  // Whether the end of a live node below `before` may free memory on the device, or, if it is of
  // this session, on the island.
  bool WillFree(NodeId before, DeviceId device, IslandId island, SessionId session) const;

 private:
  using Blocker = std::variant<NodeId, IslandId>;
  struct Look {
    NodeId node;
    size_t read = 0;  // the first of its reads that is left
  };
  static constexpr size_t kReadsAtOnce = 256;

  void LookAt(Look look);
  // Whether the node is live. If not, notes what it waits for.
  bool IsLive(const Node& node, size_t read);
  // Whether a node that waits for memory there may go on.
  bool Moves(IslandId island) const;
  // Counts what the end of a live node may free: its own memory, and, later, that of what it reads.
  void CountMemory(const Node& node);
  void CountReads();
  template <typename Places>
  void Count(NodeId node, SessionId session, IslandId island, const Places& places);
  // Has the nodes that wait for it looked at again.
  void Wake(Blocker blocker);
  void LookAtWoken();
  void Charge(size_t steps);

  NodeId next_;  // nodes below were looked at
  absl::btree_set<NodeId> live_;
  absl::btree_map<std::pair<Blocker, NodeId>, size_t> blocked_;  // with the first read that is left
  // What is left to do before the next node.
  std::deque<Look> looks_, counts_;
  std::deque<Blocker> woken_;
  // The first live nodes that hold memory there.
  absl::btree_map<DeviceId, NodeId> on_device_;
  absl::btree_map<std::pair<IslandId, SessionId>, NodeId> on_island_;
  // Groups that live nodes read and clients hold: the first of these nodes.
  absl::btree_map<GroupId, NodeId> held_;
  size_t steps_ = 0;  // not charged yet
  State& s;           // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LIVE_NODES_H_
