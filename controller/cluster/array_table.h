// SPDX-License-Identifier: Apache-2.0
// The arrays of a session, and what the records of sessions hold of the controller's memory.
// Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_ARRAY_TABLE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_ARRAY_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <absl/container/btree_map.h>

#include "base/planted.h"
#include "base/status.h"
#include "controller/cluster/shard_list.h"
#include "core/sharding.h"
#include "graph/plan.h"

namespace fairway {

// The record of an array handle: a list of shards (or an error from the start), and its type.
struct Array {
  ArraySpec spec;
  ShardList shards;
  absl::Status error;    // set: there are no shards
  bool deleted = false;  // set: given away, or a deleted error array; it has no shards
  bool unknown = false;  // of an error array: not even the type is known, `spec` says nothing
};

// Bytes of one session's records of one kind, counted in a total of all sessions as well. On
// destruction, the bytes that it still counts leave the total.
class RecordCount {
 public:
  RecordCount() = default;
  // `total` must outlive it.
  explicit RecordCount(size_t* total) : total_(total) {}
  RecordCount(RecordCount&& other) noexcept
      : total_(other.total_), bytes_(std::exchange(other.bytes_, 0)) {}
  RecordCount& operator=(RecordCount&& other) noexcept {
    std::swap(total_, other.total_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~RecordCount() { Remove(bytes_); }

  void Add(size_t bytes) {
    bytes_ += bytes;
    if (total_ != nullptr) *total_ += bytes;
  }
  void Remove(size_t bytes) {
    bytes_ -= bytes;
    if (total_ != nullptr && !Planted(Bug::kForgetTotal)) *total_ -= bytes;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t* total_ = nullptr;
  size_t bytes_ = 0;  // <= *total_
};

// The arrays of a session by handle; their records are counted.
//
// A tree, so that adding an array moves a few dozen handles at most, however many there are. A hash
// table of a million entries is rehashed in one go, and clients choose the handles: one could
// choose handles that collide. An array keeps its address as long as it is in the table.
class ArrayTable {
 public:
  using Map = absl::btree_map<uint64_t, std::unique_ptr<Array>>;

  // The bytes of an array of one shard, which is the least. The text of an error counts in full for
  // each array that holds it, though some share it. Each shard counts as if it were a run of its
  // own, and for its part of the sharding, which most arrays share.
  static constexpr size_t kSmallest = 288;
  // Constant while the array is in the table: an array that is given away keeps its type.
  static size_t BytesOf(const Array& array) {
    return kSmallest - sizeof(ShardRef) +
           sizeof(ShardRef) * static_cast<size_t>(array.spec.sharding.num_shards()) +
           array.error.message().size();
  }

  ArrayTable() = default;
  explicit ArrayTable(size_t* total) : count_(total) {}

  // Does nothing if the handle is in the table.
  void emplace(uint64_t handle, Array array) {
    const size_t before = map_.size();
    const auto at = map_.try_emplace(map_.end(), handle);  // often it is the highest handle
    if (map_.size() == before) return;
    count_.Add(BytesOf(array));
    at->second = std::make_unique<Array>(std::move(array));
  }
  // The handle must be in the table.
  Array Take(uint64_t handle) { return Take(map_.find(handle)); }
  Array TakeFirst() { return Take(map_.begin()); }

  // nullptr: the handle is not in the table.
  Array* find(uint64_t handle) {
    const auto at = map_.find(handle);
    return at == map_.end() ? nullptr : at->second.get();
  }
  Array& at(uint64_t handle) { return *map_.at(handle); }
  bool contains(uint64_t handle) const { return map_.contains(handle); }
  size_t size() const { return map_.size(); }
  bool empty() const { return map_.empty(); }
  Map::const_iterator begin() const { return map_.begin(); }
  Map::const_iterator end() const { return map_.end(); }
  Map::const_iterator upper_bound(uint64_t handle) const { return map_.upper_bound(handle); }

  // The bytes of all arrays in the table.
  size_t bytes() const { return count_.bytes(); }

 private:
  Array Take(Map::iterator at) {
    if (!Planted(Bug::kForgetArrayBytes)) count_.Remove(BytesOf(*at->second));
    Array array = std::move(*at->second);
    map_.erase(at);
    return array;
  }

  Map map_;
  RecordCount count_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ARRAY_TABLE_H_
