// SPDX-License-Identifier: Apache-2.0
// The controller's core: sessions, the array table, the dataflow graph of futures, admission and
// the islands' sequencers behind one set of client operations (docs/architecture.md, "The rooms of
// the core").
//
// A pure state machine: operations and events in, actions out; no thread, no socket, no clock, no
// random source. Every operation returns at once; what must wait is a node of the graph.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_H_
#define FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/actions.h"
#include "controller/cluster/options.h"

namespace fairway {

struct Array;          // array_table.h
struct BoundProgram;   // program_records.h
struct PlacedProgram;  // program_records.h

// Handles are the session's own numbers. Clients make theirs below kFirstServerHandle; 0 is never a
// handle.
inline constexpr uint64_t kFirstServerHandle = uint64_t{1} << 60;

// IFRT ArrayCopySemantics.
enum class CopySemantics : uint8_t { kAlwaysCopy, kReuseInput, kDonateInput };

// The core. Its operations belong to owners, each with a header that says what they do; all of them
// work on one state and follow each other: the answers to one operation are handed over
// (ClusterActions) when it is over, and may begin the next one.
//
// Loop-confined: the loop that owns it calls all of it.
class Cluster {
 public:
  class Fleet;        // fleet.h: executors and islands
  class Sessions;     // sessions.h
  class Arrays;       // arrays.h
  class Executables;  // executables.h: compiled code
  class Programs;     // programs.h: many computations that run as one
  class Inspection;   // inspection.h: for tests and metrics

  // `actions` outlives it.
  Cluster(ClusterOptions options, ClusterActions* actions);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Fleet& fleet();
  const Fleet& fleet() const;
  Sessions& sessions();
  const Sessions& sessions() const;
  Arrays& arrays();
  const Arrays& arrays() const;
  Executables& executables();
  const Executables& executables() const;
  Programs& programs();
  const Programs& programs() const;
  const Inspection& inspection() const;

  // The answers to requests that take several turns: handles of results, or why it was refused.
  using Done = std::function<void(absl::StatusOr<std::vector<uint64_t>>)>;
  using Ended = std::function<void(absl::Status)>;
  // Each handle as it is made or given up.
  using Each = std::function<void(uint64_t)>;

  // Does some of the work that is left (see ClusterActions::WantTurn).
  void Turn();
  // Time passes; call it a few times a second. What waits for memory fails when it has made no
  // progress for options.admission_grace_ms (rule B2): frees may be on their way.
  void Tick(int64_t now_ms);
  // Units of work that all operations, events and turns have taken so far: one for each node,
  // group, handle, piece or command that was touched, about a microsecond.
  uint64_t units() const;

 private:
  struct State;
  class Operation;
  struct Owners;
  // Parts of the state, each with a header of its name.
  class Losses;
  class MemoryRoom;
  class ProgramRuns;
  class Requests;
  class Remaking;
  class StoredGroups;
  class Transfers;

  std::unique_ptr<State> state_;
  std::unique_ptr<Owners> owners_;  // of operations on *state_
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_H_
