// SPDX-License-Identifier: Apache-2.0
// Resharding and bitcasting: shards made of boxes of others, or sharing them where nothing changes.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/many.h"
#include "controller/cluster/placement.h"

namespace fairway {
namespace {

// The most pieces of one request: some 400 bytes each here while the node lives, and twice as many
// while it is sent. The bound lets 1,024 devices each take a part of each other's.
constexpr size_t kMaxPieces = size_t{1} << 20;

}  // namespace

struct Cluster::Remaking::Remake {
  const Array* source = nullptr;
  const ArraySpec* target = nullptr;
  std::string name;
  bool may_alias = false;
  Recipe recipe;
  std::vector<IslandShards> parts;
  std::string kind;  // the memory kind
  std::vector<Shape> shapes;
  std::vector<ShardRef> shards;  // those made so far
  Array out;                     // has them once all are made
  // The next shard to be made.
  size_t part = 0;
  size_t at = 0;           // index among the part's positions
  bool node_open = false;  // the last node may get more shards
  size_t num_pieces = 0;
  size_t num_shards = 0;  // shards that nodes make
  size_t others = 0;      // pieces of the arrays before this one
};

absl::StatusOr<Cluster::Remaking::Remake> Cluster::Remaking::BeginRemake(
    const Session& session, const Array& source, const ArraySpec& target, std::string name,
    bool may_alias, Recipe recipe, const Making& made) {
  Remake remake;
  FAIRWAY_ASSIGN_OR_RETURN(remake.parts, SplitByIsland(session, target.sharding.devices()));
  FAIRWAY_ASSIGN_OR_RETURN(remake.kind, MemoryKind(session.devices[target.sharding.devices()[0]],
                                                   target.sharding.memory_kind()));
  const int num_shards = target.sharding.num_shards();
  remake.shapes.reserve(num_shards);
  for (int i = 0; i < num_shards; ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(remake.shapes.emplace_back(),
                             target.sharding.ShardShape(target.shape, i));
    FAIRWAY_RETURN_IF_ERROR(ByteSize(target.dtype, remake.shapes.back()).status());
  }
  remake.source = &source;
  remake.target = &target;
  remake.name = std::move(name);
  remake.may_alias = may_alias;
  remake.recipe = std::move(recipe);
  remake.shards.resize(remake.shapes.size());
  remake.others = made.pieces;
  return remake;
}

std::vector<Cluster::Remaking::SourcePiece> Cluster::Remaking::PiecesOf(const Remake& remake,
                                                                        int32_t position) const {
  std::vector<SourcePiece> out;
  if (remake.recipe.kind == Recipe::Kind::kPlan) {
    for (ShardPiece& piece : remake.recipe.plan->PiecesOf(position))
      out.push_back({piece.source, piece.made, {0, std::move(piece.from), std::move(piece.to)}});
    return out;
  }
  const ShardRef from = remake.source->shards[position];
  const Group& group = *s.FindGroup(from.group);
  const Box whole =
      remake.recipe.kind == Recipe::Kind::kSameBytes
          ? Box::Whole(1, {group.places[from.shard].bytes})
          : Box::Whole(BytesPerElement(remake.target->dtype), group.shape(from.shard).dims);
  if (whole.bytes() > 0) out.push_back({position, false, {0, whole, whole}});
  return out;
}

absl::StatusOr<bool> Cluster::Remaking::GoOnRemake(const Session& session, Remake& remake,
                                                   Making& made) {
  const Array& source = *remake.source;
  const ArraySpec& target = *remake.target;
  const IslandShards& part = remake.parts[remake.part];
  const int32_t position = part.positions[remake.at];
  const bool last_of_part = ++remake.at == part.positions.size();
  if (last_of_part) {
    ++remake.part;
    remake.at = 0;
  }
  const bool last = remake.part == remake.parts.size();
  const auto end_node = [&] {
    if (std::exchange(remake.node_open, false)) EndNode(made.nodes.back());
  };
  const auto shard_made = [&] {
    if (last_of_part) end_node();
    if (last) remake.out = Array{target, std::exchange(remake.shards, {}), absl::OkStatus()};
    return last;
  };

  const VirtualDevice& device = session.devices[target.sharding.devices()[position]];
  const std::vector<SourcePiece> pieces = PiecesOf(remake, position);
  remake.num_pieces += pieces.size();
  s.Charge(1 + pieces.size());
  ++remake.num_shards;
  made.pieces += pieces.size();
  if (made.pieces > kMaxPieces && remake.others > 0)
    return InvalidArgument(
        "{}: it and the arrays before it in the same request are made of more than {} pieces; "
        "reshard fewer arrays at once",
        remake.name, kMaxPieces);
  if (made.pieces > kMaxPieces)
    return InvalidArgument(
        "{}: {} of its {} shards are made of {} pieces of the array's {} shards, and at most "
        "{} are allowed; reshard it onto one device or a few first, and from there",
        remake.name, remake.num_shards, remake.shapes.size(), remake.num_pieces,
        source.shards.size(), kMaxPieces);
  if (remake.may_alias && pieces.size() == 1 && !pieces[0].made && pieces[0].piece.from.whole() &&
      pieces[0].piece.to.whole() && target.dtype == source.spec.dtype) {
    const ShardRef from = source.shards[pieces[0].source];
    const Group& holder = *s.FindGroup(from.group);
    if (holder.places[from.shard].device == device.device && holder.memory_kind == remake.kind &&
        holder.shape(from.shard) == remake.shapes[position]) {
      remake.shards[position] = from;
      return shard_made();
    }
  }
  if (remake.node_open &&
      made.nodes.back().node->pieces.size() + pieces.size() > s.options.node_pieces)
    end_node();
  if (!std::exchange(remake.node_open, true)) {
    Making::Made& one = made.nodes.emplace_back();
    one.group = s.groups.New(session.id, part.island, target.dtype, remake.kind);
    one.node = s.nodes.New(session.id, NodeKind::kReceive, part.island, remake.name);
    one.node->remade = true;
    one.node->outputs = {one.group->id};
  }
  Node& node = *made.nodes.back().node;
  Group& group = *made.nodes.back().group;
  const auto shard = static_cast<int32_t>(group.places.size());
  const int64_t bytes = *ByteSize(target.dtype, remake.shapes[position]);
  remake.shards[position] = {group.id, shard};
  group.places.push_back(
      {s.ExecutorOf(device.device)->id, device.local_ordinal, device.device, bytes});
  group.shapes.push_back(remake.shapes[position]);
  AddReservation(node.reservations, device.device, bytes, 0, node.reservations.size());
  for (const SourcePiece& piece : pieces) {
    const bool made = piece.made && !Planted(Bug::kMadeOfAnother);
    node.sources.push_back(made ? remake.shards[piece.source]
                                : source.shards[piece.source % source.shards.size()]);
    node.pieces.push_back({shard, piece.piece.from, piece.piece.to});
  }
  return shard_made();
}

void Cluster::Remaking::EndNode(const Making::Made& made) const {
  Node& node = *made.node;
  // It reads only its own sources, so it may succeed before another group is known to fail.
  node.reads = GroupsOf(node.sources, made.group->id);
}

absl::StatusOr<Cluster::Remaking::Remake> Cluster::Remaking::Resharded(const Session& session,
                                                                       const Array& source,
                                                                       const ArraySpec& target,
                                                                       bool may_alias,
                                                                       const Making& made) {
  const std::string type = ToString(source.spec.dtype, source.spec.shape);
  const Sharding& old = source.spec.sharding;
  const auto moved = old.WithDevices(target.sharding.devices(), target.sharding.memory_kind());
  if (moved.ok() && *moved == target.sharding &&
      (old.kind() == Sharding::Kind::kConcrete || old.kind() == Sharding::Kind::kConcreteEven)) {
    // The cut stays the same, so each shard is copied, wherever it lies in the array.
    return BeginRemake(session, source, target, "reshard of " + type, may_alias,
                       {Recipe::Kind::kSameShard, nullptr}, made);
  }
  std::vector<Resharding::Place> sources, targets;
  for (const ShardRef& ref : source.shards) {
    const Place& place = s.FindGroup(ref.group)->places[ref.shard];
    sources.push_back({place.executor, place.device});
  }
  for (const int32_t id : target.sharding.devices()) {
    if (id < 0 || static_cast<size_t>(id) >= session.devices.size()) break;  // Remake reports it
    const DeviceId device = session.devices[id].device;
    targets.push_back({s.ExecutorOf(device)->id, device});
  }
  targets.resize(target.sharding.devices().size());
  absl::StatusOr<Resharding> plan =
      Resharding::Plan(target.dtype, target.shape, old, target.sharding, sources, targets);
  if (!plan.ok()) return Annotate(plan.status(), "reshard of " + type);
  s.Charge((sources.size() + targets.size()) / 4);
  return BeginRemake(session, source, target, "reshard of " + type, may_alias,
                     {Recipe::Kind::kPlan, std::make_shared<Resharding>(*std::move(plan))}, made);
}

absl::StatusOr<Cluster::Remaking::Remake> Cluster::Remaking::Bitcasted(const Session& session,
                                                                       const Array& source,
                                                                       const ArraySpec& target,
                                                                       bool may_alias,
                                                                       const Making& made) {
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
    const Group& group = *s.FindGroup(from.group);
    FAIRWAY_ASSIGN_OR_RETURN(const std::string kind, MemoryKind(session.devices[devices[i]],
                                                                target.sharding.memory_kind()));
    if (kind != group.memory_kind)
      return InvalidArgument("{}: it stays on its devices and in its memory", name);
    const int64_t has = group.places[from.shard].bytes;
    if (bytes != has)
      return InvalidArgument("{}: shard {} has {} bytes, {} are asked for", name, i, has, bytes);
  }
  return BeginRemake(session, source, target, name, may_alias, {Recipe::Kind::kSameBytes, nullptr},
                     made);
}

