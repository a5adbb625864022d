// SPDX-License-Identifier: Apache-2.0
// Resharding and bitcasting: shards made of boxes of others, or sharing them where nothing changes.
#include "core/reshard.h"

#include <algorithm>
#include <utility>

#include "controller/cluster/placement.h"

namespace fairway {
namespace {

// Of one request. Each takes some 400 bytes here for as long as the node lives, twice as many while
// it is sent, and 2 us of the loop: 1,024 devices may each take a part of each other's.
constexpr size_t kMaxPieces = size_t{1} << 20;
constexpr size_t kPieceBytes = 400;

}  // namespace

absl::StatusOr<Array> Cluster::State::Remake(Session& session, const Array& source,
                                             const ArraySpec& target, const std::string& name,
                                             bool may_alias, const PiecesOf& pieces_of,
                                             Making& made) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<IslandShards> parts,
                           SplitByIsland(session, target.sharding.devices()));
  FAIRWAY_ASSIGN_OR_RETURN(
      const std::string kind,
      MemoryKind(session.devices[target.sharding.devices()[0]], target.sharding.memory_kind()));
  std::vector<Shape> shapes;
  for (int i = 0; i < target.sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(shapes.emplace_back(), target.sharding.ShardShape(target.shape, i));
    FAIRWAY_RETURN_IF_ERROR(ByteSize(target.dtype, shapes.back()).status());
  }
  Array out{target, std::vector<ShardRef>(shapes.size()), absl::OkStatus()};
  size_t num_pieces = 0, num_shards = 0;
  const size_t others = made.pieces;
  for (const IslandShards& part : parts) {
    Node* node = nullptr;
    Group* group = nullptr;
    for (const int32_t position : part.positions) {
      const VirtualDevice& device = session.devices[target.sharding.devices()[position]];
      const std::vector<SourcePiece> pieces = pieces_of(position);
      num_pieces += pieces.size();
      Charge(1 + pieces.size());
      ++num_shards;
      made.pieces += pieces.size();
      if (made.pieces > kMaxPieces && others > 0)
        return InvalidArgument(
            "{}: it and the arrays before it in the same request are made of more than {} pieces; "
            "reshard fewer arrays at once",
            name, kMaxPieces);
      if (made.pieces > kMaxPieces)
        return InvalidArgument(
            "{}: {} of its {} shards are made of {} pieces of the array's {} shards, and at most "
            "{} are allowed; reshard it onto one device or a few first, and from there",
            name, num_shards, shapes.size(), num_pieces, source.shards.size(), kMaxPieces);
      if (may_alias && pieces.size() == 1 && !pieces[0].made && pieces[0].piece.from.whole() &&
          pieces[0].piece.to.whole() && target.dtype == source.spec.dtype) {
        const ShardRef from = source.shards[pieces[0].source];
        const Group& holder = *FindGroup(from.group);
        if (holder.places[from.shard].device == device.device && holder.memory_kind == kind &&
            holder.shape(from.shard) == shapes[position]) {
          out.shards[position] = from;
          continue;
        }
      }
      if (node == nullptr) {
        group = &MakeGroup(session.id, part.island, target.dtype, kind);
        node = &MakeNode(session.id, NodeKind::kReceive, part.island, name);
        node->remade = true;
        node->outputs = {group->id};
        group->producer = node->id;
        made.nodes.push_back(node);
      }
      const auto shard = static_cast<int32_t>(group->places.size());
      const int64_t bytes = *ByteSize(target.dtype, shapes[position]);
      out.shards[position] = {group->id, shard};
      group->places.push_back(
          {ExecutorOf(device.device)->id, device.local_ordinal, device.device, bytes});
      group->shapes.push_back(shapes[position]);
      AddReservation(node->reservations, device.device, bytes, 0);
      for (const SourcePiece& piece : pieces) {
        node->sources.push_back(piece.made ? out.shards[piece.source]
                                           : source.shards[piece.source]);
        node->pieces.push_back({shard, piece.piece.from, piece.piece.to});
      }
    }
    if (node == nullptr) continue;
    // Only what it is made of: it may end well before another group is known to have failed.
    node->reads = GroupsOf(node->sources);
    std::erase(node->reads, group->id);
    node->record_bytes = kPieceBytes * node->pieces.size();
    session.record_bytes += node->record_bytes;
  }
  return out;
}

