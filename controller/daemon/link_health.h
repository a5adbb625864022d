// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CONTROLLER_DAEMON_LINK_HEALTH_H_
#define FAIRWAY_CONTROLLER_DAEMON_LINK_HEALTH_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "controller/daemon/link_traffic.h"

namespace fairway {

// How an executor keeps up with its island's log.
struct LinkHealth {
  // Entries for the executor that it has not acknowledged, and their bytes.
  size_t open_entries = 0;
  size_t open_bytes = 0;
  // How long it has acknowledged none of them, to within a tick; 0: none is open.
  std::chrono::milliseconds still{0};
  // From its latest acknowledged heartbeat to the answer; 0: there was none yet.
  std::chrono::nanoseconds round_trip{0};
  uint64_t links_resumed = 0;  // its connections that broke and came back in time
  uint32_t protocol = 0;       // of the links, that the controller took for it
  std::string log_from;        // the worker whose relay sends it its log; empty: the controller
};

// A relay that is connected.
struct RelayStatus {
  std::string worker;
  std::string island;
  std::string endpoint;   // host:port
  std::string above;      // the worker of the relay above it; empty: the controller
  size_t executors = 0;   // its children
  size_t relays = 0;      // those that are relays; both 0: it has no task
  LinkTraffic passed_on;  // frames and reports that it sent, as of its last heartbeat
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_LINK_HEALTH_H_
