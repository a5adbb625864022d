// SPDX-License-Identifier: Apache-2.0
// The state of a controller at one moment. It is taken in the loop, then turned into metrics and
// status answers.
#ifndef FAIRWAY_CONTROLLER_DAEMON_SNAPSHOT_H_
#define FAIRWAY_CONTROLLER_DAEMON_SNAPSHOT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/status.h"
#include "controller/daemon/link_health.h"
#include "controller/daemon/link_traffic.h"
#include "controller/daemon/worker_counters.h"

namespace fairway {

struct ControllerSnapshot {
  std::string version;
  Incarnation incarnation;
  std::string host;
  int64_t controller_pid = 0;
  int64_t launcher_pid = 0;  // 0: not started by `fairway up`
  int64_t uptime_ms = 0;
  std::string http_address;
  std::string link_address;
  std::string log_dir;

  ClusterCounts counts;
  std::vector<IslandStatus> islands;
  std::map<std::string, Cordon> absent_cordons;  // of islands that are not known, by their names
  std::vector<ExecutorStatus> executors;
  std::map<ExecutorId, std::chrono::milliseconds> stalled;
  WorkersSaid said;
  std::map<ExecutorId, LinkHealth> health;
  std::vector<RelayStatus> relays;  // connected ones
  std::vector<DeviceUsage> usage;
  std::set<std::string> supervisors;  // names of the workers whose supervisor is connected

  // Counts since the controller's start. Bulk bytes of clients through the controller:
  uint64_t uploaded_bytes = 0;
  uint64_t fetched_bytes = 0;
  std::map<ExecutorId, uint64_t> executor_fetches;
  // From executor to executor, by the islands' names (from, to).
  std::map<std::pair<std::string, std::string>, uint64_t> transferred_bytes;
  // Commands and reports, over the links of all executors.
  LinkTraffic commands;
  LinkTraffic reports;
  uint64_t commands_sent = 0;  // within those messages
  uint64_t links_resumed = 0;  // connections that broke and came back in time
  // Relays and executors below them that were given another place because of trouble, and executors
  // that got another parent.
  uint64_t relay_troubles = 0;
  uint64_t relay_moves = 0;
  uint64_t compilations = 0;
  uint64_t compile_cache_hits = 0;

  // The most processor time that one handler of the controller's loop took.
  std::chrono::nanoseconds longest_handler{0};

  int open_fds = 0;
  int threads = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_SNAPSHOT_H_
