// SPDX-License-Identifier: Apache-2.0
// Small arrays that the controller has and no device yet. Private to this folder.
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

// Groups whose bytes lie with the controller (docs/design/0060-lazy-uploads.md): it decides what is
// stored, answers for the bytes, and has them put on devices when something there reads them.
//
// Invariants: a stored group is not charged, reserved or declared; its bytes are counted in
// Session::stored of its session until Unstore; its placed group has one view of it.
class Cluster::StoredGroups {
 public:
  explicit StoredGroups(State& state) : s(state) {}

  // Nothing but blob_of_shard is set yet; the bytes are charged.
  void BeginStored(Session& session, Group& group, std::vector<int32_t> blob_of_shard);
  // Whether the new array of these blobs is to be stored.
  bool MayStore(const Session& session, const std::vector<int32_t>& blob_of_shard,
                const std::vector<int64_t>& bytes) const;
  // If all that the node reads is stored, and small, so is what it makes. Returns whether.
  bool BeginToStore(Session& session, Making::Made& made);
  // The inputs of one that stores are there.
  void Store(Node& node);
  // Makes shards of stored groups those on their devices, which are put there by nodes that are
  // made now, if they are not there or on their way. Returns whether there were any.
  bool PlaceShards(std::vector<ShardRef>& shards);
  // The bytes of what a node places.
  void TakeStored(Node& node);
  // It refers to its placed group no more.
  void LetGoOfPlaced(Group& stored);
  // Its bytes are not needed any more.
  void Unstore(Group& group);

 private:
  // Whether so much more may be stored for the session.
  bool RoomToStore(const Session& session, size_t more) const;
  BytesRef StoredPart(const Node& node, const Group& out, int32_t shard) const;
  GroupId PlacedOf(Group& stored);

  State& s;  // of which this is a part
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_STORED_GROUPS_H_
