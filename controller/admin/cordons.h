// SPDX-License-Identifier: Apache-2.0
// The methods of the Admin service by which operators cordon and drain islands.
#ifndef FAIRWAY_CONTROLLER_ADMIN_CORDONS_H_
#define FAIRWAY_CONTROLLER_ADMIN_CORDONS_H_

#include "async/event_loop.h"
#include "controller/access/gated_methods.h"
#include "controller/cluster/cluster.h"
#include "controller/events/event_ring.h"

namespace fairway {

// Adds CordonIsland, UncordonIsland and DrainIsland. Each call is one operation of the cluster, in
// the loop, but for the look at those who hold an island, which is cut into slices; the audit log
// hears of those that change something or fail, and `note` of the former. Loop and cluster outlive
// the methods.
void ServeCordons(GatedMethods& methods, EventLoop* loop, Cluster* cluster, NoteEvent note);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ADMIN_CORDONS_H_
