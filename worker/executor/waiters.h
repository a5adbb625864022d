// SPDX-License-Identifier: Apache-2.0
// The waiters for shards of an executor: pulls to serve, local copies to start, launches, and
// outputs of sequences. Pure.
#ifndef FAIRWAY_WORKER_EXECUTOR_WAITERS_H_
#define FAIRWAY_WORKER_EXECUTOR_WAITERS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "graph/plan.h"
#include "worker/executor/shard_map.h"

namespace fairway {

// Something that waits for a shard. Exactly one of `pull`, `node` and `output` says what it is.
struct Waiter {
  uint64_t pull = 0;         // 0: a local copy, a launch or an output
  TransferId transfer = {};  // of the pull
  int32_t index = 0;         // in the transfer
  NodeId node = {};
  size_t position = 0;
  ShardRef output = {};  // set: an output of a sequence that becomes this shard; all else is 0
};

// Pull `pull` is for shard `index` of `transfer`.
struct AskedShard {
  uint64_t pull = 0;
  TransferId transfer;
  int32_t index = 0;
};

// Owned by ExecutorCore. Not thread-safe. No line in it is empty.
class Waiters {
 public:
  using Entry = std::pair<ShardRef, uint64_t>;
  using Line = std::map<uint64_t, Waiter>;  // in the order of Add

  Entry Add(ShardRef ref, const Waiter& waiter) {
    lines_.Insert(ref).first.emplace(++last_, waiter);
    return {ref, last_};
  }
  // False: the entry does not wait any more.
  std::pair<bool, Waiter> Remove(const Entry& entry) {
    const auto line = lines_.find(entry.first);
    if (line == lines_.end()) return {false, {}};
    auto waiter = line->second.extract(entry.second);
    if (line->second.empty()) lines_.erase(line);
    if (waiter.empty()) return {false, {}};
    return {true, waiter.mapped()};
  }
  const Line& Of(ShardRef ref) const {
    static const Line kNobody;
    const auto line = lines_.find(ref);
    return line == lines_.end() ? kNobody : line->second;
  }
  Line Take(ShardRef ref) {
    const auto line = lines_.find(ref);
    if (line == lines_.end()) return {};
    Line taken = std::move(line->second);
    lines_.erase(line);
    return taken;
  }
  const ShardMap<Line>& all() const { return lines_; }
  void Clear() { lines_.clear(); }

 private:
  uint64_t last_ = 0;
  ShardMap<Line> lines_;
};

// A transfer whose shards peers may ask for.
struct Sending {
  std::map<int32_t, PrepareSend::Item> items;
  std::vector<Waiters::Entry> waits;  // where pulls of it wait or have waited
};

// A shard that is ready or has failed.
struct SettledShard {
  ShardRef ref;
  absl::Status status;
  Waiters::Line waiters;  // those not yet woken
};

// A launch that was started: where the search for launches that follow it goes on.
struct Followed {
  NodeId node;
  size_t output = 0, shard = 0;
  uint64_t waiter = 0;  // those of the shard up to this one were looked at
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_WAITERS_H_
