// SPDX-License-Identifier: Apache-2.0
// WorkerHub's records of connections, executors and supervisors. Private to the hub.
#ifndef FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_PEERS_H_
#define FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_PEERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "controller/daemon/worker_hub.h"
#include "transport/kept_frames.h"

namespace fairway {

// One connection.
struct WorkerHub::Peer {
  uint64_t number = 0;
  uint64_t stranger = 0;  // in strangers_
  std::unique_ptr<Link> link;
  Role role = Role::kNew;
  Clock::time_point heard;
  std::string worker;
  ExecutorId executor;
  uint32_t protocol = 0;  // that is spoken; 0: it has not registered, or is a pulse or a renewal
  bool stalled = false;   // its silence has been logged
};

// A worker's executor over all its incarnations.
struct WorkerHub::Executor {
  enum class State : uint8_t {
    kUp,
    // It waits until `cause_due` for the executor, if it `resumes`, and for the supervisor's
    // account.
    kLinkEnded,
    kLost,  // the owner knows
  };
  ExecutorId id;
  State state = State::kLost;
  ExecutorSpec spec;
  std::string host;
  int64_t pid = 0;
  uint32_t protocol = 0;  // of the links: gates what it does not know
  uint64_t peer = 0;
  Island* island = nullptr;
  Clock::time_point cause_due;
  std::string link_cause;
  bool resumes = false;
  KeptFrames kept;
  size_t unacknowledged = 0;  // bytes of reports that it has not been told to have come
  std::map<std::string, uint64_t> pulled;  // totals of its last heartbeat
  std::string refused;                     // why it gets no more commands; its end is posted
  LoopLoad load;
  ExecutorCounters counters;
  std::chrono::nanoseconds round_trip{0};  // as its last heartbeat says
  uint64_t links_resumed = 0;
};

// An island to which an executor has registered.
struct WorkerHub::Island {
  IslandLinks links;
  bool due = false;                                // it is in due_
  std::map<std::string, Incarnation> restarted{};  // what the latest restart ended, by worker
};

struct WorkerHub::Supervisor {
  uint64_t peer = 0;
  std::string island;
  std::string host;
  int64_t pid = 0;
  bool has_compiler = false;
  // Its executor is up, or was since the supervisor connected. So the executor was not refused: the
  // worker belongs to its island, and compiles for the platform that the executor registered.
  bool belongs = false;
  WorkerCounters counters;
};

struct WorkerHub::RelayRecord {
  uint64_t peer = 0;
  std::string host;
  int64_t pid = 0;
  Incarnation incarnation;
  std::string endpoint;
  LinkTraffic passed_on;  // as its last heartbeat says
};

struct WorkerHub::Compilation {
  std::string worker;
  std::function<void(absl::StatusOr<CompiledCode>)> done;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_PEERS_H_
