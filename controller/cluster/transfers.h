// SPDX-License-Identifier: Apache-2.0
// Commands for transfers, uploads and fetches. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_TRANSFERS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_TRANSFERS_H_

#include <cstddef>
#include <cstdint>

#include "controller/cluster/cluster.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"

namespace fairway {

// Turns receives and fetches into commands: who serves which shard to whom, and which bytes go with
// the commands. The receiver pulls (docs/architecture.md, "Links").
//
// Invariant: a shard that PrepareSends has offered is served until EndTransfer.
class Cluster::Transfers {
 public:
  explicit Transfers(State& state) : s(state) {}

  // Whether the upload's bytes go with its commands.
  bool IsInline(const Node& upload) const;
  // Tells the participant which shards to make, and where their bytes are.
  void PrepareReceiveOn(Node& node, size_t participant);
  // Tells the executors of the node's sources to serve them.
  void PrepareSends(Node& node);
  // Tells executors and the data port that nobody pulls for the node any more.
  void EndTransfer(const Node& node);
  // Pulls the bytes to the controller, once the group is ready.
  void StartFetch(Node& node);

 private:
  ShardSource SourceOf(const Node& node, size_t i, const Executor& receiver);
  // Adds the sources and pieces of a remade shard, the last one of command.out.
  void AddPieces(const Node& node, int32_t shard, PrepareReceive& command);

  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_TRANSFERS_H_
