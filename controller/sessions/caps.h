// SPDX-License-Identifier: Apache-2.0
// How far one session may run ahead of its devices (rule B3).
#ifndef FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_
#define FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_

#include <cstddef>

#include "controller/cluster/cluster.h"

namespace fairway {

struct SessionCaps {
  // Above so many unfinished executions, or so many bytes of their records, reading stops.
  size_t max_queued_nodes = 100000;
  size_t max_queued_bytes = size_t{256} << 20;

  // Never stops while the session waits for memory: what frees it may be the next request.
  bool MayRead(const Cluster::Backlog& backlog) const {
    return (backlog.nodes <= max_queued_nodes && backlog.record_bytes <= max_queued_bytes) ||
           backlog.waits_for_memory;
  }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_CAPS_H_
