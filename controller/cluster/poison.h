// SPDX-License-Identifier: Apache-2.0
// The first cause among failures (docs/architecture.md, poison). Private to this folder.
//
// Pure functions: they look at groups and nodes, and change nothing but the record that they are
// given. What follows from a failure is decided where nodes end (nodes.h).
#ifndef FAIRWAY_CONTROLLER_CLUSTER_POISON_H_
#define FAIRWAY_CONTROLLER_CLUSTER_POISON_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "controller/cluster/group.h"
#include "controller/cluster/node.h"
#include "controller/cluster/worklist.h"
#include "graph/plan.h"

namespace fairway {

// Returns `worst`, or `other` if that has failed and its cause is the lower node.
const Group* Worse(const Group* worst, const Group& other);
// The failed group whose cause is the lowest node. nullptr: none has failed.
const Group* WorstOf(const GroupTable& groups, const ShardList& shards);
const Group* WorstInput(const GroupTable& groups, const Node& node);

// For a sequence: see FailedBy. `lost_too`: also counts inputs that were there and were lost.
std::vector<int32_t> PoisonedBy(const GroupTable& groups, const Node& node, bool lost_too);
// For a sequence: the executor reports that these outputs failed. Each keeps the failure of an
// argument, if there is one, else that of the first executor, whatever came first.
void OutputsFailed(Node& node, size_t participant, std::map<int32_t, FailedOutput> failures);
// The error of an output that failed by itself because a peer went away. nullptr: none has.
const absl::Status* OutputWithoutPeer(const Node& node);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_POISON_H_
