// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_LAUNCH_ID_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_LAUNCH_ID_H_

#include <cstdint>

namespace fairway::pjrt {

// PJRT takes an int, and mixes the collectives of all launches with id 0. So 64-bit ids map to 1 ..
// 2^31-1, and neighbours in an island's order never get the same number.
constexpr int LaunchIdForPjrt(uint64_t launch_id) {
  return 1 + static_cast<int>(launch_id % ((uint64_t{1} << 31) - 1));
}

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_LAUNCH_ID_H_
