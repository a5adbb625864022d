// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CONTROLLER_DAEMON_WORKER_COUNTERS_H_
#define FAIRWAY_CONTROLLER_DAEMON_WORKER_COUNTERS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/ids.h"

namespace fairway {

// The longest that an executor's loop was held, over all its incarnations.
struct LoopLoad {
  uint64_t turn_units = 0;              // the most units of one turn of its core
  std::chrono::nanoseconds handler{0};  // the most processor time of one handler
};

// What a process of a worker takes of its host, as its last heartbeat says. Workers of 0.1 say
// nothing of it.
struct ProcessLoad {
  std::chrono::nanoseconds cpu{0};
  uint64_t resident_bytes = 0;
};

// What an executor's last heartbeat says of its present registration and process.
struct ExecutorCounters {
  uint64_t launches = 0;      // gangs included
  uint64_t served_bytes = 0;  // to those who pulled them
  uint64_t buffers = 0;       // shard buffers that live
  uint64_t executables = 0;   // loaded
  ProcessLoad process;
};

// Of a worker's daemon that is connected.
struct WorkerCounters {
  std::string island;
  uint64_t executor_starts = 0;
  uint64_t compile_starts = 0;
  uint64_t compile_crashes = 0;
  uint64_t compile_processes = 0;  // that there are
  ProcessLoad process;
};

// What workers said with their heartbeats.
struct WorkersSaid {
  std::map<ExecutorId, LoopLoad> loads;              // of executors that are known
  std::map<ExecutorId, ExecutorCounters> executors;  // that are up
  std::map<std::string, WorkerCounters> daemons;     // that are connected, by worker
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WORKER_COUNTERS_H_
