// SPDX-License-Identifier: Apache-2.0
// The methods of the Admin service that list what sessions have.
#ifndef FAIRWAY_CONTROLLER_ADMIN_LISTINGS_H_
#define FAIRWAY_CONTROLLER_ADMIN_LISTINGS_H_

#include "async/event_loop.h"
#include "controller/access/gated_methods.h"
#include "controller/cluster/cluster.h"
#include "controller/events/event_ring.h"

namespace fairway {

// Adds ListSessions, ListArrays, ListPrograms and ListNodes. Each call is one question to the
// cluster, in the loop. Both outlive the methods.
void ServeListings(GatedMethods& methods, EventLoop* loop, const Cluster* cluster);
// Adds ListEvents. The same about the ring.
void ServeEvents(GatedMethods& methods, EventLoop* loop, const EventRing* events);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ADMIN_LISTINGS_H_
