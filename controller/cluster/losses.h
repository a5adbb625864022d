// SPDX-License-Identifier: Apache-2.0
// What sessions hear of lost executors and given up islands. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LOSSES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LOSSES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/group.h"
#include "controller/cluster/node.h"
#include "controller/cluster/registry.h"
#include "controller/cluster/work.h"

namespace fairway {

// An executor is lost, or an island given up: each session with something there hears of it in
// slices (docs/design/0058-bounded-turns.md). What it is yet to hear lies in its worklist.
//
// Invariants: open_losses is the number of losses in all worklists; Island::telling and
// Executor::telling count the sessions that have not heard, and until these are 0 nothing is
// launched there.
class Cluster::Losses {
 public:
  explicit Losses(State& state) : s(state) {}

  // Has all sessions with something on the island hear of it: of the executor, or, without, that it
  // was given up.
  void BeginLoss(Island& island, Executor* lost, const absl::Status& status);
  // Some more of what one session hears of it.
  void GoOnLoss(SessionId session, Worklist& list);
  // Whether the session is yet to hear of one.
  bool HasLosses(SessionId session) const;
  // Has the session hear of all losses now, in this turn.
  void FinishLosses(SessionId session);
  // Parks one that was admitted until its session has heard of all losses, if they may be of what
  // it takes; else prepares it.
  void AfterLosses(Node& node);
  // Looks again at some of the parked.
  void Unpark();

 private:
  void LoseGroups(SessionId session, Loss& loss);
  void LoseNode(Node& node, Loss& loss);
  void LoseLaunched(Node& node, const Loss& loss);
  // The session has heard it.
  void LossHeard(const Loss& loss);
  // All have: code that ran there too is loaded anew.
  void DropShared(const std::vector<Executor*>& lost);
  uint64_t num_losses = 0;  // for Loss::number

  State& s;  // of which this is a part

 public:
  size_t open_losses = 0;  // in all worklists
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LOSSES_H_
