// SPDX-License-Identifier: Apache-2.0
// Simulated compiled code: what it computes is a hash of its identity and of all its inputs, so
// that the machine that runs it and the client's reference interpreter can be compared.
#ifndef FAIRWAY_TESTS_SIM_CODE_H_
#define FAIRWAY_TESTS_SIM_CODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "tests/sim/basics.h"

namespace fairway::sim {

using Inputs = std::vector<std::vector<uint64_t>>;  // [argument][device position]

struct Code {
  ExecutableSpec spec;
  uint64_t salt = 0;
  int64_t duration = 0;  // microseconds
  int fails_one_in = 0;  // 0: never
  bool load_fails = false;
  bool separable = false;  // where one executor runs it alone

  uint64_t Digest(const Inputs& inputs) const {
    uint64_t digest = salt;
    for (const auto& argument : inputs) {
      for (const uint64_t value : argument) digest = Mix(digest, value);
    }
    return digest;
  }
  bool Fails(const Inputs& inputs) const {
    return fails_one_in > 0 && Digest(inputs) % fails_one_in == 0;
  }
  std::string FailureText(const Inputs& inputs) const {
    return fmt::format("boom#{:x}", Digest(inputs));
  }
  std::string LoadFailureText() const { return fmt::format("unloadable#{:x}", salt); }
  // Devices that hold the same tile of a result have the same value.
  uint64_t Output(const Inputs& inputs, size_t output, size_t position) const {
    const ValueType& type = spec.outputs[output];
    const uint64_t tile = type.tile_of.empty() ? 0 : static_cast<uint64_t>(type.tile_of[position]);
    return Mix(Mix(Digest(inputs), output + 1), tile + 1) | 1;
  }
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_CODE_H_
