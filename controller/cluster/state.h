// SPDX-License-Identifier: Apache-2.0
// The state of the controller's core. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_STATE_H_
#define FAIRWAY_CONTROLLER_CLUSTER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/commands.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/group.h"
#include "controller/cluster/groups.h"
#include "controller/cluster/id_table.h"
#include "controller/cluster/launches.h"
#include "controller/cluster/ledger.h"
#include "controller/cluster/losses.h"
#include "controller/cluster/memory_room.h"
#include "controller/cluster/node.h"
#include "controller/cluster/nodes.h"
#include "controller/cluster/operation.h"
#include "controller/cluster/program_runs.h"
#include "controller/cluster/registry.h"
#include "controller/cluster/remaking.h"
#include "controller/cluster/requests.h"
#include "controller/cluster/session.h"
#include "controller/cluster/stored_groups.h"
#include "controller/cluster/transfers.h"
#include "controller/cluster/turns.h"
#include "controller/cluster/uploads.h"
#include "controller/cluster/views.h"
#include "controller/cluster/watches.h"
#include "controller/cluster/work.h"
#include "scheduler/admission.h"

namespace fairway {

// The core's tables, look-ups in them, and its owners. Owners that know nothing of the others are
// bases, whose members are used by name alone. The others are members with a reference to the
// state, through which they call each other: the header of each says what it owns and who calls it.
// What only one owner uses lies there; a table that several use lies here.
struct Cluster::State : Registry, Ledger, Turns {
  State(ClusterOptions o, ClusterActions* a)
      : Ledger(o.record_memory, o.memory), options(o), actions(a) {}

  const ClusterOptions options;
  ClusterActions* const actions;
  Admission admission;
  std::map<SessionId, Session> sessions;
  std::unordered_map<SessionId, Holdings> holdings;  // also of sessions that have ended
  GroupTable all_groups;
  IdTable<NodeId, Node> all_nodes;
  std::map<ExecutableId, ExecutableSpec> executables;
  std::map<ExecutableId, CodeLayout> layouts;  // of each executable
  // Queued receives that wait until the executors of their sources are back.
  std::set<NodeId> parked;
  uint64_t next_session = 1;
  SharedVector<VirtualDevice> latest_devices;  // of the session that was opened last
  uint64_t executions = 0;                     // calls, for ClusterCounts

  Commands commands{*this};
  Groups groups{*this};
  Launches launches{*this};
  Losses losses{*this};
  MemoryRoom memory{*this};
  Nodes nodes{*this};
  ProgramRuns programs{*this};
  Remaking remaking{*this};
  Requests requests{*this};
  StoredGroups stored_groups{*this};
  Transfers transfers{*this};
  Uploads uploads{*this};
  Views views{*this};
  Watches watches{*this};
  Work work{*this};

  // For the session's next operation: first finishes the one under way.
  absl::StatusOr<Session*> FindSession(SessionId id);
  // The same, but leaves a busy session busy: for operations without arrays.
  absl::StatusOr<Session*> LookAt(SessionId id);
  // Also finds a session that has ended while something of it is left. nullptr: there is none.
  Session* RestOf(SessionId id);
  absl::StatusOr<Array*> FindArray(SessionId session, uint64_t handle);
  absl::StatusOr<Array*> FindIn(Session& session, uint64_t handle);
  // A fresh result handle: `asked`, or one of the server's range if it is 0.
  absl::StatusOr<uint64_t> NewHandle(Session& session, uint64_t asked);
  // `count` handles, all different. `asked`: `count` of them or none.
  absl::StatusOr<std::vector<uint64_t>> NewHandles(Session& session,
                                                   const std::vector<uint64_t>& asked,
                                                   size_t count);
  // nullptr: there is none, or it is over.
  Group* FindGroup(GroupId id);
  Node* FindNode(NodeId id);
  // See Sessions::IslandOf.
  absl::StatusOr<IslandId> IslandOf(const Session& session,
                                    const std::vector<int32_t>& devices) const;
  // What the session has; makes the record if there is none.
  Holdings& HoldingsOf(SessionId session);
  // The session's stake on the island; makes it if it is new.
  Stake& StakeOf(SessionId session, Holdings& has, IslandId island);
  // A call goes on in slices: it holds these islands until it is over.
  void Hold(SessionId session, CallHold& call, const std::vector<IslandId>& on);
  // Forgets the holdings of a session that has ended, once nothing is left of them.
  void ForgetHoldings(SessionId session);
  // Whether something may still ask for the island's record.
  bool Needed(const Island& island) const;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STATE_H_
