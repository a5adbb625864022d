// SPDX-License-Identifier: Apache-2.0
// Types of arrays that tests of programs use.
#ifndef FAIRWAY_GRAPH_SPECS_FOR_TEST_H_
#define FAIRWAY_GRAPH_SPECS_FOR_TEST_H_

#include <numeric>
#include <vector>

#include "core/sharding.h"

namespace fairway {

// 0, 1, 2, ...: the positions of `devices` devices in a slice.
inline std::vector<int32_t> Positions(int devices) {
  std::vector<int32_t> out(devices);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// f32[size], whole on each device.
inline ArraySpec Whole(int64_t size, int devices) {
  return {DType::kF32, Shape{{size}}, Sharding::Replicated(Positions(devices))};
}

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_SPECS_FOR_TEST_H_
