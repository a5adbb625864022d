// SPDX-License-Identifier: Apache-2.0
// The life of shard groups: made, read, settled, collected. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_GROUPS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_GROUPS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/group.h"
#include "controller/cluster/node.h"
#include "core/shape.h"
#include "graph/plan.h"

namespace fairway {

// Makes groups, counts their readers, settles them when their producer ends or their bytes are
// lost, and frees their bytes when nobody needs them any more (rule B1). Nodes read and settle
// groups; views (views.h) refer to them.
//
// Invariants (CheckGroups, CheckStakes): Group::readers counts the nodes that read the group, and
// queued_readers those of them that have no memory. A group has a producer until it is settled, and
// not after. A view, reader, producer, waiter or watcher refers to it. The stake of its session on
// its island lists it, once.
class Cluster::Groups {
 public:
  explicit Groups(State& state) : s(state) {}

  Group& Make(SessionId session, IslandId island, DType dtype, const std::string& memory_kind);
  // The group is in no table yet, so losses do not find it.
  std::unique_ptr<Group> New(SessionId session, IslandId island, DType dtype,
                             const std::string& memory_kind);
  Group& Insert(std::unique_ptr<Group> group);
  // Call it when all places and shapes of a group in the tables are there, before it is weighed.
  // Lists that the last such group has too are shared with it.
  static void ShareLists(Group& group);
  // Counts the group's record, as large as it is now, against its session. While the node that
  // makes it has not ended, the node's record has it (Nodes::Weigh).
  static void Weigh(Session& session, Group& group);
  // Starts or stops accounting the group's bytes to its session.
  static void SetCharged(Group& group, bool charged);

  void AddReader(Group& group, const Node& node);
  void DropReader(GroupId id);
  // A node that reads the group has memory now (or ends), or has none. Fetches need none.
  void HasMemory(const Node& reader, Group& group, bool has);
  // One more, or one less, of its readers waits (Group::queued_readers).
  void CountQueued(Group& group, bool more);

  void SetReady(Group& group);
  void SetFailed(Group& group, const absl::Status& error, NodeId cause);
  // Tells some of the waiters of a settled group. Returns whether all have been told.
  bool TellWaiters(GroupId id);

  // Frees the bytes if nobody needs them. Forgets the group if nothing refers to it.
  void Collect(Group& group);
  void ReleaseBytes(Group& group);

  // Stores bytes of a report, unless `from` does not hold that shard or their number is wrong.
  void StoreInlined(ExecutorId from, ShardRef ref, BytesRef bytes);
  // The shard's bytes, if they lie with the controller; else nullptr.
  BytesRef Inlined(const Group& group, int32_t shard) const;

 private:
  void Erase(Group& group);

  uint64_t next_ = 1;
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_GROUPS_H_
