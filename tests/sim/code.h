// SPDX-License-Identifier: Apache-2.0
// Simulated compiled code. Its results are a hash of its identity and all its inputs, so the
// machine that runs it can be compared with the client's reference interpreter.
#ifndef FAIRWAY_TESTS_SIM_CODE_H_
#define FAIRWAY_TESTS_SIM_CODE_H_

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "tests/sim/basics.h"

namespace fairway::sim {

using Inputs = std::vector<std::vector<uint64_t>>;  // [argument][device position]

struct Code {
  ExecutableSpec spec;
  uint64_t salt = 0;
  int64_t duration = 0;  // microseconds
  int fails_one_in = 0;  // 0: never
  bool load_fails = false;
  bool separable = false;  // no collectives: devices neither meet nor see each other's inputs

  // A digest of all inputs, or of those of the device at `position`.
  uint64_t Digest(const Inputs& inputs, size_t position) const {
    uint64_t digest = salt;
    for (const auto& argument : inputs) {
      for (size_t i = 0; i < argument.size(); ++i) {
        if (!separable || i == position) digest = Mix(digest, argument[i]);
      }
    }
    return digest;
  }
  // The errors that devices at these positions may fail with, in the order of positions.
  std::vector<std::string> Failures(const Inputs& inputs,
                                    const std::vector<size_t>& positions) const {
    std::vector<std::string> out;
    for (const size_t position : positions) {
      const uint64_t digest = Digest(inputs, position);
      if (fails_one_in > 0 && digest % fails_one_in == 0)
        out.push_back(fmt::format("boom#{:x}", digest));
      if (!separable) break;
    }
    return out;
  }
  std::vector<std::string> Failures(const Inputs& inputs) const {
    std::vector<size_t> all(spec.devices.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return Failures(inputs, all);
  }
  std::string LoadFailureText() const { return fmt::format("unloadable#{:x}", salt); }
  // Devices with the same tile of a result have the same value. Separable code has one tile of each
  // result for each device.
  uint64_t Output(const Inputs& inputs, size_t output, size_t position) const {
    const ValueType& type = spec.outputs[output];
    if (type.shard.num_elements() == 0) return 0;  // no bytes hold no value
    const uint64_t tile = type.tile_of.empty() ? 0 : static_cast<uint64_t>(type.tile_of[position]);
    return Mix(Mix(Digest(inputs, position), output + 1), tile + 1) | 1;
  }
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_CODE_H_