absl::StatusOr<Array> Cluster::State::Resharded(Session& session, const Array& source,
                                                const ArraySpec& target, bool may_alias,
                                                Making& made) {
  const std::string type = ToString(source.spec.dtype, source.spec.shape);
  const Sharding& old = source.spec.sharding;
  const auto moved = old.WithDevices(target.sharding.devices(), target.sharding.memory_kind());
  if (moved.ok() && *moved == target.sharding &&
      (old.kind() == Sharding::Kind::kConcrete || old.kind() == Sharding::Kind::kConcreteEven)) {
    // The same cut, wherever its pieces lie in the array.
    return Remake(
        session, source, target, "reshard of " + type, may_alias,
        [&](int32_t position) {
          const ShardRef from = source.shards[position];
          const Box whole = Box::Whole(BytesPerElement(target.dtype),
                                       FindGroup(from.group)->shape(from.shard).dims);
          std::vector<SourcePiece> pieces;
          if (whole.bytes() > 0) pieces.push_back({position, false, {0, whole, whole}});
          return pieces;
        },
        made);
  }
  std::vector<Resharding::Place> sources, targets;
  for (const ShardRef& ref : source.shards) {
    const Place& place = FindGroup(ref.group)->places[ref.shard];
    sources.push_back({place.executor, place.device});
  }
  for (const int32_t id : target.sharding.devices()) {
    if (id < 0 || static_cast<size_t>(id) >= session.devices.size()) break;  // told by Remake
    const DeviceId device = session.devices[id].device;
    targets.push_back({ExecutorOf(device)->id, device});
  }
  targets.resize(target.sharding.devices().size());
  absl::StatusOr<Resharding> plan =
      Resharding::Plan(target.dtype, target.shape, old, target.sharding, sources, targets);
  if (!plan.ok()) return Annotate(plan.status(), "reshard of " + type);
  return Remake(
      session, source, target, "reshard of " + type, may_alias,
      [&](int32_t position) {
        std::vector<SourcePiece> out;
        for (ShardPiece& piece : plan->PiecesOf(position))
          out.push_back(
              {piece.source, piece.made, {0, std::move(piece.from), std::move(piece.to)}});
        return out;
      },
      made);
}

absl::StatusOr<Array> Cluster::State::Bitcasted(Session& session, const Array& source,
                                                const ArraySpec& target, bool may_alias,
                                                Making& made) {
  const std::string name =
      fmt::format("bitcast of {} to {}", ToString(source.spec.dtype, source.spec.shape),
                  ToString(target.dtype, target.shape));
  const std::vector<int32_t>& devices = target.sharding.devices();
  if (devices != source.spec.sharding.devices())
    return InvalidArgument("{}: it stays on its devices and in its memory", name);
  for (int i = 0; i < target.sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const Shape shape, target.sharding.ShardShape(target.shape, i));
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(target.dtype, shape));
    const ShardRef from = source.shards[i];
    const Group& group = *FindGroup(from.group);
    FAIRWAY_ASSIGN_OR_RETURN(const std::string kind, MemoryKind(session.devices[devices[i]],
                                                                target.sharding.memory_kind()));
    if (kind != group.memory_kind)
      return InvalidArgument("{}: it stays on its devices and in its memory", name);
    const int64_t has = group.places[from.shard].bytes;
    if (bytes != has)
      return InvalidArgument("{}: shard {} has {} bytes, {} are asked for", name, i, has, bytes);
  }
  return Remake(
      session, source, target, name, may_alias,
      [&](int32_t position) {
        const ShardRef from = source.shards[position];
        const int64_t bytes = FindGroup(from.group)->places[from.shard].bytes;
        const Box whole = Box::Whole(1, {bytes});
        std::vector<SourcePiece> pieces;
        if (bytes > 0) pieces.push_back({position, false, {0, whole, whole}});
        return pieces;
      },
      made);
}