// Reshards a value for a program's run. As in requests, its nodes enter the tables once all of it
// has been checked.
class Cluster::Remaking::ValueRemake final : public ValueRequest {
 public:
  ValueRemake(State& state, const Array& source, const ArraySpec& target, bool after_inputs,
              size_t pieces_before)
      : s(state),
        source_(source),
        target_(target),
        after_inputs_(after_inputs),
        made_(&state.record_bytes) {
    made_.pieces = pieces_before;
  }

  bool GoOn(Session& session) override {
    const uint64_t until = s.units + std::min<uint64_t>(32, s.options.turn_units);
    while (s.units < until) {
      if (!result.ok()) {
        s.Charge(1);
        if (GiveUp()) return true;
      } else if (!whole_) {
        if (absl::Status made = Make(session); !made.ok()) result = std::move(made);
      } else if (committed_ < made_.nodes.size()) {
        Commit(session);
      } else {
        s.views.Hold(remake_->out);
        for (const GroupId id : held) --s.FindGroup(id)->handle_refs;
        held.clear();
        array = std::move(remake_->out);
        pieces = made_.pieces;
        return true;
      }
    }
    return false;
  }
  bool GiveUp() override {
    if (!held.empty()) {
      const GroupId id = held.back();
      held.pop_back();
      s.views.Drop(Array{ArraySpec(), {{id, 0}}, absl::OkStatus()});
    } else if (made_.nodes.size() > committed_) {
      s.Charge(made_.nodes.back().node->pieces.size() / 4);
      made_.DropLast();
    } else {
      return true;
    }
    return false;
  }
  size_t made_bytes() const override { return made_.bytes.bytes(); }

