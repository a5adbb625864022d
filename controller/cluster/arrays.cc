// SPDX-License-Identifier: Apache-2.0
// The array table: put, copy, assemble, disassemble, delete. Views are lists of shards, so most of
// these operations move nothing.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/placement.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {
namespace {

// Shards of one array with equal numbers have the same contents; -1: the sharding does not tell.
int64_t PartOf(const Sharding& sharding, int32_t position) {
  if (sharding.fully_replicated()) return 0;
  const bool tells = sharding.kind() == Sharding::Kind::kTiled || sharding.per_device();
  return tells ? sharding.tile_of()[position] : -1;
}

}  // namespace

absl::StatusOr<Cluster::Arrays::PutResult> Cluster::Arrays::Put(
    SessionId session, uint64_t out, const ArraySpec& spec, std::vector<int32_t> blob_of_shard) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * found, state_->FindSession(session));
  auto put = state_->MakePut(*found, out, spec, std::move(blob_of_shard), /*lazy=*/true);
  state_->Settle();
  return put;
}

absl::StatusOr<Cluster::Arrays::PutResult> Cluster::State::MakePut(
    Session& session, uint64_t out, const ArraySpec& spec, std::vector<int32_t> blob_of_shard,
    bool lazy) {
  const std::vector<int32_t>& devices = spec.sharding.devices();
  if (blob_of_shard.size() != devices.size() || devices.empty())
    return InvalidArgument("put of {}: {} shards given for {} devices",
                           ToString(spec.dtype, spec.shape), blob_of_shard.size(), devices.size());
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<IslandShards> parts, SplitByIsland(session, devices));
  std::vector<Shape> shapes;
  std::vector<int64_t> bytes;
  for (int i = 0; i < spec.sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(Shape shape, spec.sharding.ShardShape(spec.shape, i));
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(spec.dtype, shape));
    shapes.push_back(std::move(shape));
    bytes.push_back(size);
    if (blob_of_shard[i] < 0)
      return InvalidArgument("put: blob {} for shard {}", blob_of_shard[i], i);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const std::string kind,
                           MemoryKind(session.devices[devices[0]], spec.sharding.memory_kind()));
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, NewHandle(session, out));

  const bool store = lazy && stored_groups.MayStore(session, blob_of_shard, bytes);
  const int num_blobs = 1 + *std::max_element(blob_of_shard.begin(), blob_of_shard.end());
  Array array{spec, std::vector<ShardRef>(devices.size()), absl::OkStatus()};
  std::vector<Node*> made;
  for (const IslandShards& part : parts) {
    Group& group = groups.Make(session.id, part.island, spec.dtype, kind);
    Node& node = nodes.Make(session.id, NodeKind::kReceive, part.island,
                            "put of " + ToString(spec.dtype, spec.shape));
    ChargeShards(part.positions.size());
    ChargeNamed(part.positions.size());
    node.is_upload = true;
    node.blobs.resize(num_blobs);
    for (const int32_t position : part.positions) {
      const VirtualDevice& device = session.devices[devices[position]];
      array.shards[position] = {group.id, static_cast<int32_t>(group.places.size())};
      group.places.push_back(
          {ExecutorOf(device.device)->id, device.local_ordinal, device.device, bytes[position]});
      group.shapes.push_back(shapes[position]);
      node.blob_of_shard.push_back(blob_of_shard[position]);
      if (!store) AddReservation(node.reservations, device.device, bytes[position], 0);
    }
    group.producer = node.id;
    node.outputs = {group.id};
    std::set<int32_t> needed(node.blob_of_shard.begin(), node.blob_of_shard.end());
    node.open_blobs = static_cast<int>(needed.size());
    if (store) {
      node.stores = true;
      stored_groups.BeginStored(session, group, node.blob_of_shard);
    }
    made.push_back(&node);
  }
  views.Hold(array);
  session.arrays.emplace(handle, std::move(array));
  const NodeId first = made.front()->id;
  for (Node* node : made) {
    node->upload = first;
    nodes.Enqueue(*node);
  }
  return Arrays::PutResult{handle, first};
}

void Cluster::Arrays::ProvideUpload(NodeId upload, int32_t blob, absl::StatusOr<BytesRef> bytes) {
  const Operation operation(*state_);
  state_->Provide(upload, blob, bytes);
  state_->Settle();
}