absl::StatusOr<std::vector<uint64_t>> Cluster::State::RemakeAll(
    SessionId session_id, const std::vector<uint64_t>& in, const std::vector<ArraySpec>& targets,
    CopySemantics semantics, const std::vector<uint64_t>& out, Remaking how) {
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, FindSession(session_id));
  if (targets.size() != in.size())
    return InvalidArgument("{} arrays are to become {}", in.size(), targets.size());
  std::vector<Array*> sources;
  for (const uint64_t handle : in) {
    FAIRWAY_ASSIGN_OR_RETURN(sources.emplace_back(), FindArray(session_id, handle));
    FAIRWAY_RETURN_IF_ERROR(CheckUsable(*sources.back(), handle));
  }
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<uint64_t> handles, NewHandles(*session, out, in.size()));
  Making made;
  std::vector<Array> arrays;
  for (size_t a = 0; a < in.size(); ++a) {
    if (!sources[a]->error.ok()) {
      arrays.push_back({targets[a], {}, sources[a]->error});
      continue;
    }
    absl::StatusOr<Array> array = (this->*how)(*session, *sources[a], targets[a],
                                               semantics != CopySemantics::kAlwaysCopy, made);
    if (!array.ok()) {
      // All of them or none. Nothing was told to anybody yet.
      for (Node* node : made.nodes) Forget(*node);
      return array.status();
    }
    arrays.push_back(*std::move(array));
  }
  for (size_t a = 0; a < in.size(); ++a) {
    HoldView(arrays[a]);
    session->arrays.emplace(handles[a], std::move(arrays[a]));
  }
  for (Node* node : made.nodes) Enqueue(*node);
  if (semantics == CopySemantics::kDonateInput) {
    for (Array* source : sources) {
      source->deleted = source->deleted || source->shards.empty();
      if (!source->shards.empty()) GiveAway(*source);
    }
  }
  Settle();
  return handles;
}

void Cluster::State::Forget(Node& node) {
  for (const GroupId id : node.outputs) EraseGroup(*FindGroup(id));
  if (const auto it = sessions.find(node.session); it != sessions.end())
    it->second.record_bytes -= node.record_bytes;
  Holdings& has = holdings.at(node.session);
  has.nodes.erase(node.id);
  --has.stakes.at(node.island).nodes;
  nodes.erase(node.id);
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Reshard(SessionId session,
                                                       const std::vector<uint64_t>& in,
                                                       const std::vector<ArraySpec>& targets,
                                                       CopySemantics semantics,
                                                       const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  for (size_t i = 0; i < in.size() && i < targets.size(); ++i) {
    const ArraySpec* spec = Spec(session, in[i]);
    if (spec == nullptr || spec->dtype == DType::kInvalid) continue;  // told below
    if (spec->dtype != targets[i].dtype || spec->shape != targets[i].shape)
      return InvalidArgument("reshard: array {} is {}, it cannot become {}", in[i],
                             ToString(spec->dtype, spec->shape),
                             ToString(targets[i].dtype, targets[i].shape));
  }
  return state_->RemakeAll(session, in, targets, semantics, out, &State::Resharded);
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Bitcast(SessionId session,
                                                       const std::vector<uint64_t>& in,
                                                       const std::vector<ArraySpec>& targets,
                                                       CopySemantics semantics,
                                                       const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  return state_->RemakeAll(session, in, targets, semantics, out, &State::Bitcasted);
}

}  // namespace fairway
