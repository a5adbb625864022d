// SPDX-License-Identifier: Apache-2.0
// A node that has concluded, while it settles its outputs and lets go of its inputs. Private to
// this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_ENDING_H_
#define FAIRWAY_CONTROLLER_CLUSTER_ENDING_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/node.h"

namespace fairway {

// A launch may have tens of thousands of arguments and results, so it ends a few of them at a time
// (Nodes::GoOnEnding), in the worklist of its session. Others end at once.
//
// Invariants: the node is in no table any more. It is the producer of its outputs until they are
// settled, and a reader of its inputs until they are dropped. Its memory is reserved until its
// outputs have been settled; if they keep it, each takes its part when it is settled.
struct Ending {
  enum class Phase : uint8_t { kTaken, kOutputs, kReads, kCollect, kDone };

  std::unique_ptr<Node> node;
  absl::Status status;  // the node's result
  NodeId cause;
  bool held = false;      // it had memory when it concluded
  bool spread = false;    // others may still use the bytes of its outputs if it failed
  bool keeps = false;     // its outputs keep their memory; known after kTaken
  bool in_turns = false;  // each step is charged, not all at once

  Phase phase = Phase::kTaken;
  size_t next = 0;  // the phase's next item
  // Of the outputs that are settled: the first cause. Of a sequence, some outputs may have failed.
  absl::Status failure;
  NodeId failed_by;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ENDING_H_
