// SPDX-License-Identifier: Apache-2.0
// The work that is left, and a count of the work done, in units. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_TURNS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/worklist.h"

namespace fairway {

// Bounded turns (docs/design/0058-bounded-turns.md): the consequences of an event are put here, so
// that nothing recurses and no turn is long. Work (work.h) does it.
//
// Invariants: `busy` has each session whose worklist is queued, once; no answer is handed over
// while an operation is under way (`reentered` stays false).
struct Turns {
  std::unordered_map<SessionId, Worklist> worklists;
  std::deque<SessionId> busy;   // sessions with work, in turn
  std::set<IslandId> to_pump;   // islands that may admit or launch something
  std::deque<Answer> answers;   // of the operation under way
  uint64_t units = 0;           // work done since the start
  uint64_t most_units = 0;      // the most work of one operation or turn
  uint64_t operation_ends = 0;  // the unit count at which the operation leaves the rest to a turn
  bool operating = false;       // an operation is under way: no other may begin
  bool reentered = false;       // a bug: an operation began while another was under way

  // The worklist of the session, which is in line for a turn.
  Worklist& WorkOf(SessionId session) {
    Worklist& list = worklists[session];
    if (!std::exchange(list.queued, true)) busy.push_back(session);
    return list;
  }
  // Answers a watch at the end of the operation.
  void Answered(SessionId session, uint64_t token, absl::Status status) {
    answers.push_back({session, Answer::Watched{token, std::move(status)}});
  }
  void Charge(uint64_t more) { units += more; }
  void ChargeShards(size_t shards) { units += 1 + shards / kShardsPerUnit; }
  void ChargeNamed(size_t shards) { units += shards / kNamedShardsPerUnit; }
  void ChargeEnds(size_t ends) { units += ends / kEndsPerUnit; }
  void ChargeBytes(size_t bytes) { units += bytes / kBytesPerUnit; }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_TURNS_H_
