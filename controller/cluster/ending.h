// SPDX-License-Identifier: Apache-2.0
// A node that has concluded, while it settles its outputs and lets go of its inputs. Private to
// this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_ENDING_H_
#define FAIRWAY_CONTROLLER_CLUSTER_ENDING_H_

#include <cstdint>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/node.h"

namespace fairway {

// A launch may have tens of thousands of arguments and results. Then it ends a few of them at a
// time, in the worklist of its session (Nodes::GoOnEnding). Others end at once.
//
// Invariants, while it is in a worklist: the node is in the tables, is done, and nothing else moves
// it. What has been done is taken out of its lists, from their ends: it is the producer of its
// outputs that are left, and reads the inputs that are left. Its reservations are what its outputs
// that are left will keep.
struct Ending {
  enum class Phase : uint8_t { kTaken, kOutputs, kReads, kDone };

  Node* node = nullptr;
  absl::Status status;  // the node's result
  NodeId cause;
  bool in_turns = false;   // it ends a few groups at a time
  bool keeps = false;      // its outputs keep their memory
  bool cancelled = false;  // its executors have been told that it will not be launched
  Phase phase = Phase::kTaken;
  // Of the outputs that are settled, if the node has a watch: the first cause. Of a sequence, some
  // outputs may have failed.
  absl::Status failure;
  NodeId failed_by;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ENDING_H_
