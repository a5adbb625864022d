// SPDX-License-Identifier: Apache-2.0
// Executors and islands. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_REGISTRY_H_
#define FAIRWAY_CONTROLLER_CLUSTER_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/planted.h"
#include "base/status.h"
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
    size_t participant = 0;  // of the node, which this executor is
  };
  std::map<uint64_t, Open> open;  // prepared and not reported as ended, by seq
  struct Install {
    bool installed = false;
    struct Waiter {
      NodeId node;
      uint64_t attempt = 0;  // of the node; another one: it was taken back, and waits anew
    };
    std::vector<Waiter> waiters;
  };
  std::map<ExecutableId, Install> installs;
  std::map<ExecutableId, int> dropped;  // before the answer to their installation has come
  std::vector<GroupId> frees;           // to go with the next command
  // Of a lost incarnation: sessions that have not heard of it. Until all have, its successor gets
  // nothing.
  size_t telling = 0;
  std::map<uint64_t, Open> lost_open;
  std::vector<ExecutableId> lost_installs;
  bool serves() const { return up && (telling == 0 || Planted(Bug::kServeTooSoon)); }
};

struct Island {
  IslandId id;
  std::string name;
  uint64_t epoch = 0;
  std::vector<ExecutorId> executors;
  DeviceId first_device;  // the lowest of them
  // That were opened while it was up, and are not over.
  size_t sessions = 0;
  bool forgotten = false;  // found by sessions that know it, and not by name
  Sequencer sequencer{SequencerOptions{}};
  std::set<NodeId> prepared;  // its prepared launches and receives
  // Sessions that have not heard of a loss there, each counted once for each. Until all have,
  // nothing is prepared or launched.
  size_t telling = 0;
  // Prepared nodes that are taken back to make room for an older one, the next one last. Until all
  // are, nothing is admitted or launched.
  struct Victim {
    NodeId node;
    uint64_t attempt = 0;  // of it
  };
  std::vector<Victim> victims;
  // Set while it is down for good: the error of what comes to it.
  absl::Status gone;
  // The first node of a session that waits for memory there.
  struct Stuck {
    NodeId node;
    NodeId before;         // nodes below it were there when it became the first
    int64_t since = 0;     // its grace runs from here; begins anew with progress
    uint64_t through = 0;  // of Node::submitted: what came later waits for a grace of its own
    int64_t lacks = 0;     // bytes; progress is a `step` less
    int64_t step = 1;
  };
  std::map<SessionId, Stuck> stuck;
  size_t large = 0;       // nodes there that are made of many pieces
  uint64_t moves = 0;     // grows when memory is given back or a node gets some
  uint64_t given_up = 0;  // nodes that failed because they would never have fitted
  NodeId last_given_up;   // of these
  DeviceId given_up_for;  // the device on which it did not fit
};

// The registry of executors and islands: the one place that knows which there are, and whose device
// is whose. It sends nothing and follows nothing up: what a loss means is for others (losses.h).
//
// Invariants (CheckRegistry): each executor is listed by its island, once; each device number from
// 1 to next_device - 1 belongs to one executor or is free; device_owner says to which.
struct Registry {
  std::map<ExecutorId, Executor> executors;
  std::map<IslandId, Island> islands;
  uint32_t next_executor = 1;
  uint32_t next_island = 1;
  uint32_t next_device = 1;
  std::multimap<uint32_t, uint32_t> free_devices;   // of forgotten executors: how many, the first
  std::vector<Executor*> device_owner = {nullptr};  // by DeviceId
  size_t most_islands = 0;                          // that there were at one time

  Executor* ExecutorOf(DeviceId device) { return device_owner[device.value]; }
  const Executor* ExecutorOf(DeviceId device) const { return device_owner[device.value]; }
  // Whether all executors that it is to have are up.
  bool IslandUp(const Island& island) const;
  // Numbers for an executor's devices: those of one that was forgotten, or new ones.
  DeviceId NewDevices(uint32_t count);
  absl::Status CheckRegistry() const;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_REGISTRY_H_
