// SPDX-License-Identifier: Apache-2.0
// What the shell tells the core of executors and islands, and what it asks about them.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_FLEET_H_
#define FAIRWAY_CONTROLLER_CLUSTER_FLEET_H_

#include <cstdint>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/status.h"
#include "core/device.h"
#include "graph/callback.h"
#include "graph/plan.h"

namespace fairway {

// The executors and islands of the cluster: they come, report, are lost and are forgotten. The
// shell around the core calls this; front doors only read. Every id that comes in is one that
// ExecutorUp or a status list gave; unknown ones are ignored.
//
// Loop-confined. Nothing blocks.
class Cluster::Fleet {
 public:
  // An executor registered. Its name keeps its id and devices over restarts. The shell reports an
  // earlier incarnation as lost first. Sends nothing, because the shell does not know the id yet:
  // what waits goes with the next event or Tick. ALREADY_EXISTS: a live executor has that name
  // already. INVALID_ARGUMENT: the number of devices or the island differs from before, or the
  // runtimes of one island differ.
  absl::StatusOr<ExecutorId> ExecutorUp(const ExecutorSpec& spec);
  // Its process died, hung or was fenced. Ends the island's epoch: what had a shard or a launched
  // gang there gets DATA_LOSS with `cause`; what waits and has lost nothing waits for its return.
  void ExecutorLost(ExecutorId executor, const absl::Status& cause);
  // The island will not come back soon: what waits for it fails with `cause`.
  void IslandGivenUp(IslandId island, const absl::Status& cause);
  // None of its executors is up, and it will not come back: its names may be taken anew, and the
  // status lists show it no more. What sessions that know it want there fails with `cause`; what
  // registers under its name is another island, which they do not see. Returns whether nothing of
  // it is left: until no session knows it and no executable is of it, call it again.
  bool ForgetIsland(IslandId island, const absl::Status& cause);
  void OnReport(ExecutorId executor, Incarnation incarnation, Report report);

  // Whose launch it is that an executor runs, and its device as that session sees it. NOT_FOUND:
  // nothing of that id is launched there.
  absl::StatusOr<CallbackCaller> CallerOf(ExecutorId executor, LaunchId launch,
                                          int32_t ordinal) const;

  // All that are known and not forgotten, in the order of their ids.
  std::vector<IslandStatus> Islands() const;
  std::vector<ExecutorStatus> Executors() const;
  std::vector<DeviceUsage> Usage() const;

 private:
  friend class Cluster;
  explicit Fleet(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_FLEET_H_
