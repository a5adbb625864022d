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

// Lowers receives and fetches to commands: who serves which shard to whom, and which bytes go with
// the commands. The receiver pulls (docs/architecture.md, "Links").
//
// Invariant: what PrepareSends has offered is served until EndTransfer.
class Cluster::Transfers {
 public:
  explicit Transfers(State& state) : s(state) {}

  // Whether the upload's bytes go with its commands.
  bool IsInline(const Node& upload) const;
  // Has the participant make its shards, and says where it finds the bytes.
  void PrepareReceiveOn(Node& node, size_t participant);
  // Has the executors of its sources serve them.
  void PrepareSends(Node& node);
  // Nobody needs to serve it any more.
  void EndTransfer(const Node& node);
  // Has the bytes come to the controller, when the group is there.
  void StartFetch(Node& node);

 private:
  ShardSource SourceOf(const Node& node, size_t i, const Executor& receiver);
  // The sources and pieces of a remade shard, the last one of command.out.
  void AddPieces(const Node& node, int32_t shard, PrepareReceive& command);

  State& s;  // of which this is a part
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_TRANSFERS_H_
