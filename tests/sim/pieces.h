// SPDX-License-Identifier: Apache-2.0
// The value of a shard made of pieces: a hash of them in the order of their places.
#ifndef FAIRWAY_TESTS_SIM_PIECES_H_
#define FAIRWAY_TESTS_SIM_PIECES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "core/box.h"
#include "tests/sim/basics.h"

namespace fairway::sim {

// By place in the shard that is made.
using Pieces = std::map<std::vector<int64_t>, uint64_t>;

// The value of a box of a shard with this value: what travels if only the box is asked for.
inline uint64_t BoxedValue(uint64_t value, const Box& box) {
  if (box.whole()) return value;
  for (const int64_t at : box.origin) value = Mix(value, static_cast<uint64_t>(at) + 1);
  for (const int64_t extent : box.extents) value = Mix(value, static_cast<uint64_t>(extent));
  return value;
}

inline uint64_t Assembled(const Pieces& pieces) {
  if (pieces.size() == 1) return pieces.begin()->second;
  uint64_t value = pieces.size();
  for (const auto& [at, piece] : pieces) value = Mix(value, piece);
  return value | 1;
}

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_PIECES_H_
