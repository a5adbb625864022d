// SPDX-License-Identifier: Apache-2.0
// The handles that a request gives its results. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_RESULT_HANDLES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_RESULT_HANDLES_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <absl/container/btree_set.h>

#include "base/planted.h"
#include "base/status.h"

namespace fairway {

// Those that were asked for, or fresh ones. Requests::AddHandle adds them one by one.
class ResultHandles {
 public:
  // `asked` has a handle per result, or is empty.
  explicit ResultHandles(std::vector<uint64_t> asked) : asked_(std::move(asked)) {}
  absl::Status CheckCount(size_t results) const {
    if (asked_.empty() || asked_.size() == results) return absl::OkStatus();
    return InvalidArgument("{} result handles for {} arrays", asked_.size(), results);
  }
  bool asked() const { return !asked_.empty(); }
  // The handle that was asked for the next result, or 0.
  uint64_t next_asked() const { return asked_.empty() ? 0 : asked_[handles_.size()]; }
  // Makes room for `results` handles, so that Add does not move the earlier ones.
  void Reserve(size_t results) { handles_.reserve(results); }
  // ALREADY_EXISTS: it was given twice.
  absl::Status Add(uint64_t handle) {
    if (asked_.size() > 1 && next_asked() != 0 && !fresh_.insert(handle).second &&
        !Planted(Bug::kOneHandleForTwo))
      return Error(absl::StatusCode::kAlreadyExists, "handle {} is given for two results", handle);
    handles_.push_back(handle);
    return absl::OkStatus();
  }
  size_t size() const { return handles_.size(); }
  uint64_t operator[](size_t i) const { return handles_[i]; }
  const std::vector<uint64_t>& all() const { return handles_; }
  // Forgets the note that Add made of handle `i`.
  void Used(size_t i) { fresh_.erase(handles_[i]); }
  // Frees a part of its memory. Returns whether nothing is left.
  bool GiveUp() {
    constexpr int kAtOnce = 16;
    for (int i = 0; i < kAtOnce && !fresh_.empty(); ++i) fresh_.erase(fresh_.begin());
    return fresh_.empty();
  }
  std::vector<uint64_t> Take() { return std::move(handles_); }

 private:
  const std::vector<uint64_t> asked_;
  std::vector<uint64_t> handles_;
  absl::btree_set<uint64_t> fresh_;  // the asked-for handles, if there are several
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_RESULT_HANDLES_H_
