// SPDX-License-Identifier: Apache-2.0
// Tells sessions of lost executors and of islands that were given up. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LOSSES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LOSSES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/group.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"
#include "controller/cluster/worklist.h"

namespace fairway {

// Tells each session that has something on an island of a lost executor, or that the island was
// given up, in slices (docs/design/0058-bounded-turns.md). The rest lies in its worklist.
//
// Invariants: open_losses is the number of losses in all worklists; Island::telling and
// Executor::telling count the sessions that have not been told all, and the former each of drops_.
// Until these are 0 nothing is launched there.
class Cluster::Losses {
 public:
  explicit Losses(State& state) : s(state) {}

  // Begins to tell all sessions with something on the island of the loss of `lost`, or, if that is
  // nullptr, that the island was given up.
  void BeginLoss(Island& island, Executor* lost, const absl::Status& status);
  // Tells one session some more of a loss.
  void GoOnLoss(SessionId session, Worklist& list);
  // Whether the session has not been told all of some loss.
  bool HasLosses(SessionId session) const;
  // Tells the session the rest of all losses now, in this turn.
  void FinishLosses(SessionId session);
  // Prepares an admitted node. If it takes something that a loss still open to its session may
  // concern, or that is being taken back, parks it until that is over.
  void AfterLosses(Node& node);
  // Looks again at some of the parked nodes.
  void Unpark();
  // From here on, Unpark looks at all parked nodes again.
  void UnparkAll() { unpark_after_ = NodeId(); }
  // Drops some more of the code that lost executors ran together with others.
  void GoOnDropping(uint64_t until);
  bool Drops() const { return !drops_.empty(); }
  // Whether Unpark has nodes to look at.
  bool Unparks() const { return unpark_after_.has_value(); }

 private:
  void LoseGroups(SessionId session, Loss& loss);
  void LoseNode(Node& node, Loss& loss);
  void LoseLaunched(Node& node, Loss& loss);
  // `own`: how many of its parts were lost. It may have lost sources instead.
  void LoseForAll(Node& node, Loss& loss);
  void LoseReceive(Node& node, Loss& loss, size_t own);
  // The session has been told all of it.
  void LossHeard(const Loss& loss);
  // All sessions have been told: begins to drop the code that also ran on the lost executors, so
  // that it is loaded anew.
  void DropShared(Island& island, const std::vector<Executor*>& lost);

  // Code that the other executors of an island have to drop. Island::telling counts it once.
  struct Dropping {
    IslandId island;
    std::vector<ExecutableId> shared;  // not empty; the last one is next
    size_t next = 0;                   // part of it
  };
  std::deque<Dropping> drops_;

  std::optional<NodeId> unpark_after_;  // later parked nodes are looked at again
  uint64_t num_losses = 0;              // for Loss::number
  State& s;                             // the state that this is a part of

 public:
  size_t open_losses = 0;  // in all worklists
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LOSSES_H_
