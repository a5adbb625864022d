// SPDX-License-Identifier: Apache-2.0
// Limits of all messages, whoever sends them.
#ifndef FAIRWAY_WIRE_LIMITS_H_
#define FAIRWAY_WIRE_LIMITS_H_

#include <cstddef>

namespace fairway {

inline constexpr int kMaxRank = 64;             // dimensions of an array
inline constexpr size_t kMaxOutputs = 1 << 20;  // of a launch
// The largest command to an executor: with its envelope it fits into a frame (transport/frame.h).
inline constexpr size_t kMaxCommandBytes = (size_t{1} << 30) - (size_t{1} << 20);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_LIMITS_H_
