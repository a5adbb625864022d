// SPDX-License-Identifier: Apache-2.0
// The cost of sockets: the CPU of a thread that receives and sends control frames over real links.
#ifndef FAIRWAY_BENCH_SCALE_LINK_COST_H_
#define FAIRWAY_BENCH_SCALE_LINK_COST_H_

#include "base/status.h"
#include "bench/scale/timeline.h"

namespace fairway::scale {

// Per frame, of the thread that runs the link's loop.
struct LinkCost {
  Nanos receive = 0;
  Nanos send = 0;
};

// Measures over TCP on loopback, with `links` links that carry one frame of `bytes` each at a time,
// like the links of hosts that work on one gang: no two frames share a read or a write, but one
// wait for events yields many. Takes a second. A write to loopback also does the receiver's part of
// the network stack, which a write to a network does not.
absl::StatusOr<LinkCost> MeasureLinkCost(int links = 64, size_t bytes = 200);

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_LINK_COST_H_
