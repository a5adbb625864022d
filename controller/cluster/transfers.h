// SPDX-License-Identifier: Apache-2.0
// Commands for transfers, uploads and fetches. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_TRANSFERS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "base/memory_budget.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"

namespace fairway {

// Turns receives and fetches into commands: who serves which shard to whom, and which bytes go with
// the commands. The receiver pulls (docs/architecture.md, "Links"), with the ticket that its
// command has for each source (docs/design/0069-tickets.md).
//
// Fetches that wait for one result begin a few at a time: while their session has little under way,
// and its client takes what has come.
//
// Invariants: a shard that PrepareSends has offered is served until EndTransfer. Each fetch in
// waiting_ is paced, no other is; it is queued, and its group is ready.
class Cluster::Transfers {
 public:
  explicit Transfers(State& state);

  // Whether the upload's bytes go with its commands.
  bool IsInline(const Node& upload) const;
  // Tells the participant to make these shards, and where their bytes are.
  void PrepareReceiveOn(Node& node, size_t participant, const std::vector<int32_t>& shards);
  // Tells the executors of the node's sources to serve them.
  void PrepareSends(Node& node);
  // Tells executors and the data port that nobody pulls for the node any more.
  void EndTransfer(const Node& node);
  // Pulls the bytes to the controller, once the group is ready; or lets the fetch wait until its
  // session has fewer under way.
  void StartFetch(Node& node);
  // It is over: the next one that waits may begin.
  void FetchEnded(Node& node);
  // Clients have taken what had come: as much of what waits may begin, of some sessions at a time.
  void WakeFetches();
  // The rule of waiting_.
  absl::Status Check() const;
  // A session's share of the memory for fetched bytes.
  std::shared_ptr<MemoryBudget> Share() const;

 private:
  bool MayFetch(const Session& session) const;
  void WakeFetch(SessionId id);
  void SetPaced(Node& node, bool paced);
  // `command`: the one that the source is for.
  ShardSource SourceOf(const Node& node, size_t i, const Executor& receiver,
                       const PrepareReceive& command);
  // Adds the sources and pieces of a remade shard, the last one of command.out.
  void AddPieces(const Node& node, int32_t shard, PrepareReceive& command);

  State& s;                                      // the state that this is a part of
  const std::shared_ptr<MemoryBudget> fetched_;  // of all sessions
  std::map<SessionId, std::set<NodeId>> waiting_;
  SessionId wake_next_;  // those of waiting_ from it on are next

 public:
  uint64_t inline_hits = 0;       // fetches whose bytes lay with the controller
  uint64_t executor_fetches = 0;  // fetches that pulled bytes from an executor
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_TRANSFERS_H_
