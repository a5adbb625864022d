// SPDX-License-Identifier: Apache-2.0
// What is left to do, and what was done, in units. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_TURNS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <unordered_map>

#include "base/ids.h"
#include "controller/cluster/work.h"

namespace fairway {

// Bounded turns (docs/design/0058-bounded-turns.md): work that an event makes necessary is put
// here, so that nothing recurses and no turn is long; work.cc does it.
//
// Invariants: `busy` has each session once whose worklist is queued; no answer is handed over while
// an operation is under way (`reentered` stays false).
struct Turns {
  std::unordered_map<SessionId, Worklist> work;
  std::deque<SessionId> busy;   // those that have some, in turn
  size_t slices_left = 0;       // of them, those that have a slice before islands are looked at
  std::set<IslandId> to_pump;   // islands where something may be admitted or launched
  std::deque<Answer> answers;   // of the operation that is under way
  uint64_t units = 0;           // of work, since the start
  uint64_t most_units = 0;      // of one operation or turn
  bool turn_wanted = false;     // Turn is to come: what is left waits for it
  uint64_t operation_ends = 0;  // the units at which the operation leaves what follows to a turn
  bool operating = false;       // an operation is under way: none may begin
  bool handing_over = false;    // answers are on their way
  bool reentered = false;       // an operation began while another one was under way: a bug

  void Charge(uint64_t more) { units += more; }
  void ChargeShards(size_t shards) { units += 1 + shards / kShardsPerUnit; }
  void ChargeNamed(size_t shards) { units += shards / kNamedShardsPerUnit; }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_TURNS_H_
