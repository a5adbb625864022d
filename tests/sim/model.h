// SPDX-License-Identifier: Apache-2.0
// The reference interpreter's view of a session: what every array must hold, and the errors with
// which it may fail.
#ifndef FAIRWAY_TESTS_SIM_MODEL_H_
#define FAIRWAY_TESTS_SIM_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"

namespace fairway::sim {

// A failure that is certain, whatever the timing.
struct Failure {
  NodeId cause;
  std::string text;
  bool certain = true;  // false: may be reported, although nothing that fails is needed
};
// None: it succeeds unless memory or machines are lost. Several: timing decides which is reported.
using Failures = std::vector<Failure>;

inline bool MayBeFine(const Failures& failures) {
  return std::none_of(failures.begin(), failures.end(),
                      [](const Failure& failure) { return failure.certain; });
}

struct ModelGroup {
  std::vector<uint64_t> values;  // by shard
  std::vector<DeviceId> devices;
  std::vector<std::string> kinds;
  std::vector<Shape> shapes;
  std::vector<bool> deleted;
  Failures failures;
  bool surely_failed = false;  // seen failed, or lost after it was ready
  bool known_ready = false;
  uint64_t machines = 0;  // bits: machines whose loss may hurt it, through all its sources
  uint64_t places = 0;    // bits: machines where it lies
  // The controller stores it: no loss hurts it, and it takes no device memory.
  bool stored = false;
  std::vector<std::vector<uint64_t>> words;  // if stored: its words, by shard
};

// The value of these words (ValueOf).
inline uint64_t ValueOfWords(const std::vector<uint64_t>& words) {
  const bool agree =
      std::all_of(words.begin(), words.end(), [&](uint64_t word) { return word == words[0]; });
  return agree && !words.empty() ? words[0] : 0;
}

struct ModelShard {
  std::shared_ptr<ModelGroup> group;
  int32_t index = 0;
  uint64_t value() const { return group->values[index]; }
  // What a fetch makes of it: no bytes hold no value.
  uint64_t seen() const { return group->shapes[index].num_elements() == 0 ? 0 : value(); }
  DeviceId device() const { return group->devices[index]; }
  std::vector<uint64_t> words() const {
    return group->stored ? group->words[index] : std::vector<uint64_t>();
  }
};

struct ModelArray {
  ArraySpec spec;
  std::vector<ModelShard> shards;
  std::string error;  // an error array: no shards
  bool gone = false;  // given to a remap, or a deleted error array: no shards

  bool deleted() const {
    return gone || std::any_of(shards.begin(), shards.end(),
                               [](const ModelShard& s) { return s.group->deleted[s.index]; });
  }
  void Delete() {
    gone = gone || shards.empty();
    for (const ModelShard& shard : shards) shard.group->deleted[shard.index] = true;
  }
};

// The failures of something made from `groups`: those of the lowest failed node, which is the run
// for results of a program. `limited`: device memory is. What can never fit then fails for that,
// before its inputs are heard to have failed, and another node may be the lowest.
inline Failures Inherit(const std::vector<std::shared_ptr<ModelGroup>>& groups, bool limited) {
  Failures all;
  bool unsure = false;
  for (const auto& group : groups) {
    unsure = unsure || group->failures.size() > 1 ||
             (limited && !group->stored && !group->failures.empty()) ||
             MayBeFine(group->failures) != group->failures.empty();
    all.insert(all.end(), group->failures.begin(), group->failures.end());
  }
  if (all.empty() || unsure) return all;
  const NodeId first =
      std::min_element(all.begin(), all.end(), [](const Failure& a, const Failure& b) {
        return a.cause < b.cause;
      })->cause;
  std::erase_if(all, [&](const Failure& failure) { return failure.cause != first; });
  return all;
}

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_MODEL_H_