 private:
  absl::Status Make(Session& session) {
    if (!remake_.has_value()) {
      FAIRWAY_ASSIGN_OR_RETURN(
          remake_, s.remaking.Resharded(session, source_, target_, /*may_alias=*/true, made_));
    }
    const size_t before = made_.nodes.size();
    FAIRWAY_ASSIGN_OR_RETURN(whole_, s.remaking.GoOnRemake(session, *remake_, made_));
    made_.Weigh(before == 0 ? 0 : before - 1);  // the one before may have grown
    return s.CheckMade(session, made_bytes());
  }
  void Commit(Session& session) {
    Making::Made made = made_.Take(committed_++);
    made.group->handle_refs = 1;
    held.push_back(made.group->id);
    Node& node = s.nodes.Insert(session, std::move(made));
    node.after_inputs = after_inputs_;
    s.ChargeShards(node.sources.size());
    s.nodes.Enqueue(node);
  }

  State& s;
  const Array& source_;
  const ArraySpec& target_;
  const bool after_inputs_;
  Making made_;
  std::optional<Remake> remake_;
  bool whole_ = false;  // all its nodes are in made_
  size_t committed_ = 0;
};

std::unique_ptr<ValueRequest> Cluster::Remaking::NewValue(const Array& source,
                                                          const ArraySpec& target,
                                                          bool after_inputs, size_t pieces) {
  return std::make_unique<ValueRemake>(s, source, target, after_inputs, pieces);
}

class Cluster::Requests::RemakeRequest final : public MakeRequest {
 public:
  RemakeRequest(State& state, bool bitcast, std::vector<uint64_t> in, Arrays::Targets targets,
                CopySemantics semantics, std::vector<uint64_t> out)
      : MakeRequest(state, std::move(in), semantics, std::move(out)),
        bitcast_(bitcast),
        targets_(std::move(targets)) {}

