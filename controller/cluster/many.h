// SPDX-License-Identifier: Apache-2.0
// Requests that name many arrays, or make one of many pieces. They are done a few items at a time,
// so that no turn is long. Private to this folder.
//
// All checks come before any change that the client sees: a request that cannot be done is refused
// as a whole. Until then, the things that it makes are in no table, so nothing finds them half
// made. After that item after item is done, and nothing can be refused any more.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_MANY_H_
#define FAIRWAY_CONTROLLER_CLUSTER_MANY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "controller/cluster/result_handles.h"
#include "controller/cluster/state.h"

namespace fairway {

// Goes through all its items once in each of its phases.
class Cluster::Requests::ManyRequest : public LongRequest {
 public:
  bool GoOn(Session& session) final;
  bool GiveUp() override { return true; }

 protected:
  ManyRequest(State& state, int phases) : s(state), phases_(phases) {}

  // The number of items in a phase; asked once the phase has begun.
  virtual size_t Items(int phase) const = 0;
  // Does an item of a phase, or a part of the item; then it sets `again`. An error refuses the
  // request.
  virtual absl::Status Do(Session& session, int phase, size_t item, bool& again) = 0;
  // Finds an array of the client.
  absl::StatusOr<Array*> Find(Session& session, uint64_t handle) const {
    return s.FindIn(session, handle);
  }

  State& s;

 private:
  const int phases_;
  int phase_ = 0;
  size_t item_ = 0;
  bool refused_ = false;
};

// Makes an array from each of several.
class Cluster::Requests::MakeRequest : public ManyRequest {
 public:
  bool GiveUp() override;
  size_t made_bytes() const override { return made_.bytes.bytes(); }

 protected:
  MakeRequest(State& state, std::vector<uint64_t> in, CopySemantics semantics,
              std::vector<uint64_t> out)
      : ManyRequest(state, 4),
        made_(&state.record_bytes),
        in_(std::move(in)),
        semantics_(semantics),
        handles_(std::move(out)) {}

  // The array that the item is to become. INVALID_ARGUMENT: it cannot.
  virtual absl::StatusOr<ArraySpec> TargetOf(const Session& session, size_t item,
                                             const Array& source) = 0;
  // Makes `target` from `source`, which is no error array: its shards, and in made_ the nodes that
  // make them. Sets `again` if there is more to be done.
  virtual absl::StatusOr<Array> Make(Session& session, const Array& source, const ArraySpec& target,
                                     bool& again) = 0;
  // Marks the donated shards of `source`.
  virtual void Donate(Array& source, const Array& result) = 0;

  uint64_t in(size_t item) const { return in_[item]; }
  bool may_alias() const { return semantics_ != CopySemantics::kAlwaysCopy; }
  Making made_;

 private:
  struct Item {
    ArraySpec target;
    Array array;
    size_t nodes = 0;
  };
  size_t Items(int phase) const override;
  absl::Status Do(Session& session, int phase, size_t item, bool& again) override;
  absl::Status Check(Session& session, size_t item);
  void HoldIslandsOf(const Session& session, const ArraySpec& target);
  absl::Status MakeOne(Session& session, size_t item, bool& again);
  // Puts an item's nodes into the tables, one after the other, and then its array.
  void Commit(Session& session, size_t item, bool& again);

  const std::vector<uint64_t> in_;
  const CopySemantics semantics_;
  ResultHandles handles_;
  std::vector<Array*> sources_;  // of the session, which changes no array meanwhile
  std::deque<Item> items_;       // the items that are not committed yet
  size_t committed_ = 0;         // the nodes of made_ that are in the tables
  // Where the targets are. They are held: else a drain between two slices would end the new arrays,
  // and what was donated for them would be lost.
  std::set<IslandId> islands_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_MANY_H_
