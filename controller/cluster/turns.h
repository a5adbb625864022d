// SPDX-License-Identifier: Apache-2.0
// The work that is left, and a count of the work done, in units. Private to this folder.
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

// Bounded turns (docs/design/0058-bounded-turns.md): the consequences of an event are put here, so
// that nothing recurses and no turn is long. work.cc does the work.
//
// Invariants: `busy` has each session whose worklist is queued, once; no answer is handed over
// while an operation is under way (`reentered` stays false).
struct Turns {
  std::unordered_map<SessionId, Worklist> work;
  std::deque<SessionId> busy;   // sessions with work, in turn
  size_t slices_left = 0;       // how many of them get a slice before islands are pumped
  std::set<IslandId> to_pump;   // islands that may admit or launch something
  std::deque<Answer> answers;   // of the operation under way
  uint64_t units = 0;           // work done since the start
  uint64_t most_units = 0;      // the most work of one operation or turn
  bool turn_wanted = false;     // Turn will be called: the rest waits for it
  uint64_t operation_ends = 0;  // the unit count at which the operation leaves the rest to a turn
  bool operating = false;       // an operation is under way: no other may begin
  bool handing_over = false;    // answers are being handed over
  bool reentered = false;       // a bug: an operation began while another was under way

  void Charge(uint64_t more) { units += more; }
  void ChargeShards(size_t shards) { units += 1 + shards / kShardsPerUnit; }
  void ChargeNamed(size_t shards) { units += shards / kNamedShardsPerUnit; }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_TURNS_H_
