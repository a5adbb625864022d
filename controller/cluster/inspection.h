// SPDX-License-Identifier: Apache-2.0
// The view of the core that tests, simulations and metrics have.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_INSPECTION_H_
#define FAIRWAY_CONTROLLER_CLUSTER_INSPECTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/status.h"

namespace fairway {

// Looks at the core without changing it. Loop-confined. All but `counts` walk the whole state: they
// are for tests and reports, not for requests.
class Cluster::Inspection {
 public:
  ClusterCounts counts() const;
  // How often the state of a node moved, by move ("kQueued -> kPrepared"); for coverage.
  std::map<std::string, uint64_t> Transitions() const;
  // One line per unfinished node, for reports on waiting work.
  std::vector<std::string> Unfinished() const;
  // Checks the rules that hold between any two events; the error names the first broken one.
  absl::Status CheckInvariants() const;

 private:
  friend class Cluster;
  struct Invariants;  // invariants.cc
  explicit Inspection(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_INSPECTION_H_
