// SPDX-License-Identifier: Apache-2.0
// The shell's events about executors and islands, and its questions about them.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_FLEET_H_
#define FAIRWAY_CONTROLLER_CLUSTER_FLEET_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/status.h"
#include "core/device.h"
#include "graph/callback.h"
#include "graph/plan.h"

namespace fairway {

struct Executor;

// The executors and islands of the cluster: they come, report, are lost and are forgotten. The
// shell around the core calls this; front doors only read. Every id passed in comes from ExecutorUp
// or a status list; unknown ids are ignored.
//
// Loop-confined. Nothing blocks.
class Cluster::Fleet {
 public:
  // An executor registered. Its name keeps its id and devices over restarts. The shell reports an
  // earlier incarnation as lost first. Sends nothing, because the shell does not know the id yet:
  // waiting commands go out with the next event or Tick. ALREADY_EXISTS: a live executor has that
  // name. INVALID_ARGUMENT: the number of devices or the island differs from before, or the
  // runtimes of one island differ.
  absl::StatusOr<ExecutorId> ExecutorUp(const ExecutorSpec& spec);
  // Its process died, hung or was fenced. Ends the island's epoch: work with a shard or launched
  // gang there gets DATA_LOSS with `cause`. Work that waits and lost nothing waits for its return.
  void ExecutorLost(ExecutorId executor, const absl::Status& cause);
  // The island will not come back soon: the work that waits for it fails with `cause`.
  void IslandGivenUp(IslandId island, const absl::Status& cause);
  // Forgets an island that has no executor up and will not come back. Its names may be taken anew,
  // and the status lists omit it. Work of sessions that know it fails with `cause`. An executor
  // that takes its name forms another island, which they do not see. Returns whether nothing of it
  // is left: call this again until no session and no executable has it.
  bool ForgetIsland(IslandId island, const absl::Status& cause);

  // For an operator, about an island by its name. NOT_FOUND: there is no such island; the text
  // names those that there are. RESOURCE_EXHAUSTED: kMostCordons are cordoned.
  //
  // Sessions that are opened from now on do not see the island; those that see it go on. That stays
  // when its workers come back, also as another island of that name, until it is uncordoned. One
  // that is cordoned keeps its cordon. Returns whether it was not cordoned before.
  static constexpr size_t kMostCordons = 1024;
  absl::StatusOr<bool> CordonIsland(const std::string& island, Cordon cordon);
  // Ends that, also for one that is not known any more. Sessions that were opened meanwhile do not
  // see it. Returns whether it was cordoned.
  absl::StatusOr<bool> UncordonIsland(const std::string& island);
  // Cordons it if need be, and says how many sessions hold it. If none does, it is drained from now
  // on: work that comes to it fails. nullopt: FAILED_PRECONDITION if it is not cordoned.
  absl::StatusOr<DrainProgress> DrainIsland(const std::string& island,
                                            std::optional<Cordon> cordon);
  // Then finds out who these are. They may be many: each call looks at some of them. Returns
  // whether it has looked at all; what changes meanwhile may be told or not.
  static constexpr size_t kMostLooks = 250;
  bool LookAtHolders(const std::string& island, DrainProgress& progress) const;

  void OnReport(ExecutorId executor, Incarnation incarnation, Report report);
  // These launches for all have ended on every executor that lives, and each failure was reported.
  // What is no such launch counts for nothing.
  void LaunchesEnded(std::vector<NodeId> nodes);

  // Whose launch an executor runs, and the device as that session sees it. NOT_FOUND: no launch of
  // that id is under way there.
  absl::StatusOr<CallbackCaller> CallerOf(ExecutorId executor, LaunchId launch,
                                          int32_t ordinal) const;

  // All islands that are known and not forgotten, in the order of their ids.
  std::vector<IslandStatus> Islands() const;
  std::vector<ExecutorStatus> Executors() const;
  // An executor of the island, up or not: all of them have the same runtime and platform. nullptr:
  // there is no such island, or it is forgotten. Valid until the next event.
  const ExecutorSpec* AnyOf(IslandId island) const;
  // UNAVAILABLE: work that comes to the island fails, since it is drained or forgotten.
  absl::Status TakesWork(IslandId island) const;
  // The cordons of islands that are not known: they are down and forgotten. By name.
  std::map<std::string, Cordon> AbsentCordons() const;
  // The device's number within its executor.
  int32_t OrdinalOf(DeviceId device) const;
  std::vector<DeviceUsage> Usage() const;

 private:
  friend class Cluster;
  explicit Fleet(State* state) : state_(state) {}
  void FailedForAll(Executor& executor, NodeId id, absl::Status status);

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_FLEET_H_
