// SPDX-License-Identifier: Apache-2.0
// The shards of an array by position, in few bytes. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_SHARD_LIST_H_
#define FAIRWAY_CONTROLLER_CLUSTER_SHARD_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <vector>

#include <absl/container/inlined_vector.h>
#include <absl/types/span.h>

#include "graph/plan.h"

namespace fairway {

// A list of shards. Most arrays are all shards of one group, in order: such shards take 16 bytes,
// however many they are. In the worst case each takes as much.
class ShardList {
 public:
  // Shards of one group that follow each other: `shard`, `shard` + 1 and so on.
  struct Run {
    GroupId group;
    int32_t shard = 0;
    uint32_t end = 0;  // the position behind its last one
  };

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = ShardRef;
    using difference_type = std::ptrdiff_t;
    using pointer = const ShardRef*;
    using reference = ShardRef;

    Iterator(const Run* run, uint32_t at) : run_(run), begin_(at), at_(at) {}
    ShardRef operator*() const {
      return {run_->group, run_->shard + static_cast<int32_t>(at_ - begin_)};
    }
    Iterator& operator++() {
      if (++at_ == run_->end) {
        begin_ = at_;
        ++run_;
      }
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    const Run* run_;
    uint32_t begin_;  // the position of the run's first shard
    uint32_t at_;
  };

  ShardList() = default;
  ShardList(std::initializer_list<ShardRef> shards) {
    for (const ShardRef shard : shards) push_back(shard);
  }
  ShardList(const std::vector<ShardRef>& shards) {  // NOLINT(google-explicit-constructor)
    for (const ShardRef shard : shards) push_back(shard);
  }
  // All shards of a group that has so many.
  static ShardList AllOf(GroupId group, size_t shards) {
    ShardList list;
    if (shards > 0) list.runs_.push_back(Run{group, 0, static_cast<uint32_t>(shards)});
    return list;
  }

  size_t size() const { return runs_.empty() ? 0 : runs_.back().end; }
  bool empty() const { return runs_.empty(); }
  Iterator begin() const { return {runs_.data(), 0}; }
  Iterator end() const { return {nullptr, static_cast<uint32_t>(size())}; }
  // Looks for the run of the position: goes through a list by its iterators.
  ShardRef operator[](size_t position) const {
    const auto run = std::upper_bound(runs_.begin(), runs_.end(), position,
                                      [](size_t at, const Run& of) { return at < of.end; });
    const size_t begin = run == runs_.begin() ? 0 : std::prev(run)->end;
    return {run->group, run->shard + static_cast<int32_t>(position - begin)};
  }

  void clear() { runs_.clear(); }
  void push_back(ShardRef shard) {
    if (!runs_.empty()) {
      Run& last = runs_.back();
      const uint32_t begin = runs_.size() > 1 ? runs_[runs_.size() - 2].end : 0;
      if (last.group == shard.group &&
          int64_t{last.shard} + last.end - begin == int64_t{shard.shard}) {
        ++last.end;
        return;
      }
    }
    runs_.push_back(Run{shard.group, shard.shard, static_cast<uint32_t>(size()) + 1});
  }

  // The runs, each as long as it can be.
  absl::Span<const Run> runs() const { return runs_; }
  // Puts other groups, of as many shards, in the place of those of the runs.
  template <typename F>
  void Replace(F other) {
    for (Run& run : runs_) run.group = other(run.group);
  }

 private:
  absl::InlinedVector<Run, 1> runs_;
};
static_assert(sizeof(ShardList::Run) == sizeof(ShardRef));

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_SHARD_LIST_H_