 private:
  absl::StatusOr<ArraySpec> TargetOf(const Session&, size_t item, const Array& source) override {
    FAIRWAY_ASSIGN_OR_RETURN(ArraySpec target, targets_.of(item, source.spec));
    if (!bitcast_ && source.spec.dtype != DType::kInvalid &&
        (source.spec.dtype != target.dtype || source.spec.shape != target.shape))
      return InvalidArgument("reshard: array {} is {}, it cannot become {}", in(item),
                             ToString(source.spec.dtype, source.spec.shape),
                             ToString(target.dtype, target.shape));
    return target;
  }
  absl::StatusOr<Array> Make(Session& session, const Array& source, const ArraySpec& target,
                             bool& again) override {
    if (!remake_.has_value()) {
      FAIRWAY_ASSIGN_OR_RETURN(
          remake_, bitcast_ ? s.remaking.Bitcasted(session, source, target, may_alias(), made_)
                            : s.remaking.Resharded(session, source, target, may_alias(), made_));
    }
    FAIRWAY_ASSIGN_OR_RETURN(const bool over, s.remaking.GoOnRemake(session, *remake_, made_));
    again = !over;
    if (!over) return Array();
    Array out = std::move(remake_->out);
    remake_.reset();
    return out;
  }
  void Donate(Array& source, const Array&) override {
    source.deleted = source.deleted || source.shards.empty();
    if (!source.shards.empty()) s.views.GiveAway(source);
  }

  const bool bitcast_;
  const Arrays::Targets targets_;
  std::optional<Remaking::Remake> remake_;
};

absl::StatusOr<std::vector<uint64_t>> Cluster::Remaking::RemakeAtOnce(
    SessionId id, bool bitcast, const std::vector<uint64_t>& in,
    const std::vector<ArraySpec>& targets, CopySemantics semantics,
    const std::vector<uint64_t>& out) {
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.FindSession(id));
  if (targets.size() != in.size())
    return InvalidArgument("{} arrays are to become {}", in.size(), targets.size());
  Requests::RemakeRequest request(
      s, bitcast, in, {targets.size(), [&](size_t i, const ArraySpec&) { return targets[i]; }},
      semantics, out);
  return s.requests.AtOnce(*session, request);
}

void Cluster::Remaking::RemakeMany(SessionId id, bool bitcast, std::vector<uint64_t> in,
                                   Arrays::Targets targets, CopySemantics semantics,
                                   std::vector<uint64_t> out, Done done, Each each) {
  const absl::StatusOr<Session*> session = s.FindSession(id);
  if (!session.ok()) return;
  if (targets.count != in.size())
    return s.requests.AnswerAtOnce(
        id, std::move(done),
        InvalidArgument("{} arrays are to become {}", in.size(), targets.count));
  s.requests.Begin(**session,
                   std::make_unique<Requests::RemakeRequest>(
                       s, bitcast, std::move(in), std::move(targets), semantics, std::move(out)),
                   std::move(done), std::move(each));
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Arrays::Reshard(
    SessionId session, const std::vector<uint64_t>& in, const std::vector<ArraySpec>& targets,
    CopySemantics semantics, const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  return state_->remaking.RemakeAtOnce(session, false, in, targets, semantics, out);
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Arrays::Bitcast(
    SessionId session, const std::vector<uint64_t>& in, const std::vector<ArraySpec>& targets,
    CopySemantics semantics, const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  return state_->remaking.RemakeAtOnce(session, true, in, targets, semantics, out);
}

void Cluster::Arrays::Reshard(SessionId session, std::vector<uint64_t> in, Arrays::Targets targets,
                              CopySemantics semantics, std::vector<uint64_t> out, Done done,
                              Each each) {
  const Operation operation(*state_);
  state_->remaking.RemakeMany(session, false, std::move(in), std::move(targets), semantics,
                              std::move(out), std::move(done), std::move(each));
}

void Cluster::Arrays::Bitcast(SessionId session, std::vector<uint64_t> in, Arrays::Targets targets,
                              CopySemantics semantics, std::vector<uint64_t> out, Done done,
                              Each each) {
  const Operation operation(*state_);
  state_->remaking.RemakeMany(session, true, std::move(in), std::move(targets), semantics,
                              std::move(out), std::move(done), std::move(each));
}

}  // namespace fairway
