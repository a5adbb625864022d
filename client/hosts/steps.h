// SPDX-License-Identifier: Apache-2.0
// The steps of which `fairway cluster up` and `fairway cluster upgrade` consist.
#ifndef FAIRWAY_CLIENT_HOSTS_STEPS_H_
#define FAIRWAY_CLIENT_HOSTS_STEPS_H_

#include <chrono>
#include <set>
#include <string>

#include "base/status.h"
#include "client/hosts/controller_host.h"
#include "client/hosts/fleet.h"
#include "client/hosts/local_file.h"

namespace fairway {

// What is copied to the hosts, and how long one waits for a daemon.
struct Plan {
  Package package = {};
  Plugin plugin = {};
  std::chrono::milliseconds limit;
};
absl::StatusOr<Plan> MakePlan(const ClusterFile& file, std::chrono::milliseconds limit);

// Looks at the host, and copies what it lacks. Starts and stops nothing.
absl::Status Install(Site& site, const Plan& plan);

// Starts the controller of `release`, and makes its CA before if there is none.
absl::Status StartController(Fleet& fleet, const std::string& release);
// Waits until the controller answers. DEADLINE_EXCEEDED, or ABORTED if it has ended.
absl::StatusOr<ClusterState> AwaitController(Fleet& fleet, std::chrono::milliseconds limit);

// Has those of `workers` join that never did, or whose certificate is over or not whole, and starts
// what does not run with `release`, or with the plan's
// where the host lacks that. Then waits until the controller shows them as up. What fails is
// printed.
void StartWorkers(Fleet& fleet, const Plan& plan, const ClusterState& state,
                  const std::set<std::string>& workers, const std::string& release);

// Waits until the controller shows these workers as up, with executors that are not those of
// `before`. What fails is printed.
void AwaitWorkers(Fleet& fleet, const ClusterState& before, std::set<std::string> waiting,
                  std::chrono::milliseconds limit);

// What makes a daemon that runs another one than the file says; empty: nothing.
std::string Difference(const Site& site, const Daemon& daemon, const Plan& plan,
                       const std::string& settings);

// The settings file of the worker, as the file says it.
std::string SettingsOf(const Fleet& fleet, const Site& site, const Daemon& worker, const Plan& plan,
                       const ClusterState& state);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_STEPS_H_
