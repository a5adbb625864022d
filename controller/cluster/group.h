// SPDX-License-Identifier: Apache-2.0
// Shard groups: the bytes of arrays, and who needs them. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_GROUP_H_
#define FAIRWAY_CONTROLLER_CLUSTER_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/shared_vector.h"
#include "base/status.h"
#include "controller/cluster/actions.h"
#include "controller/cluster/code_layout.h"
#include "core/shape.h"
#include "graph/plan.h"

namespace fairway {

//   kPending -> kReady -> kFailed (its executor was lost)      kPending -> kFailed
enum class GroupState : uint8_t { kPending, kReady, kFailed };

struct Group;

// Of a group whose bytes lie with the controller and not on its devices (stored.cc): a small
// upload, or what is made of such without computing.
struct Stored {
  std::vector<int32_t> blob_of_shard;
  std::vector<BytesRef> blobs;  // none: they have not come, or nobody needs them any more
  size_t bytes = 0;             // charged to the session
  // The same shards on the devices, since something there has read them. It refers to that group.
  GroupId placed;
};

// What a session has on one island.
struct Stake {
  size_t nodes = 0;         // of the island, unfinished
  Group* groups = nullptr;  // the first of a list
  Group* walk = nullptr;    // the next one that hears of a loss
  // What of it is accounted for, by device from the island's first one on.
  struct Held {
    int64_t bytes = 0;
    int shards = 0;
  };
  uint32_t first_device = 0;
  std::vector<Held> held;
};

// What a session has that may outlive it: launched work runs to its end.
struct Holdings {
  std::set<NodeId> nodes;  // unfinished
  std::map<IslandId, Stake> stakes;
};

// Shard buffers made together by one producer, all on one island, with one reference count.
struct Group {
  GroupId id;
  SessionId session;  // whose memory it is
  IslandId island;
  DType dtype = DType::kInvalid;
  std::string memory_kind;
  std::vector<Shape> shapes;  // one for all shards, or one per shard
  SharedVector<Place> places;
  SharedVector<int32_t> replica_of;  // the first shard of the same tile; empty: each its own

  GroupState state = GroupState::kPending;
  absl::Status error;  // kFailed
  NodeId cause;        // kFailed: the node that failed first
  NodeId producer;     // until it has ended

  int handle_refs = 0;        // views of client handles
  int readers = 0;            // unfinished nodes that read it
  int queued_readers = 0;     // of `readers`, those that have no memory yet; no fetches
  bool charged = false;       // its bytes are reserved on its devices
  bool reserved = false;      // its producer has reserved them
  bool leaving = false;       // counted by Admission::WillRelease; see State::CountLeaving
  bool declared = false;      // executors know it
  bool launched = false;      // its producer was launched
  std::vector<bool> deleted;  // per shard; empty: none
  size_t num_deleted = 0;
  std::map<int32_t, BytesRef> inlined;  // bytes that came with the completion, by shard
  std::unique_ptr<Stored> stored;       // nullptr: it lies in its places

  struct Watcher {
    uint64_t watch;
    size_t position;
  };
  // Nodes that wait until it is settled; some have ended. When it is settled the first `num_told`
  // of them know, and the worklist of its session has it until all do.
  std::vector<NodeId> waiters;
  size_t num_told = 0;
  std::deque<Watcher> watchers;
  uint64_t lost_in = 0;    // Loss::number of the loss that made it fail
  Stake* stake = nullptr;  // its session's on its island, which lists it:
  Group* previous = nullptr;
  Group* next = nullptr;

  const Shape& shape(int32_t shard) const { return shapes[shapes.size() == 1 ? 0 : shard]; }
  bool settled() const { return state != GroupState::kPending; }
  bool all_deleted() const { return num_deleted == places.size() && !places.empty(); }
  bool is_deleted(int32_t shard) const { return !deleted.empty() && deleted[shard]; }
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_GROUP_H_
