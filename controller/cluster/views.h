// SPDX-License-Identifier: Apache-2.0
// The shards that clients' handles refer to. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_VIEWS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_VIEWS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/cluster.h"
#include "graph/plan.h"

namespace fairway {

// Counts the views of groups, and marks shards as deleted. Whatever makes an array holds its view;
// whoever gives an array up drops it.
//
// Invariant (CountViews, CheckGroups): Group::handle_refs is the number of views that refer to the
// group: of arrays, programs, runs and requests, and of the stored group that it is placed for.
class Cluster::Views {
 public:
  explicit Views(State& state) : s(state) {}

  // Adds the view's references; Drop removes them.
  void Hold(const Array& array);
  void Drop(const Array& array);
  void MarkDeleted(const ShardList& shards);
  bool IsDeleted(const Array& array) const;
  // Treats the handle as deleted, but no other view of its shards.
  void GiveAway(Array& array);
  // FAILED_PRECONDITION: the array is deleted or donated.
  absl::Status CheckUsable(const Array& array, uint64_t handle) const;

 private:
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_VIEWS_H_
