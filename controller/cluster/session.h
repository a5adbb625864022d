// SPDX-License-Identifier: Apache-2.0
// The core's records of sessions. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_SESSION_H_
#define FAIRWAY_CONTROLLER_CLUSTER_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/memory_budget.h"
#include "base/shared_vector.h"
#include "base/status.h"
#include "controller/cluster/actions.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/program_records.h"
#include "controller/cluster/virtual_device.h"
#include "controller/cluster/worklist.h"

namespace fairway {

struct Binding {
  ExecutableId executable;
  std::vector<int32_t> devices;  // virtual devices
  std::shared_ptr<const std::vector<ArraySpec>> outputs;
};

struct PendingWatch {
  // What a watch takes, at the core and at the door; and each group that it waits for.
  static constexpr size_t kWatch = 256, kWatcher = 48;

  uint64_t token = 0;
  size_t bytes = kWatch;
  size_t open = 0;
  size_t failed_at = SIZE_MAX;
  NodeId failed_by;  // if several groups of an array failed, the lowest node's error counts
  absl::Status failure;
};

struct Session {
  // `records`: the bytes of all sessions' records together.
  explicit Session(size_t* records)
      : arrays(records),
        node_records(records),
        group_records(records),
        watch_records(records),
        program_records(records),
        door_records(records),
        stored(records),
        inlined_bytes(records) {}

  SessionId id;
  std::string tenant;
  SessionSink* sink = nullptr;  // takes its answers; nullptr: nobody does
  SharedVector<VirtualDevice> devices;
  ArrayTable arrays;
  uint64_t last_put = 0;  // the array that was put last; it may be gone
  std::map<uint64_t, Binding> executables;
  std::map<uint64_t, std::unique_ptr<BoundProgram>> programs;
  uint64_t next_handle = kFirstServerHandle;
  std::map<uint64_t, PendingWatch> watches;
  RecordCount node_records;   // invariant: the sum of Node::record_bytes
  RecordCount group_records;  // invariant: the sum of Group::record_bytes
  RecordCount watch_records;  // invariant: the sum of PendingWatch::bytes
  // Invariant: the bytes of programs, of their sequences until these are forgotten, and of programs
  // being bound.
  RecordCount program_records;
  RecordCount door_records;  // what its front door said last (Sessions::CountDoor)
  std::unordered_map<uint64_t, size_t> binding;  // by key: bytes
  RecordCount stored;                            // invariant: the sum of Stored::bytes
  struct InlinedEntry {
    ShardRef shard;
    size_t bytes = 0;
  };
  std::deque<InlinedEntry> inlined;  // oldest first; some of the groups may be gone
  RecordCount inlined_bytes;         // invariant: of `inlined`
  int64_t fetching = 0;              // bytes under way; invariant: the sum of Node::pulling
  // Its share of the memory for fetched bytes: of those under way, and of those that came and that
  // somebody has yet.
  std::shared_ptr<MemoryBudget> fetched;
};

// The rest of a session that has ended; no handle leads to it any more.
struct Closing {
  explicit Closing(Session ended) : session(std::move(ended)) {}

  Session session;
  std::unique_ptr<ProgramRun> run;
  std::unique_ptr<LongRequest> request;
  NodeId below{UINT64_MAX};  // of its nodes, those below this are still to be given up
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_SESSION_H_
