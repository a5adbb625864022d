// SPDX-License-Identifier: Apache-2.0
// What no message may go beyond, whoever sends it.
#ifndef FAIRWAY_WIRE_LIMITS_H_
#define FAIRWAY_WIRE_LIMITS_H_

#include <cstddef>

namespace fairway {

inline constexpr int kMaxRank = 64;             // dimensions of an array
inline constexpr size_t kMaxOutputs = 1 << 20;  // of a launch
// Of a command to an executor: it fits into a frame (transport/frame.h) with what goes around it.
inline constexpr size_t kMaxCommandBytes = (size_t{1} << 30) - (size_t{1} << 20);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_LIMITS_H_
