// SPDX-License-Identifier: Apache-2.0
// The reference interpreter's view of a session: what every array must hold, and with which error
// it may fail.
#ifndef FAIRWAY_TESTS_SIM_MODEL_H_
#define FAIRWAY_TESTS_SIM_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"

namespace fairway::sim {

// A failure that is sure to happen, whatever the timing.
struct Failure {
  NodeId cause;
  std::string text;
  bool certain = true;  // or one that may be told though what it is of needs nothing that fails
};
// None: it succeeds unless memory or machines are lost. Several: which of them is told first
// depends on timing.
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
  bool surely_failed = false;  // seen failed, or lost when it was known to be there
  bool known_ready = false;
  uint64_t machines = 0;  // bits: whose loss may have hurt it, through all that it was made from
  uint64_t places = 0;    // bits: where it lies
  // It lies with the controller: no loss hurts it, and it takes no memory.
  bool stored = false;
  std::vector<std::vector<uint64_t>> words;  // stored: the bytes, by shard
};

// The value of these bytes (ValueOf).
inline uint64_t ValueOfWords(const std::vector<uint64_t>& words) {
  const bool agree =
      std::all_of(words.begin(), words.end(), [&](uint64_t word) { return word == words[0]; });
  return agree && !words.empty() ? words[0] : 0;
}

struct ModelShard {
  std::shared_ptr<ModelGroup> group;
  int32_t index = 0;
  uint64_t value() const { return group->values[index]; }
  // What a fetch makes of it: no bytes say nothing.
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
  bool gone = false;  // given to a remap, or an error array that was deleted: no shards

  bool deleted() const {
    return gone || std::any_of(shards.begin(), shards.end(),
                               [](const ModelShard& s) { return s.group->deleted[s.index]; });
  }
  void Delete() {
    gone = gone || shards.empty();
    for (const ModelShard& shard : shards) shard.group->deleted[shard.index] = true;
  }
};

// The failures of something made from `groups`: those of the lowest failed node (of several
// results of one program: of its run).
inline Failures Inherit(const std::vector<std::shared_ptr<ModelGroup>>& groups) {
  Failures all;
  bool unsure = false;
  for (const auto& group : groups) {
    unsure = unsure || group->failures.size() > 1 ||
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
