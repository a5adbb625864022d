// SPDX-License-Identifier: Apache-2.0
// Small uploads stay with the controller until something uses them
// (docs/design/0060-lazy-uploads.md). A stored group is ready as soon as its bytes have come; no
// executor knows it. A node that only moves bytes of stored groups makes a stored group. Any other
// node reads the placed group: the same shards on the group's devices, put there by a node that is
// made for the first reader.
#include <algorithm>
#include <map>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/state.h"
#include "core/box.h"

namespace fairway {
namespace {

// About the bytes of a stored group's record, and of each blob's, without the blobs' bytes.
constexpr size_t kRecordBytes = 192;

// The range of a receive's sources that belong to one shard.
std::pair<size_t, size_t> SourcesOf(const Node& node, int32_t shard) {
  if (!node.remade) return {shard, shard + 1};
  const auto before = [](const Piece& piece, int32_t s) { return piece.out < s; };
  const auto begin = node.pieces.begin(), end = node.pieces.end();
  const auto first = std::lower_bound(begin, end, shard, before);
  return {first - begin, std::lower_bound(first, end, shard + 1, before) - begin};
}

// The shard that this one is a copy of, or nullptr.
const ShardRef* CopiedFrom(const Node& node, int32_t shard) {
  const auto [first, last] = SourcesOf(node, shard);
  if (last != first + 1) return nullptr;
  const bool whole =
      !node.remade || (node.pieces[first].from.whole() && node.pieces[first].to.whole());
  return whole ? &node.sources[first] : nullptr;
}

size_t Cost(const Group& group, const std::vector<int32_t>& blob_of_shard) {
  size_t cost = kRecordBytes;
  std::vector<bool> known;
  for (size_t i = 0; i < blob_of_shard.size(); ++i) {
    const auto blob = static_cast<size_t>(blob_of_shard[i]);
    if (blob >= known.size()) known.resize(blob + 1);
    if (!known[blob]) cost += kRecordBytes + static_cast<size_t>(group.places[i].bytes);
    known[blob] = true;
    cost += sizeof(int32_t);
  }
  return cost;
}

}  // namespace

bool Cluster::StoredGroups::RoomToStore(const Session& session, size_t more) const {
  const size_t room = s.Room();
  const size_t wanted = session.stored.bytes() + more;
  return wanted <= s.options.stored_session_bytes && wanted + more <= room;
}

bool Cluster::StoredGroups::MayStore(const Session& session,
                                     const std::vector<int32_t>& blob_of_shard,
                                     const std::vector<int64_t>& bytes) const {
  std::map<int32_t, int64_t> blobs;
  int64_t total = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (blobs.emplace(blob_of_shard[i], bytes[i]).second) total += bytes[i];
    if (total > s.options.stored_array_bytes) return false;
  }
  return total <= s.options.stored_array_bytes &&
         RoomToStore(session, static_cast<size_t>(total) + kRecordBytes * (blobs.size() + 1));
}

void Cluster::StoredGroups::BeginStored(Session& session, Group& group,
                                        std::vector<int32_t> blob_of_shard) {
  group.stored = std::make_unique<Stored>();
  group.stored->bytes = Cost(group, blob_of_shard);
  group.stored->blob_of_shard = std::move(blob_of_shard);
  if (group.stake != nullptr) {
    SharedVector<int32_t>& last = group.stake->blob_of_shard;
    if (last != group.stored->blob_of_shard) last = group.stored->blob_of_shard;
    group.stored->blob_of_shard = last;
  }
  session.stored.Add(group.stored->bytes);
}

bool Cluster::StoredGroups::BeginToStore(Session& session, Making::Made& made) {
  Node& node = *made.node;
  Group& group = *made.group;
  const bool all = std::all_of(node.sources.begin(), node.sources.end(), [&](const ShardRef& ref) {
    return ref.group == group.id || s.FindGroup(ref.group)->stored != nullptr;
  });
  if (node.sources.empty() || !all) return false;
  std::vector<int32_t> blob_of_shard;
  std::map<std::pair<GroupId, int32_t>, int32_t> known;
  int32_t blobs = 0;
  int64_t cut = 0;  // bytes to be copied here
  for (size_t i = 0; i < group.places.size(); ++i) {
    const ShardRef* from = CopiedFrom(node, static_cast<int32_t>(i));
    if (group.places[i].bytes > s.options.stored_array_bytes) return false;
    if (from == nullptr) {
      cut += group.places[i].bytes;
      blob_of_shard.push_back(blobs++);
    } else if (from->group == group.id) {
      blob_of_shard.push_back(blob_of_shard[from->shard]);
    } else {
      const int32_t shard = Planted(Bug::kStoreFirst) ? 0 : from->shard;
      const int32_t blob = s.FindGroup(from->group)->stored->blob_of_shard[shard];
      const auto [at, fresh] = known.try_emplace({from->group, blob}, blobs);
      if (fresh) ++blobs;
      blob_of_shard.push_back(at->second);
    }
  }
  if (cut > s.options.stored_array_bytes || !RoomToStore(session, Cost(group, blob_of_shard)))
    return false;
  node.stores = true;
  node.reservations.clear();
  BeginStored(session, group, std::move(blob_of_shard));
  return true;
}

