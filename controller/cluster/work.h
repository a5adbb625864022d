// SPDX-License-Identifier: Apache-2.0
// Does the work that operations and events leave, in turns. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_WORK_H_
#define FAIRWAY_CONTROLLER_CLUSTER_WORK_H_

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/registry.h"
#include "controller/cluster/worklist.h"

namespace fairway {

// Does what lies in the worklists (worklist.h), a slice of each busy session after the other, and
// then lets the islands admit and launch what may go (docs/design/0058-bounded-turns.md). Hands
// over the answers that were made meanwhile. Operations go on with the work when they have changed
// something; Cluster::Turn does the rest.
//
// Invariants: once GoOn has returned, work is left only if a turn is wanted. In a session, what
// follows from earlier events comes before anything new (DoItem).
class Cluster::Work {
 public:
  explicit Work(State& state) : s(state) {}

  // Does open work, unless a turn is to come anyway: an operation does not pay for what others
  // left.
  void GoOn();
  // The turn that was wanted.
  void Turn();
  // Does the next item of the session's worklist, which is not empty.
  void DoItem(SessionId session, Worklist& list);

  // Answers a fetch at the end of the operation.
  void Fetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes);
  // The operation is over: hands its answers over.
  void HandOver();

 private:
  bool AnyLeft() const;
  // Does open work, until none is left or `units` reaches `until`.
  void Do(uint64_t until);
  // One slice of the session, which ends with the turn at the latest.
  void DoSlice(SessionId session, uint64_t turn_ends);
  // Tells some of those that wait for code. Returns whether all have been told.
  bool TellLoaded(Loaded& loaded);
  void TellEnded(Told told);
  // Gives up some more of what an ended session held.
  void GoOnClosing(Worklist& list);
  // Admits and launches on the island what may go, until `units` reaches `until`.
  void Pump(Island& island, uint64_t until);
  // Launches what its turn has come to.
  void Grants(Island& island, uint64_t until);

  size_t slices_left_ = 0;     // how many sessions get a slice before islands are pumped
  bool turn_wanted_ = false;   // Turn will be called: the rest waits for it
  bool handing_over_ = false;  // answers are being handed over
  State& s;                    // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_WORK_H_