void Cluster::State::Provide(NodeId upload, int32_t blob, const absl::StatusOr<BytesRef>& bytes) {
  // One node per island, with consecutive ids. Some of the nodes may have been forgotten.
  for (uint64_t id = upload.value; id < upload.value + most_islands; ++id) {
    Node* node = FindNode(NodeId(id));
    if (node == nullptr || !node->is_upload || node->upload != upload ||
        node->state != NodeState::kWaiting)
      continue;
    const std::vector<int32_t>& wanted = node->blob_of_shard;
    if (std::find(wanted.begin(), wanted.end(), blob) == wanted.end() ||
        node->blobs[blob] != nullptr)
      continue;
    if (!bytes.ok()) {
      nodes.Fail(*node, Bounded(bytes.status()), node->id);
      continue;
    }
    const Group& group = *FindGroup(node->outputs[0]);
    const auto size = static_cast<int64_t>((*bytes)->size());
    size_t i = 0;
    while (i < wanted.size() && (wanted[i] != blob || group.places[i].bytes == size)) ++i;
    if (i < wanted.size()) {
      nodes.Fail(*node,
                 InvalidArgument("{}: the host buffer for shard {} has {} bytes, expected {}",
                                 node->name, i, size, group.places[i].bytes),
                 node->id);
      continue;
    }
    node->blobs[blob] = *bytes;
    // Small bytes lie in the node and in the message that carries them to an executor.
    if (const auto session = sessions.find(node->session);
        session != sessions.end() && size <= options.inline_upload_bytes && !node->stores) {
      node->record_bytes += 2 * static_cast<size_t>(size);
      session->second.node_records.Add(2 * static_cast<size_t>(size));
    }
    if (--node->open_blobs == 0) nodes.Enqueue(*node);
  }
}

absl::StatusOr<uint64_t> Cluster::Arrays::MakeError(SessionId session_id, uint64_t out,
                                                    const ArraySpec& spec, absl::Status error) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(session_id));
  if (error.ok()) return InvalidArgument("an error array needs an error, but its status is OK");
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, state_->NewHandle(*session, out));
  session->arrays.emplace(handle, Array{spec, {}, Bounded(std::move(error))});
  return handle;
}

absl::StatusOr<Array> Cluster::State::Copied(Session& session, const Array& source,
                                             const ArraySpec& target, bool may_alias,
                                             Making& made) {
  const Sharding& sharding = target.sharding;
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<IslandShards> parts,
                           SplitByIsland(session, sharding.devices()));
  Array copy{target, {}, absl::OkStatus()};
  copy.shards.resize(source.shards.size());
  const VirtualDevice& first = session.devices[sharding.devices()[0]];
  FAIRWAY_ASSIGN_OR_RETURN(const std::string kind, MemoryKind(first, sharding.memory_kind()));
  for (const IslandShards& part : parts) {
    Node* node = nullptr;
    Group* group = nullptr;
    // A shard from another executor is sent to an executor once; the other devices there copy it.
    std::map<std::pair<ExecutorId, int64_t>, ShardRef> came;
    for (const int32_t position : part.positions) {
      ShardRef from = source.shards[position];
      const Group& from_group = *FindGroup(from.group);
      const VirtualDevice& device = session.devices[sharding.devices()[position]];
      const Place& place = from_group.places[from.shard];
      const bool stays = place.device == device.device && from_group.memory_kind == kind;
      if (stays && may_alias) {
        copy.shards[position] = from;
        continue;
      }
      if (node == nullptr) {
        Making::Made& one = made.nodes.emplace_back();
        one.group = groups.New(session.id, part.island, source.spec.dtype, kind);
        one.node = nodes.New(session.id, NodeKind::kReceive, part.island,
                             "copy of " + ToString(source.spec.dtype, source.spec.shape));
        group = one.group.get();
        node = one.node.get();
        node->outputs = {group->id};
      }
      copy.shards[position] = {group->id, static_cast<int32_t>(group->places.size())};
      const ExecutorId executor = ExecutorOf(device.device)->id;
      group->places.push_back({executor, device.local_ordinal, device.device, place.bytes});
      group->shapes.push_back(from_group.shape(from.shard));
      AddReservation(node->reservations, device.device, place.bytes, 0);
      const int64_t number = PartOf(source.spec.sharding, position);
      if (number >= 0 && place.executor != executor) {
        const auto [first, fresh] =
            came.emplace(std::pair{executor, number}, copy.shards[position]);
        if (!fresh) from = first->second;
      }
      node->sources.push_back(from);
    }
    if (node == nullptr) continue;
    node->reads = GroupsOf(node->sources);
    std::erase(node->reads, group->id);
  }
  return copy;
}

