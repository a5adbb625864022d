// SPDX-License-Identifier: Apache-2.0
// Shard groups: the bytes of arrays, and their readers and references. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_GROUP_H_
#define FAIRWAY_CONTROLLER_CLUSTER_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_set.h>
#include <absl/container/inlined_vector.h>

#include "base/ids.h"
#include "base/memory_budget.h"
#include "base/shared_vector.h"
#include "base/status.h"
#include "controller/cluster/actions.h"
#include "controller/cluster/code_layout.h"
#include "controller/cluster/id_table.h"
#include "controller/cluster/shard_list.h"
#include "controller/cluster/stake.h"
#include "core/shape.h"
#include "graph/plan.h"

namespace fairway {

//   kPending -> kReady -> kFailed (its executor was lost)      kPending -> kFailed
enum class GroupState : uint8_t { kPending, kReady, kFailed };

struct Group;

// The state of a group whose bytes lie with the controller and not on its devices (stored.cc): a
// small upload, or an array that was made of such groups without computing.
struct Stored {
  SharedVector<int32_t> blob_of_shard;
  std::vector<BytesRef> blobs;  // empty: they have not come, or nobody needs them any more
  size_t bytes = 0;  // charged to the session; invariant: Session::stored is the sum of these
  // The group of the same shards on devices, once something there has read them. It refers to this.
  GroupId placed;
};

// The nodes and groups of a session, which may outlive it: launched work runs to its end.
struct Holdings {
  absl::btree_set<NodeId> nodes;  // that have not ended
  // Its share of the memory for commands that executors do not have yet (Commands).
  std::shared_ptr<MemoryBudget> commands;
  std::map<IslandId, Stake> stakes;
};

// Shard buffers made together by one producer, all on one island, with one reference count.
struct Group {
  // First what is looked at for each result of a launch, of which there may be 65,536: it lies in
  // one cache line.
  GroupId id;
  NodeId producer;  // until it has ended; invariant: set if and only if the group is pending
  GroupState state = GroupState::kPending;
  // Invariant: a group has a view, a reader, a producer, or somebody who waits for it.
  int handle_refs = 0;  // invariant: the views of client handles, programs and requests
  int readers = 0;      // invariant: the unfinished nodes that read the group
  // Invariant: of `readers`, those that have no memory yet; of fetches, the paced.
  int queued_readers = 0;
  // Its bytes are reserved on its devices. Invariant: Stake::held counts them.
  bool charged = false;
  bool reserved = false;  // its producer has reserved them
  // Admission::will_release counts it. Invariant: it is charged or reserved, has no queued reader,
  // and has no view or is deleted.
  bool leaving = false;
  bool declared = false;  // executors know it
  // Its executors, if they are a span (CodeLayout): the first and the last.
  std::optional<std::pair<ExecutorId, ExecutorId>> span;
  // Its producer was launched, and all that wait for it know. Else the first `num_launched` of
  // `waiters` take it for launched: they are told in slices of the launch, and of its loss.
  bool launched = false;
  // Its producer was launched before a transfer that it needs, or is, had ended: only receives and
  // launches on one device take it for launched (Launches::TakesForLaunched).
  bool behind_transfer = false;
  bool own_places = false;  // `places` are not those of code: they count for this group
  size_t num_deleted = 0;   // of `deleted`
  size_t num_launched = 0;

  SessionId session;  // whose memory it is
  IslandId island;
  DType dtype = DType::kInvalid;
  std::string memory_kind;
  std::vector<Shape> shapes;  // one for all shards, or one per shard
  SharedVector<Place> places;
  SharedVector<MemoryNeed> room;        // what they take, once it was asked for (RoomOf)
  SharedVector<int32_t> replica_of;     // the first shard of the same tile; empty: no two are alike
  absl::Status error;                   // kFailed
  NodeId cause;                         // kFailed: the node that failed first
  std::vector<bool> deleted;            // by shard; empty: none
  std::map<int32_t, BytesRef> inlined;  // by shard: bytes that came with the end of its producer
  // nullptr: the bytes lie in `places`. Invariant: else it is not charged, declared or reserved,
  // and is deleted as its placed group is.
  std::unique_ptr<Stored> stored;

  struct Watcher {
    uint64_t watch;
    size_t position;
  };
  // Nodes that wait until the group is settled; some may have ended. Once it is settled, the first
  // `num_told` of them know, and the group is in the worklist of its session until all do.
  // Invariant: while there are any, that worklist exists.
  std::vector<NodeId> waiters;
  size_t num_told = 0;
  // Those of the client's watches that wait for it and were not told. Each watch is here once, at
  // its lowest position. A list: it takes nothing while it is empty, and does not move as it grows.
  std::list<Watcher> watchers;
  // What Groups::Weigh counted. Invariant: Session::group_records is the sum of these.
  size_t record_bytes = 0;
  uint64_t lost_in = 0;    // Loss::number of the loss that failed it
  Stake* stake = nullptr;  // of its session on its island; lists this group:
  Group* previous = nullptr;
  Group* next = nullptr;

  const Shape& shape(int32_t shard) const { return shapes[shapes.size() == 1 ? 0 : shard]; }
  bool settled() const { return state != GroupState::kPending; }
  bool all_deleted() const { return num_deleted > 0 && num_deleted == places.size(); }
  bool TakenForLaunched(size_t waiter) const { return launched || waiter < num_launched; }
  bool is_deleted(int32_t shard) const { return !deleted.empty() && deleted[shard]; }
};

// About the bytes of the record, with its text. Groups of launches share their places with the
// code. Those of others count for each group, though groups that lie alike share them: any of them
// may be the last that holds them.
inline size_t RecordBytesOf(const Group& group) {
  constexpr size_t kGroup = 576, kOwnShard = sizeof(Place) + 48;
  const bool own = group.own_places || group.shapes.size() > 1;
  return kGroup + (own ? group.places.size() * kOwnShard : 0) + group.error.message().size();
}

using GroupIds = absl::InlinedVector<GroupId, 2>;  // mostly one or two
using GroupTable = IdTable<GroupId, Group>;

// The groups of these shards, each once, but not `except`.
GroupIds GroupsOf(const std::vector<ShardRef>& shards, GroupId except = {});
GroupIds GroupsOf(const ShardList& shards);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_GROUP_H_
