// SPDX-License-Identifier: Apache-2.0
// The parts of a cluster, as values: devices, islands, executors.
#ifndef FAIRWAY_CORE_DEVICE_H_
#define FAIRWAY_CORE_DEVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/ticket.h"

namespace fairway {

// When a gang's inputs count as arrived (rule G2).
enum class ArrivalRule : uint8_t {
  kReady,     // all inputs computed: a late or failed shard would stall or abort the process (PJRT
              // CPU)
  kExternal,  // inputs from outside the island have arrived; the device's stream orders the others
};

// The description of an executor that it sends when it registers.
struct ExecutorSpec {
  std::string worker;       // the worker's name, unique in the cluster; keeps its ids over restarts
  std::string island;       // the island's name
  Incarnation incarnation;  // new at every start of the executor
  std::string runtime;      // "pjrt", ...
  std::string platform_name;  // "cpu", "cuda"
  std::string platform_version;
  std::string device_kind;
  std::vector<std::string> memory_kinds;  // the first is the default
  // Executors that own the island together; all of them give the same number. The island is up when
  // all are up.
  int island_workers = 1;
  int num_devices = 0;
  int64_t device_memory = 0;  // bytes per device; 0: no limit
  ArrivalRule gang_inputs = ArrivalRule::kReady;
  uint64_t highest_launch_id = 0;  // seen on this worker, over its incarnations (rule L1)
  std::string data_endpoint;       // "host:port" where peers pull shards
  PortKey data_key;                // of that port; a secret
  // Whether it takes entries of the log that are for several executors, such as LaunchAll.
  bool takes_spans = false;
};

}  // namespace fairway

#endif  // FAIRWAY_CORE_DEVICE_H_
