// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_SHARD_MAP_H_
#define FAIRWAY_WORKER_EXECUTOR_SHARD_MAP_H_

#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "graph/plan.h"

namespace fairway {

// An ordered map by shard. Mostly the shards of a group are looked up one after the other, so it
// looks first where the last look-up ended, and behind it. Iterators stay as those of std::map.
// Not thread-safe, not even for look-ups.
template <typename T>
class ShardMap {
  using Map = std::map<ShardRef, T>;

 public:
  using iterator = typename Map::iterator;
  using const_iterator = typename Map::const_iterator;

  ShardMap() = default;
  ShardMap(const ShardMap&) = delete;
  ShardMap& operator=(const ShardMap&) = delete;

  iterator begin() { return map_.begin(); }
  iterator end() { return map_.end(); }
  const_iterator begin() const { return map_.begin(); }
  const_iterator end() const { return map_.end(); }
  size_t size() const { return map_.size(); }

  iterator find(ShardRef ref) { return Seek(ref); }
  const_iterator find(ShardRef ref) const { return Seek(ref); }
  bool contains(ShardRef ref) const { return Seek(ref) != map_.end(); }
  iterator lower_bound(ShardRef ref) { return map_.lower_bound(ref); }

  // Returns the shard's value, and whether it is new.
  std::pair<T&, bool> Insert(ShardRef ref) {
    const size_t size = map_.size();
    at_ = map_.try_emplace(at_ == map_.end() ? at_ : std::next(at_), ref);
    return {at_->second, map_.size() > size};
  }
  // Returns the place behind it.
  iterator erase(iterator it) { return at_ = map_.erase(it); }
  void erase(ShardRef ref) {
    if (const iterator it = Seek(ref); it != map_.end()) erase(it);
  }
  void clear() {
    map_.clear();
    at_ = map_.end();
  }

 private:
  iterator Seek(ShardRef ref) const {
    if (at_ != map_.end()) {
      if (at_->first == ref) return at_;
      const iterator next = std::next(at_);
      if (next != map_.end() && next->first == ref) return at_ = next;
    }
    const iterator found = map_.find(ref);
    if (found != map_.end()) at_ = found;
    return found;
  }

  mutable Map map_;
  mutable iterator at_ = map_.end();  // where the last look-up ended
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_SHARD_MAP_H_
