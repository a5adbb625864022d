// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CONTROLLER_DAEMON_LINK_HEALTH_H_
#define FAIRWAY_CONTROLLER_DAEMON_LINK_HEALTH_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

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
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_LINK_HEALTH_H_