void Cluster::StoredGroups::Store(Node& node) {
  if (node.unsettled_inputs > 0) return;
  const Group& group = *s.FindGroup(node.outputs[0]);
  Stored& stored = *group.stored;
  stored.blobs = std::move(node.blobs);  // an upload's
  for (size_t i = 0; i < group.places.size() && !node.is_upload; ++i) {
    const auto blob = static_cast<size_t>(stored.blob_of_shard[i]);
    if (blob >= stored.blobs.size()) stored.blobs.resize(blob + 1);
    if (stored.blobs[blob] != nullptr) continue;
    stored.blobs[blob] = StoredPart(node, group, static_cast<int32_t>(i));
    if (stored.blobs[blob] != nullptr) continue;
    stored.blobs.clear();
    return s.nodes.Fail(node, absl::ResourceExhaustedError("no host memory for " + node.name),
                        node.id);
  }
  s.nodes.Conclude(node, absl::OkStatus(), node.id);
}

BytesRef Cluster::StoredGroups::StoredPart(const Node& node, const Group& out,
                                           int32_t shard) const {
  const auto bytes_of = [&](const ShardRef& ref) {
    const Stored& from = *s.all_groups.at(ref.group)->stored;
    return from.blobs[from.blob_of_shard[ref.shard]];
  };
  if (const ShardRef* from = CopiedFrom(node, shard); from != nullptr)
    return bytes_of({from->group, Planted(Bug::kStoreFirst) ? 0 : from->shard});
  std::shared_ptr<Blob> made = Blob::Make(static_cast<size_t>(out.places[shard].bytes));
  const auto [first, last] = SourcesOf(node, shard);
  for (size_t i = first; i < last && made != nullptr; ++i)
    CopyBox(node.pieces[i].from, bytes_of(node.sources[i])->data(), node.pieces[i].to,
            made->data());
  return made;
}

bool Cluster::StoredGroups::PlaceShards(std::vector<ShardRef>& shards) {
  bool changed = false;
  GroupId last, instead;
  for (ShardRef& ref : shards) {
    if (ref.group != last) instead = InsteadOf(last = ref.group);
    changed = changed || instead != last;
    ref.group = instead;
  }
  return changed;
}

void Cluster::StoredGroups::PlaceShards(ShardList& shards) {
  GroupId last, instead;
  shards.Replace([&](GroupId group) {
    if (group != last) instead = InsteadOf(last = group);
    return instead;
  });
}

GroupId Cluster::StoredGroups::InsteadOf(GroupId id) {
  // A group that is still being made is in no table.
  Group* group = s.FindGroup(id);
  return group != nullptr && group->stored != nullptr ? PlacedOf(*group) : id;
}

GroupId Cluster::StoredGroups::PlacedOf(Group& group) {
  Stored& stored = *group.stored;
  if (group.state == GroupState::kFailed) return group.id;
  if (const Group* placed = s.FindGroup(stored.placed);
      placed != nullptr && placed->state != GroupState::kFailed)
    return placed->id;
  LetGoOfPlaced(group);  // it was lost, or found no room
  Group& placed = s.groups.Make(group.session, group.island, group.dtype, group.memory_kind);
  placed.shapes = group.shapes;
  placed.places = group.places;
  placed.room = group.room;
  placed.own_places = group.own_places;
  placed.deleted = group.deleted;
  placed.num_deleted = group.num_deleted;
  placed.handle_refs = 1;
  stored.placed = placed.id;
  Node& node = s.nodes.Make(group.session, NodeKind::kReceive, group.island,
                            "put of " + ToString(group.dtype, group.shape(0)));
  s.ChargeShards(group.places.size());
  placed.producer = node.id;
  node.is_upload = true;
  node.after_inputs = true;
  node.reads = {group.id};
  node.outputs = {placed.id};
  for (const Place& place : group.places)
    AddReservation(node.reservations, place.device, place.bytes, 0, node.reservations.size());
  Session& session = s.sessions.at(group.session);
  Nodes::Weigh(session, node, RecordBytesOf(placed) + stored.bytes);  // the bytes in its messages
  s.nodes.Enqueue(node);
  return placed.id;
}

void Cluster::StoredGroups::TakeStored(Node& node) {
  const Stored& stored = *s.FindGroup(node.reads[0])->stored;
  node.blobs = stored.blobs;
  node.blob_of_shard = stored.blob_of_shard;
}

void Cluster::StoredGroups::LetGoOfPlaced(Group& group) {
  if (group.stored == nullptr) return;
  Group* placed = s.FindGroup(std::exchange(group.stored->placed, GroupId()));
  if (placed == nullptr || Planted(Bug::kKeepPlaced)) return;
  if (--placed->handle_refs == 0) s.memory.CountLeaving(*placed);
  s.groups.Collect(*placed);
}

void Cluster::StoredGroups::Unstore(Group& group) {
  if (group.stored == nullptr) return;
  group.stored->blobs.clear();
  const size_t bytes = std::exchange(group.stored->bytes, 0);
  if (const auto session = s.sessions.find(group.session);
      session != s.sessions.end() && !Planted(Bug::kKeepStoredBytes))
    session->second.stored.Remove(bytes);
}

}  // namespace fairway
