// SPDX-License-Identifier: Apache-2.0
// Tells clients that arrays and nodes have ended. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_WATCHES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_WATCHES_H_

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/session.h"

namespace fairway {

// Answers each watch once, when all that it waits for has ended: with the failure at the lowest
// position, of several at one position with that of the lowest node, or with OK. Requests, runs of
// programs and launches begin watches; whatever settles a group or concludes a node ends its part.
//
// Invariant: PendingWatch::open of a watch in Session::watches is at least 1.
class Cluster::Watches {
 public:
  explicit Watches(State& state) : s(state) {}

  // The watch waits for one extra call of Ended: make it once all that it waits for is registered.
  uint64_t Add(Session& session, uint64_t token);
  // One of the things that the watch waits for has ended. Does nothing if the watch or its session
  // is gone.
  void Ended(SessionId session, uint64_t watch, size_t position, const absl::Status& status,
             NodeId cause);
  // The watch also waits for the nodes from `first` on.
  void AddNodes(Session& session, NodeId first, uint64_t watch);

 private:
  uint64_t next_ = 1;
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_WATCHES_H_
