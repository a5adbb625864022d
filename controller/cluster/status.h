// SPDX-License-Identifier: Apache-2.0
// The core's status, for status pages, metrics and messages. Plain values: copies, which any thread
// may hold.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_STATUS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_STATUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/device.h"
#include "graph/plan.h"

namespace fairway {

// Bytes in use on one device.
struct DeviceUsage {
  DeviceId device;
  IslandId island;
  ExecutorId executor;
  int32_t local_ordinal = 0;
  int64_t used = 0;
  int64_t limit = 0;  // 0: no limit
};

// An operator keeps new sessions from an island (docs/design/0083-cordon-and-drain.md).
struct Cordon {
  std::string by;  // "token 3 (operator)"
  std::chrono::sys_seconds since{};
  // A drain found that nobody has anything there. Work that comes to it fails.
  bool drained = false;
};

// What a session has on an island.
struct IslandHolder {
  SessionId session;
  std::string tenant = {};
  bool ended = false;     // its launched work runs to its end
  size_t arrays = 0;      // in the island's memory; those that share their bytes are one
  int64_t bytes = 0;      // of these, on all devices
  size_t running = 0;     // launches that executors have got
  size_t unfinished = 0;  // other nodes: they wait, or move data
};

// What keeps an island from being drained.
struct DrainProgress {
  bool cordoned = false;  // by this call
  bool drained = false;
  bool closed = false;  // drained by this call
  size_t holders = 0;   // sessions
  // Once Fleet::LookAtHolders has looked at all:
  std::vector<IslandHolder> most = {};  // those with most bytes there, the first ones
  size_t watching = 0;                  // open sessions that see the island and have nothing there

  // How far it has looked.
  struct Look {
    bool launches_done = false;
    NodeId next;  // the launches before it were looked at
    NodeId end;   // those from it on came after the look began; 0: not begun
    std::map<SessionId, size_t> running{};  // launches by session
    SessionId after;                        // the sessions up to it were looked at
    size_t holders = 0, open = 0;           // of these
  };
  Look look = {};
};

struct IslandStatus {
  IslandId id;
  std::string name;
  bool up = false;
  size_t executors_up = 0;
  size_t sessions = 0;  // opened while it was up, and not ended
  uint64_t epoch = 0;
  uint64_t gangs_launched = 0;
  size_t queued = 0;  // nodes that wait for memory
  size_t prepared = 0;
  size_t in_flight = 0;   // launched and not ended
  uint64_t given_up = 0;  // nodes that failed because they would never have fitted
  NodeId last_given_up;   // the last of these, and the device on which it did not fit
  DeviceId given_up_for;
  std::optional<Cordon> cordon = std::nullopt;
};

struct ExecutorStatus {
  ExecutorId id;
  IslandId island;
  ExecutorSpec spec;
  bool up = false;
  std::string last_error;  // why it was last lost
};

struct ClusterCounts {
  size_t sessions = 0;
  size_t arrays = 0;
  size_t groups = 0;
  size_t nodes = 0;  // that have not ended
  uint64_t nodes_made = 0;
  size_t executables = 0;
  uint64_t executions = 0;  // requests to run a computation or a program
  // Fetches answered from results that came with their node's end, or from stored uploads.
  uint64_t inline_hits = 0;
  size_t stored_bytes = 0;        // bytes of the stored uploads
  uint64_t executor_fetches = 0;  // fetches that went to an executor
  // Bytes of sessions' commands that executors have not reported to have.
  int64_t command_bytes = 0;
  uint64_t units = 0;       // of work (Cluster::units), since the start
  uint64_t most_units = 0;  // of one operation or turn
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STATUS_H_
