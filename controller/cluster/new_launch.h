// SPDX-License-Identifier: Apache-2.0
// A launch that is being made. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_NEW_LAUNCH_H_
#define FAIRWAY_CONTROLLER_CLUSTER_NEW_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <absl/container/btree_map.h>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/node.h"

namespace fairway {

// Where a launch reads the shards of a group.
struct GroupUse {
  size_t argument = 0;  // the first argument with shards of the group
  size_t shards = 0;
  bool alone = true;  // no other argument has shards of it

  void Add(size_t in, size_t more) {
    alone = alone && argument == in;
    shards += more;
  }
};

// A launch may have tens of thousands of arguments and results, so it is made a few of them at a
// time (Launches::GoOn). Its session takes no other operation meanwhile.
struct NewLaunch {
  enum class Phase : uint8_t { kPlace, kOutputs, kInputs, kDonate, kCredit, kDone };

  // What is asked for.
  const ExecutableSpec* spec = nullptr;
  std::vector<const Array*> arguments;  // they fit, and keep their addresses
  std::vector<int32_t> donatable;       // arguments that it takes over
  OutputTypes types;                    // of the results
  absl::Status poison;                  // not OK: it has failed
  uint64_t watch = 0;                   // of the call; 0: none
  // Called with each result, whose view is held.
  std::function<void(size_t output, Array array)> put;

  // How far it is.
  Phase phase = Phase::kPlace;
  size_t next = 0;  // the phase's next item
  // The arguments' shards on their devices, until they are the node's.
  std::vector<ShardList> inputs;
  NodeId id;  // of the node, from kOutputs on
  // From kOutputs on, until it is done. Invariant: Node::making, so nothing else ends it.
  Node* node = nullptr;
  size_t output_bytes = 0;  // of the records of its results
  // By group that it reads. A tree, because a large hash table grows in one go.
  absl::btree_map<GroupId, GroupUse> uses;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_NEW_LAUNCH_H_
