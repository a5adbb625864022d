// SPDX-License-Identifier: Apache-2.0
// Small arrays that lie with the controller, not yet on a device. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_STORED_GROUPS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_STORED_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/group.h"
#include "controller/cluster/node.h"
#include "controller/cluster/session.h"

namespace fairway {

// The groups whose bytes lie with the controller (docs/design/0060-lazy-uploads.md). Decides which
// are stored, answers for the bytes, and puts them on devices when something there reads them.
//
// Invariants: a stored group is not charged, reserved or declared; its bytes are counted in
// Session::stored of its session until Unstore; it holds one view of its placed group.
class Cluster::StoredGroups {
 public:
  explicit StoredGroups(State& state) : s(state) {}

  // Charges the bytes to the session, and sets blob_of_shard; the blobs are still to come.
  void BeginStored(Session& session, Group& group, std::vector<int32_t> blob_of_shard);
  // Whether the new array of these blobs is to be stored.
  bool MayStore(const Session& session, const std::vector<int32_t>& blob_of_shard,
                const std::vector<int64_t>& bytes) const;
  // Stores the node's output if all that it reads is stored, and small. Returns whether it does.
  bool BeginToStore(Session& session, Making::Made& made);
  // The inputs of a node that stores have come: makes its output.
  void Store(Node& node);
  // Replaces shards of stored groups by the placed ones, and makes nodes that put them on their
  // devices, unless they are there or on their way. Returns whether there were any.
  bool PlaceShards(std::vector<ShardRef>& shards);
  void PlaceShards(ShardList& shards);
  // Gives a node that places a stored group that group's bytes.
  void TakeStored(Node& node);
  // Gives up its reference to the placed group.
  void LetGoOfPlaced(Group& stored);
  // Drops the bytes, which are not needed any more.
  void Unstore(Group& group);

 private:
  // Whether `more` further bytes may be stored for the session.
  bool RoomToStore(const Session& session, size_t more) const;
  BytesRef StoredPart(const Node& node, const Group& out, int32_t shard) const;
  GroupId PlacedOf(Group& stored);
  // The placed group if it is a stored one, which is put on its devices; else itself.
  GroupId InsteadOf(GroupId id);

  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STORED_GROUPS_H_
