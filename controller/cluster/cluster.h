// SPDX-License-Identifier: Apache-2.0
// The controller's core: sessions, the array table, the dataflow graph of futures, admission and
// the islands' sequencers behind one set of client operations (docs/architecture.md, "The rooms of
// the core").
//
// A pure state machine: operations and events in, actions out; no thread, no socket, no clock, no
// random source. Every operation returns at once; anything that must wait is a node of the graph.
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

// A handle is the session's own number. Clients choose theirs below kFirstServerHandle; 0 is never
// a handle.
inline constexpr uint64_t kFirstServerHandle = uint64_t{1} << 60;

// IFRT ArrayCopySemantics.
enum class CopySemantics : uint8_t { kAlwaysCopy, kReuseInput, kDonateInput };

// The core. Its operations belong to owners, each with a header that says what they do. All owners
// work on one state. The answers to an operation are handed over (SessionSink) once it is over,
// and may begin the next operation.
//
// Loop-confined: only the loop that owns it calls it.
class Cluster {
 public:
  class Fleet;        // fleet.h: executors and islands
  class Sessions;     // sessions.h
  class Arrays;       // arrays.h
  class Executables;  // executables.h: compiled code
  class Programs;     // programs.h: many computations that run as one
  class Inspection;   // inspection.h: for tests and metrics
  class Listings;     // listings.h: what sessions have, for those who look

  // `actions` must outlive it.
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
  const Listings& listings() const;

  // The answer to a request that takes several turns: handles of results, or why it was refused.
  using Done = std::function<void(absl::StatusOr<std::vector<uint64_t>>)>;
  using Ended = std::function<void(absl::Status)>;
  // Called with each handle as it is made or given up.
  using Each = std::function<void(uint64_t)>;

  // Does some of the work that is left (see ClusterActions::WantTurn).
  void Turn();
  // Time passes; called a few times a second. A node that waits for memory fails after
  // options.admission_grace_ms without progress (rule B2), since frees may be on their way.
  void Tick(int64_t now_ms);
  // Units of work that all operations, events and turns have taken so far. One unit is about a
  // microsecond: one for each node, group, handle, piece or command that was touched.
  uint64_t units() const;

 private:
  struct State;
  class Operation;
  struct Owners;
  // Parts of the state, each with a header of its name.
  class Commands;
  class Groups;
  class Launches;
  class LiveNodes;
  class Losses;
  class MemoryRoom;
  class Nodes;
  class ProgramRuns;
  class Remaking;
  class Requests;
  class StoredGroups;
  class Transfers;
  class Uploads;
  class Views;
  class Watches;
  class Work;

  std::unique_ptr<State> state_;
  std::unique_ptr<Owners> owners_;  // operate on *state_
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_CLUSTER_H_
