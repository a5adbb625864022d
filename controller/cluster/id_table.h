// SPDX-License-Identifier: Apache-2.0
// Records by id. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_ID_TABLE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_ID_TABLE_H_

#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>

namespace fairway {

// Records that keep their address, by their `id`. A tree, so that adding one moves a few dozen
// entries at most, however many there are (a hash table would be rehashed in one go). A record is
// asked for some twenty times, and ids are given in order, so the latest ones are found by the end
// of their id. A walk through many, in order, finds each behind the one before.
template <typename Id, typename Record>
class IdTable {
 public:
  using Map = absl::btree_map<Id, std::unique_ptr<Record>>;

  // nullptr: there is none.
  Record* Find(Id id) const {
    auto& [found_id, found] = found_[id.value % kFound];
    if (found_id == id) return found;
    auto it = walks_ ? std::next(walk_) : map_.end();
    if (it == map_.end() || it->first != id) it = map_.find(id);
    walks_ = it != map_.end();
    if (!walks_) return nullptr;
    walk_ = it;
    found_id = id;
    return found = it->second.get();
  }
  // Never nullptr: there must be one.
  Record* at(Id id) const { return Find(id); }
  // There must be none of this id.
  Record& Insert(std::unique_ptr<Record> record) {
    Record& made = *record;
    found_[made.id.value % kFound] = {made.id, &made};
    walks_ = false;
    map_.emplace_hint(map_.end(), made.id, std::move(record));
    return made;
  }
  // There must be one.
  std::unique_ptr<Record> Take(Id id) {
    found_[id.value % kFound] = {};
    walks_ = false;
    // Often it is the oldest.
    const auto it = map_.begin()->first == id ? map_.begin() : map_.find(id);
    std::unique_ptr<Record> record = std::move(it->second);
    map_.erase(it);
    return record;
  }

  size_t size() const { return map_.size(); }
  typename Map::const_iterator begin() const { return map_.begin(); }
  typename Map::const_iterator end() const { return map_.end(); }
  typename Map::const_iterator lower_bound(Id id) const { return map_.lower_bound(id); }

 private:
  static constexpr size_t kFound = 16384;

  Map map_;
  // Invariant: each has no id, or is that of a record of map_. The id stands here, so that a
  // look-up does not touch a record that it does not want.
  mutable std::vector<std::pair<Id, Record*>> found_ = std::vector<std::pair<Id, Record*>>(kFound);
  // Where the last record that `found_` did not have is. Valid while `walks_`: until map_ changes.
  mutable typename Map::const_iterator walk_;
  mutable bool walks_ = false;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ID_TABLE_H_
