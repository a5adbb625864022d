// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CONTROLLER_DAEMON_LOOP_LOAD_H_
#define FAIRWAY_CONTROLLER_DAEMON_LOOP_LOAD_H_

#include <chrono>
#include <cstdint>

namespace fairway {

// The longest that an executor's loop was held, over all its incarnations.
struct LoopLoad {
  uint64_t turn_units = 0;              // the most units of one turn of its core
  std::chrono::nanoseconds handler{0};  // the most processor time of one handler
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_LOOP_LOAD_H_
