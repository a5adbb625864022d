// SPDX-License-Identifier: Apache-2.0
// Lists of what sessions have, for those who look at a running cluster.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_LISTINGS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_LISTINGS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"

namespace fairway {

// Plain values: copies. The names of islands are each there once; of many, the first ones. Texts of
// clients are shortened.
struct SessionRow {
  SessionId id;
  std::string tenant = {};
  // "idle", "working", or "waits for memory", "waits for bytes" (of its client), "waits for
  // executors" (which take its commands): its oldest work that was not launched.
  std::string state = {};
  size_t devices = 0;  // that it sees
  size_t arrays = 0;
  size_t programs = 0;
  size_t computations = 0;   // compiled functions
  size_t nodes = 0;          // that have not ended
  int64_t device_bytes = 0;  // of its arrays and those that are being made, on all devices
  size_t record_bytes = 0;   // of the controller's memory, with its small uploads
};

struct ArrayRow {
  SessionId session;
  uint64_t handle = 0;
  std::string tenant = {};
  std::string type = {};  // "f32[128,512]"
  // "pending", "ready", "stored" (ready, and its bytes lie with the controller), "failed",
  // "deleted".
  std::string state = {};
  std::vector<std::string> islands = {};
  size_t shards = 0;
  int64_t bytes = 0;       // of its shard buffers, which other arrays may share
  std::string error = {};  // of a failed one
};

struct ProgramRow {
  SessionId session;
  uint64_t handle = 0;
  std::string tenant = {};
  bool is_program = false;  // of many computations; else one computation
  std::string name = {};
  std::vector<std::string> islands = {};
  size_t steps = 0;  // sequences and transfers of a program; of a computation 1
};

struct NodeRow {
  NodeId id;
  SessionId session;
  std::string tenant = {};
  std::string kind = {};   // "launch", or a transfer: "upload", "move", "fetch"
  std::string state = {};  // "waiting", "queued", "prepared", "launched", "done" (it is ending)
  std::string name = {};
  std::string island = {};             // where it launches, or its bytes go; of a fetch: come from
  std::vector<std::string> from = {};  // the islands of what it reads
  int64_t bytes = 0;                   // of device memory that it takes; of a fetch: that it brings
  std::string waits_for = {};          // "memory", "node 12", "worker w0"
};

// The row behind which the next page begins.
struct ListingCursor {
  uint64_t session = 0;
  uint64_t id = 0;  // a handle, or a node's id; of sessions 0
};

template <typename Row>
struct RowPage {
  std::vector<Row> rows;
  size_t total = 0;                   // rows of all pages; 0: not known
  std::optional<ListingCursor> next;  // nullopt: this is the last page
};

// Each call looks at a bounded number of things, so a list of many objects takes many calls,
// between which other work goes on. What changes meanwhile may be listed or not. Changes nothing.
//
// Loop-confined.
class Cluster::Listings {
 public:
  struct Asked {
    SessionId session = {};                  // only what is of this one; 0: of all
    std::optional<std::string> tenant = {};  // only what is of sessions of this tenant
    bool transfers = false;                  // nodes: only those that move data
    ListingCursor after = {};                // of the page before; at first none
  };
  // A page ends behind so many rows, and when so many things were looked at.
  static constexpr size_t kMostRows = 250;
  static constexpr size_t kMostLooks = 2500;

  RowPage<SessionRow> Sessions(const Asked& asked) const;
  RowPage<ArrayRow> Arrays(const Asked& asked) const;
  // Computations and programs.
  RowPage<ProgramRow> Programs(const Asked& asked) const;
  // Nodes that have not ended, also of sessions that have. Their number is known unless `transfers`
  // or `tenant` chooses among them.
  RowPage<NodeRow> Nodes(const Asked& asked) const;

 private:
  friend class Cluster;
  class Lister;  // listings.cc
  Listings(const State* state, const Cluster::Sessions* sessions)
      : state_(state), sessions_(sessions) {}

  const State* const state_;  // the cluster's: outlives this, as the next
  const Cluster::Sessions* const sessions_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_LISTINGS_H_
