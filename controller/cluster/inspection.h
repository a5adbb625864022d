// SPDX-License-Identifier: Apache-2.0
// What tests, simulations and metrics see of the core.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_INSPECTION_H_
#define FAIRWAY_CONTROLLER_CLUSTER_INSPECTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/status.h"

namespace fairway {

// Looks at the core without changing it. Loop-confined. All but `counts` walk everything there is:
// for tests and reports, not for requests.
class Cluster::Inspection {
 public:
  ClusterCounts counts() const;
  // How often each move of a node's state machine was made, "kQueued -> kPrepared"; for coverage.
  std::map<std::string, uint64_t> Transitions() const;
  // One line per unfinished node, for reports on what waits.
  std::vector<std::string> Unfinished() const;
  // Checks the rules that hold between any two events; the text names the first that does not.
  absl::Status CheckInvariants() const;

 private:
  friend class Cluster;
  struct Invariants;  // invariants.cc
  explicit Inspection(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_INSPECTION_H_