absl::StatusOr<uint64_t> Cluster::Arrays::Assemble(SessionId session_id, ArraySpec spec,
                                                   const std::vector<uint64_t>& in,
                                                   CopySemantics semantics, uint64_t out) {
  const Operation operation(*state_);
  State& s = *state_;
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.FindSession(session_id));
  if (static_cast<int>(in.size()) != spec.sharding.num_shards())
    return InvalidArgument("assemble: {} arrays for {} shards", in.size(),
                           spec.sharding.num_shards());
  if (in.empty()) return InvalidArgument("assemble: an array needs at least one shard");
  Array array{std::move(spec), {}, absl::OkStatus()};
  for (size_t i = 0; i < in.size(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(Array * piece, s.FindArray(session_id, in[i]));
    if (piece->unknown) return piece->error;
    FAIRWAY_RETURN_IF_ERROR(s.views.CheckUsable(*piece, in[i]));
    if (array.spec.dtype == DType::kInvalid) array.spec.dtype = piece->spec.dtype;
    if (piece->spec.dtype != array.spec.dtype)
      return InvalidArgument("assemble: array {} is {}, expected {}", in[i],
                             Name(piece->spec.dtype), Name(array.spec.dtype));
    if (!piece->error.ok()) {
      if (array.error.ok()) array.error = piece->error;
      continue;
    }
    if (piece->shards.size() != 1)
      return InvalidArgument("assemble: array {} has {} shards, expected one", in[i],
                             piece->shards.size());
    const Group& group = *s.FindGroup(piece->shards[0].group);
    const int32_t id = array.spec.sharding.devices()[i];
    if (id < 0 || static_cast<size_t>(id) >= session->devices.size() ||
        session->devices[id].device != group.places[piece->shards[0].shard].device)
      return InvalidArgument(
          "assemble: array {} (shard {}) does not lie on device {}, where the sharding puts it",
          in[i], i, id);
    const auto want = array.spec.sharding.ShardShape(array.spec.shape, static_cast<int>(i));
    if (want.ok() && *want != group.shape(piece->shards[0].shard))
      return InvalidArgument("assemble: shard {} is {}, expected {}", i,
                             ToString(array.spec.dtype, group.shape(piece->shards[0].shard)),
                             ToString(array.spec.dtype, *want));
    array.shards.push_back(piece->shards[0]);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, s.NewHandle(*session, out));
  if (!array.error.ok()) array.shards.clear();
  s.views.Hold(array);
  session->arrays.emplace(handle, std::move(array));
  return handle;
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Arrays::Disassemble(
    SessionId session_id, uint64_t in, CopySemantics semantics, const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  State& s = *state_;
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.FindSession(session_id));
  FAIRWAY_ASSIGN_OR_RETURN(Array * array, s.FindArray(session_id, in));
  if (array->unknown) return array->error;
  FAIRWAY_RETURN_IF_ERROR(s.views.CheckUsable(*array, in));
  const int count = array->spec.sharding.num_shards();
  if (!out.empty() && static_cast<int>(out.size()) != count)
    return InvalidArgument("disassemble: {} results named for {} shards", out.size(), count);
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<uint64_t> handles,
                           s.NewHandles(*session, out, static_cast<size_t>(count)));
  const Array whole = *array;  // a copy: the table may move the record while it grows
  for (int i = 0; i < count; ++i) {
    Array piece{
        {whole.spec.dtype, whole.spec.shape, whole.spec.sharding.OfShard(i)}, {}, whole.error};
    if (whole.error.ok()) {
      piece.shards = {whole.shards[i]};
      piece.spec.shape = s.FindGroup(whole.shards[i].group)->shape(whole.shards[i].shard);
    } else if (const auto shape = whole.spec.sharding.ShardShape(whole.spec.shape, i); shape.ok()) {
      piece.spec.shape = *shape;
    }
    s.views.Hold(piece);
    session->arrays.emplace(handles[i], std::move(piece));
  }
  return handles;
}

absl::StatusOr<uint64_t> Cluster::Arrays::FullyReplicatedShard(SessionId session_id, uint64_t in,
                                                               CopySemantics semantics,
                                                               uint64_t out) {
  const Operation operation(*state_);
  State& s = *state_;
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.FindSession(session_id));
  FAIRWAY_ASSIGN_OR_RETURN(Array * array, s.FindArray(session_id, in));
  if (array->unknown) return array->error;
  FAIRWAY_RETURN_IF_ERROR(s.views.CheckUsable(*array, in));
  if (!array->spec.sharding.fully_replicated())
    return InvalidArgument("array {} is not fully replicated: it has {} different shards", in,
                           array->spec.sharding.num_shards());
  Array shard{
      {array->spec.dtype, array->spec.shape, array->spec.sharding.OfShard(0)}, {}, array->error};
  if (array->error.ok()) shard.shards = {array->shards[0]};
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, s.NewHandle(*session, out));
  s.views.Hold(shard);
  session->arrays.emplace(handle, std::move(shard));
  return handle;
}

absl::StatusOr<bool> Cluster::Arrays::IsDeleted(SessionId session, uint64_t handle) const {
  FAIRWAY_ASSIGN_OR_RETURN(Array * array, state_->FindArray(session, handle));
  return state_->views.IsDeleted(*array);
}

const ArraySpec* Cluster::Arrays::Spec(SessionId session, uint64_t handle) const {
  const absl::StatusOr<Array*> array = state_->FindArray(session, handle);
  return array.ok() ? &(*array)->spec : nullptr;
}

}  // namespace fairway
