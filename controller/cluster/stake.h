// SPDX-License-Identifier: Apache-2.0
// What sessions have on islands, and which islands they hold. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_STAKE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_STAKE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/container/btree_set.h>

#include "base/block_vector.h"
#include "base/ids.h"
#include "base/planted.h"
#include "base/shared_vector.h"
#include "controller/cluster/code_layout.h"

namespace fairway {

struct Group;

// The nodes and groups of a session on one island.
struct Stake {
  size_t nodes = 0;         // nodes on the island that have not ended
  size_t calls = 0;         // that are being made in slices, and compute there (CallHold)
  Group* groups = nullptr;  // the first of the list
  Group* walk = nullptr;    // the next one to be told of a loss
  // The bytes and shards accounted for, by device from the island's first one on. Invariant: those
  // of the charged groups.
  struct Held {
    int64_t bytes = 0;
    int shards = 0;
    friend bool operator==(const Held&, const Held&) = default;
  };
  uint32_t first_device = 0;
  BlockVector<Held> held;
  // The charged groups, and their bytes: the sum of `held`.
  size_t arrays = 0;
  int64_t bytes = 0;
  // Whether the session keeps the island from being drained.
  bool Holds() const {
    return nodes > 0 || arrays > 0 || (calls > 0 && !Planted(Bug::kDrainForgetsCalls));
  }
  // Adds one to `nodes`, `arrays` or `calls`, or takes one away. Invariant: `holders` has the
  // sessions that hold the island.
  void Count(size_t Stake::*what, bool more) {
    const bool held = Holds();
    this->*what += more ? 1 : -1;
    if (held == Holds()) return;
    if (held) {
      holders->erase(session);
    } else {
      holders->insert(session);
    }
  }
  SessionId session;
  absl::btree_set<SessionId>* holders = nullptr;  // Island::holders
  // The lists of the last group there that was put, copied or resharded. The next one shares those
  // that are the same, so many arrays that lie alike hold them once.
  SharedVector<Place> places;
  SharedVector<MemoryNeed> room;  // of `places`
  SharedVector<int32_t> blob_of_shard;
};

// What a call that is being made in slices holds: the islands on which it computes, although it may
// have nothing there yet. They are held until this ends.
class CallHold {
 public:
  CallHold() = default;
  ~CallHold() {
    for (Stake* const stake : stakes_) stake->Count(&Stake::calls, false);
  }
  CallHold(const CallHold&) = delete;
  CallHold& operator=(const CallHold&) = delete;

  void Add(Stake& stake) {
    stake.Count(&Stake::calls, true);
    stakes_.push_back(&stake);  // it stays: Holdings with calls are not forgotten
  }
  const std::vector<Stake*>& stakes() const { return stakes_; }

 private:
  std::vector<Stake*> stakes_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STAKE_H_
