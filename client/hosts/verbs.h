// SPDX-License-Identifier: Apache-2.0
// The verbs of `fairway cluster`. Each prints what it did, and returns the exit code.
#ifndef FAIRWAY_CLIENT_HOSTS_VERBS_H_
#define FAIRWAY_CLIENT_HOSTS_VERBS_H_

#include <chrono>

#include "client/hosts/fleet.h"

namespace fairway {

// Makes what is missing, and starts what does not run. Stops and changes nothing that runs.
int ClusterUp(Fleet& fleet, std::chrono::milliseconds limit);
// Shows the hosts and their daemons. 0 if all are up.
int ClusterStatus(Fleet& fleet);
// Restarts what does not run as the file says: the controller, then island by island.
int ClusterUpgrade(Fleet& fleet, std::chrono::milliseconds limit);
// Ends the workers, then the controller. `purge`: removes all that was made on the hosts, too.
int ClusterDown(Fleet& fleet, bool purge);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_VERBS_H_
