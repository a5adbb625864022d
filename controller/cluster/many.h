// SPDX-License-Identifier: Apache-2.0
// Requests that name many arrays, or make one of many pieces: done a few items at a time, so that
// no turn is long. Private to this folder.
//
// A request is checked before it changes anything that its client sees: what cannot be done is
// refused whole. What it makes until then is in no table, so that nothing else finds it half made;
// from then on item after item is done and nothing can be refused any more.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_MANY_H_
#define FAIRWAY_CONTROLLER_CLUSTER_MANY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include <absl/container/btree_set.h>

#include "controller/cluster/state.h"

namespace fairway {

// Goes through its items once in each of its phases.
class Cluster::Requests::ManyRequest : public LongRequest {
 public:
  bool GoOn(Session& session) final;
  bool GiveUp() override { return true; }

 protected:
  ManyRequest(State& state, int phases) : s(state), phases_(phases) {}

  // How many items a phase has; asked when it has begun.
  virtual size_t Items(int phase) const = 0;
  // Does an item of a phase, or some of it: then `again` is to be set. An error refuses the
  // request.
  virtual absl::Status Do(Session& session, int phase, size_t item, bool& again) = 0;
  // An array of the client's.
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

// The handles for results: those asked for, or fresh ones.
class Cluster::Requests::ResultHandles {
 public:
  // `asked`: as many as there are results, or none.
  explicit ResultHandles(std::vector<uint64_t> asked) : asked_(std::move(asked)) {}
  absl::Status CheckCount(size_t results) const;
  // Has room for so many, so that Add moves none of those before.
  void Reserve(size_t results) { handles_.reserve(results); }
  // Makes sure of the next one. ALREADY_EXISTS: it is in use, or was given twice.
  absl::Status Add(State& s, Session& session);
  size_t size() const { return handles_.size(); }
  uint64_t operator[](size_t i) const { return handles_[i]; }
  // Forgets what Add keeps of it.
  void Used(size_t i) { fresh_.erase(handles_[i]); }
  // Forgets some of it all; whether nothing is left.
  bool GiveUp();
  std::vector<uint64_t> Take() { return std::move(handles_); }

 private:
  const std::vector<uint64_t> asked_;
  std::vector<uint64_t> handles_;
  absl::btree_set<uint64_t> fresh_;  // those asked for, when these are several
};

// Makes an array of each of several.
class Cluster::Requests::MakeRequest : public ManyRequest {
 public:
  bool GiveUp() override;

 protected:
  MakeRequest(State& state, std::vector<uint64_t> in, CopySemantics semantics,
              std::vector<uint64_t> out)
      : ManyRequest(state, 4),
        in_(std::move(in)),
        semantics_(semantics),
        handles_(std::move(out)) {}

  // What it is to become; INVALID_ARGUMENT if it cannot.
  virtual absl::StatusOr<ArraySpec> TargetOf(const Session& session, size_t item,
                                             const Array& source) = 0;
  // `source`, which is no error, as `target`: its shards and what makes them, in made_. `again`:
  // there is more to be done.
  virtual absl::StatusOr<Array> Make(Session& session, const Array& source, const ArraySpec& target,
                                     bool& again) = 0;
  // Takes what is donated from the source.
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
  absl::Status MakeOne(Session& session, size_t item, bool& again);
  // Puts what it has made into the tables, one node after the other, and then the array.
  void Commit(Session& session, size_t item, bool& again);

  const std::vector<uint64_t> in_;
  const CopySemantics semantics_;
  ResultHandles handles_;
  std::vector<Array*> sources_;  // of the session, which changes none meanwhile
  std::deque<Item> items_;       // of those that are not committed
  size_t committed_ = 0;         // of made_'s nodes
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_MANY_H_
