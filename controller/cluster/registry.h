// SPDX-License-Identifier: Apache-2.0
// Executors and islands. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_REGISTRY_H_
#define FAIRWAY_CONTROLLER_CLUSTER_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include "base/ids.h"
#include "base/planted.h"
#include "base/status.h"
#include "controller/cluster/status.h"
#include "controller/cluster/worklist.h"
#include "core/device.h"
#include "graph/plan.h"
#include "scheduler/sequencer.h"

namespace fairway {

struct Executor {
  ExecutorId id;
  IslandId island;
  ExecutorSpec spec;
  bool up = false;
  DeviceId first_device;
  std::string last_error;
  uint64_t next_seq = 1;
  struct Open {
    NodeId node;
    size_t participant = 0;  // this executor's index among the node's
  };
  absl::btree_map<uint64_t, Open> open;  // by seq: prepared, and not reported as ended
  struct Install {
    bool installed = false;
    std::map<SessionId, std::vector<Loaded::Waiter>> waiters;
  };
  std::map<ExecutableId, Install> installs;
  std::map<ExecutableId, int> dropped;  // drops before the answer to an installation came
  std::vector<GroupId> frees;           // sent with the next command
  // Sessions that have not been told all of an incarnation's loss. Until this is 0, its successor
  // gets no commands.
  size_t telling = 0;
  absl::btree_map<uint64_t, Open> lost_open;
  std::vector<ExecutableId> lost_installs;
  bool serves() const { return up && (telling == 0 || Planted(Bug::kServeTooSoon)); }
};

struct Island {
  IslandId id;
  std::string name;
  uint64_t epoch = 0;
  std::vector<ExecutorId> executors;
  size_t up = 0;          // of `executors`
  DeviceId first_device;  // the lowest of its devices
  // Sessions that were opened while it was up, and have not ended.
  size_t sessions = 0;
  // Those that have something there or call something there (Stake::Holds), also ended ones.
  absl::btree_set<SessionId> holders;
  bool forgotten = false;  // sessions that know it still find it, but its name does not lead to it
  Sequencer sequencer{SequencerOptions{}};
  absl::btree_set<NodeId> prepared;  // its prepared launches and receives
  // Sessions that have not been told all of a loss there, each counted once per loss. Until this is
  // 0, nothing is prepared or launched.
  size_t telling = 0;
  // Prepared nodes to be taken back to make room for an older one; the next one is the last. Until
  // all are, nothing is admitted or launched.
  struct Victim {
    NodeId node;
    uint64_t attempt = 0;  // of the node
  };
  std::vector<Victim> victims;
  // The search for victims for `node`, the oldest that waits for memory: it goes through
  // `prepared`, the youngest first, some at a time. Until it is over nothing is admitted or
  // launched either.
  struct Search {
    NodeId node;                          // 0: there is no search
    NodeId below;                         // nodes from here on were looked at
    std::map<DeviceId, int64_t> missing;  // what the victims so far do not have
    std::vector<Victim> victims;          // so far
    bool for_tick = false;                // a tick asks for its end
    bool in_vain = false;                 // it is over, for a tick: there are too few
    uint64_t round = 0;                   // when that was found (MemoryRoom::rounds_)
    bool under_way() const { return node && !in_vain; }
  };
  Search search;
  // Prepared launches of which the executors have not been told all that they read and make; the
  // first one goes on.
  struct Preparing {
    NodeId node;
    uint64_t attempt = 0;  // of the node; if it differs, the node was taken back
    size_t participant = 0;
    size_t value = 0;  // the participant knows the arguments and results before it
  };
  std::deque<Preparing> preparing;
  // Set while it is down for good: the error of work that comes to it.
  absl::Status gone;
  // The first node of a session that waits for memory there.
  struct Stuck {
    NodeId node;
    NodeId before;         // nodes below it were there when `node` became the first
    int64_t since = 0;     // the grace runs from here; progress starts it anew
    uint64_t through = 0;  // of Node::submitted: nodes above it wait for a grace of their own
    int64_t lacks = 0;     // missing bytes; `step` fewer count as progress
    int64_t step = 1;
    // Other nodes are stuck with it: they fail in the next tick, unless one has begun, or memory
    // was given back (`moves`), since the last of them failed. They wait for the same device.
    bool more = false;
    DeviceId device;
    uint64_t moves = 0;
    uint64_t judged = 0;  // the round (MemoryRoom::rounds_) in which it got its last grace
    uint64_t seen = 0;    // the last of stuck_looks in which it waited
  };
  std::map<SessionId, Stuck> stuck;
  uint64_t stuck_looks = 0;  // how often ticks have begun to look at all that wait there
  // The node for which others were last taken back. It does not wait for room for its commands,
  // which the commands that take them back need, too: the others would begin again before it.
  NodeId room_made_for;
  // Since when a node has waited for room for its commands (Commands::Tick).
  std::map<NodeId, int64_t> held_since;
  size_t large = 0;       // nodes there with many pieces or values (Node::large)
  uint64_t moves = 0;     // grows when memory is given back, and when a node gets some
  uint64_t given_up = 0;  // nodes that failed because they would never have fitted
  NodeId last_given_up;   // the last of these
  DeviceId given_up_for;  // the device on which it did not fit
};

// The registry of executors and islands: the one place that knows which there are, and which device
// belongs to whom. It sends nothing, and leaves the consequences of a loss to others (losses.h).
//
// Invariants (CheckRegistry): each executor is listed by its island, once; names lead to executors
// and islands unless these are forgotten. Each device number from
// 1 to next_device - 1 is free, or belongs to the one executor that device_owner names.
struct Registry {
  std::map<ExecutorId, Executor> executors;
  std::map<IslandId, Island> islands;
  // Of what is not forgotten.
  std::unordered_map<std::string, ExecutorId> executor_of_worker;
  std::map<std::string, IslandId> island_by_name;
  // Those that are up: new sessions see the open ones, and not the cordoned ones (UpdateOpen).
  std::map<std::string, IslandId> open_islands, closed_islands;
  // By the island's name, whether it is known or not: they outlive its record. Invariant: no
  // session has anything in the memory of a drained island.
  std::map<std::string, Cordon> cordons;
  uint64_t arrivals = 0;  // registrations of executors: their specs stay until there is one more
  uint32_t next_executor = 1;
  uint32_t next_island = 1;
  uint32_t next_device = 1;
  std::multimap<uint32_t, uint32_t> free_devices;   // of forgotten executors: number -> the first
  std::vector<Executor*> device_owner = {nullptr};  // by DeviceId
  size_t most_islands = 0;                          // the most that there were at one time

  Executor* ExecutorOf(DeviceId device) { return device_owner[device.value]; }
  const Executor* ExecutorOf(DeviceId device) const { return device_owner[device.value]; }
  // Whether all executors that the island is to have are up.
  bool IslandUp(const Island& island) const;
  // Whether all of its executors serve.
  bool AllServe(IslandId island) const {
    const Island& of = islands.at(island);
    return IslandUp(of) && of.telling == 0;
  }
  // nullptr: it takes new sessions.
  const Cordon* CordonOf(const Island& island) const;
  // To be called when it has come up or gone down, was cordoned, uncordoned or forgotten.
  void UpdateOpen(const Island& island);
  // Whether there is an island that a new session sees; else why not.
  absl::Status AnyOpen() const;
  // What work that comes to the island gets, if it is drained; OK: it is not.
  absl::Status Drained(const Island& island) const;
  // The same, and if it is forgotten.
  absl::Status TakesWork(const Island& island) const;
  // For messages: "island i0 (worker w0)".
  std::string Where(IslandId island) const;
  // Finds numbers for an executor's devices: those of a forgotten one, or new ones.
  DeviceId NewDevices(uint32_t count);
  absl::Status CheckRegistry() const;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_REGISTRY_H_
