// SPDX-License-Identifier: Apache-2.0
// Uploads: their nodes, and the bytes that clients send for them.
#include "controller/cluster/uploads.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/cluster/placement.h"
#include "controller/cluster/state.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {

absl::StatusOr<Cluster::Arrays::PutResult> Cluster::Uploads::Put(Session& session, uint64_t out,
                                                                 const ArraySpec& spec,
                                                                 std::vector<int32_t> blob_of_shard,
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
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, s.NewHandle(session, out));

  const bool store = lazy && s.stored_groups.MayStore(session, blob_of_shard, bytes);
  const int num_blobs = 1 + *std::max_element(blob_of_shard.begin(), blob_of_shard.end());
  std::vector<ShardRef> shards(devices.size());
  std::vector<Node*> made;
  for (const IslandShards& part : parts) {
    Group& group = s.groups.Make(session.id, part.island, spec.dtype, kind);
    Node& node = s.nodes.Make(session.id, NodeKind::kReceive, part.island,
                              "put of " + ToString(spec.dtype, spec.shape));
    s.ChargeShards(part.positions.size());
    s.ChargeNamed(part.positions.size());
    node.is_upload = true;
    node.blobs.resize(num_blobs);
    for (const int32_t position : part.positions) {
      const VirtualDevice& device = session.devices[devices[position]];
      shards[position] = {group.id, static_cast<int32_t>(group.places.size())};
      group.places.push_back(
          {s.ExecutorOf(device.device)->id, device.local_ordinal, device.device, bytes[position]});
      group.shapes.push_back(shapes[position]);
      node.blob_of_shard.push_back(blob_of_shard[position]);
      if (!store)
        AddReservation(node.reservations, device.device, bytes[position], 0,
                       node.reservations.size());
    }
    Groups::ShareLists(group);
    group.producer = node.id;
    node.outputs = {group.id};
    std::set<int32_t> needed(node.blob_of_shard.begin(), node.blob_of_shard.end());
    node.open_blobs = static_cast<int>(needed.size());
    if (store) {
      node.stores = true;
      s.stored_groups.BeginStored(session, group, node.blob_of_shard);
    }
    Nodes::Weigh(session, node, RecordBytesOf(group));
    made.push_back(&node);
  }
  Array array{spec, shards, absl::OkStatus()};
  // Arrays that are cut alike share the lists of their sharding.
  if (const Array* last = session.arrays.find(session.last_put);
      last != nullptr && last->spec.sharding == spec.sharding)
    array.spec.sharding = last->spec.sharding;
  session.last_put = handle;
  s.views.Hold(array);
  session.arrays.emplace(handle, std::move(array));
  const NodeId first = made.front()->id;
  for (Node* node : made) {
    node->upload = first;
    s.nodes.Enqueue(*node);
  }
  return Arrays::PutResult{handle, first};
}

void Cluster::Uploads::Provide(NodeId upload, int32_t blob, const absl::StatusOr<BytesRef>& bytes) {
  // One node per island, with consecutive ids. Some of the nodes may have been forgotten.
  for (uint64_t id = upload.value; id < upload.value + s.most_islands; ++id) {
    Node* node = s.FindNode(NodeId(id));
    if (node == nullptr || !node->is_upload || node->upload != upload ||
        node->state != NodeState::kWaiting)
      continue;
    const std::vector<int32_t>& wanted = node->blob_of_shard;
    s.ChargeShards(wanted.size());
    if (std::find(wanted.begin(), wanted.end(), blob) == wanted.end() ||
        node->blobs[blob] != nullptr)
      continue;
    if (!bytes.ok()) {
      s.nodes.Fail(*node, Bounded(bytes.status()), node->id);
      continue;
    }
    const Group& group = *s.FindGroup(node->outputs[0]);
    const auto size = static_cast<int64_t>((*bytes)->size());
    size_t i = 0;
    while (i < wanted.size() && (wanted[i] != blob || group.places[i].bytes == size)) ++i;
    if (i < wanted.size()) {
      s.nodes.Fail(*node,
                   InvalidArgument("{}: the host buffer for shard {} has {} bytes, expected {}",
                                   node->name, i, size, group.places[i].bytes),
                   node->id);
      continue;
    }
    node->blobs[blob] = *bytes;
    // Small bytes lie in the node and in the message that carries them to an executor.
    if (const auto session = s.sessions.find(node->session);
        session != s.sessions.end() && size <= s.options.inline_upload_bytes && !node->stores) {
      node->record_bytes += 2 * static_cast<size_t>(size);
      session->second.node_records.Add(2 * static_cast<size_t>(size));
    }
    if (--node->open_blobs == 0) s.nodes.Enqueue(*node);
  }
}

}  // namespace fairway
