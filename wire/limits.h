// SPDX-License-Identifier: Apache-2.0
// What no message may go beyond, whoever sends it.
#ifndef FAIRWAY_WIRE_LIMITS_H_
#define FAIRWAY_WIRE_LIMITS_H_

namespace fairway {

inline constexpr int kMaxRank = 64;  // dimensions of an array

}  // namespace fairway

#endif  // FAIRWAY_WIRE_LIMITS_H_
