// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CONTROLLER_DAEMON_LINK_TRAFFIC_H_
#define FAIRWAY_CONTROLLER_DAEMON_LINK_TRAFFIC_H_

#include <cstdint>

namespace fairway {

// Traffic over the links to executors in one direction since the start: commands, or reports.
struct LinkTraffic {
  uint64_t messages = 0;
  uint64_t bytes = 0;  // with the headers of the frames
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_LINK_TRAFFIC_H_
