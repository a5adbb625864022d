// SPDX-License-Identifier: Apache-2.0
// Operations that make arrays from the shards of others.
#include <algorithm>

#include <fmt/ranges.h>

#include "controller/cluster/arrays.h"
#include "core/reshard.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/pieces.h"
#include "tests/sim/world.h"

namespace fairway::sim {

// Deals shards of some arrays, all of one shape and memory kind, out to other arrays.
void Client::DoRemap() {
  Random& r = world_.random;
  RemapPlan plan;
  std::vector<uint64_t> in;
  std::vector<RemapPlan::From> pool;
  std::string kind;
  Shape shape;
  DType dtype = DType::kInvalid;
  for (int64_t i = r.Between(1, 3); i > 0; --i) {
    const uint64_t handle = AnyHandle();
    if (handle == 0 || arrays_[handle].deleted()) continue;
    const ArraySpec& spec = arrays_[handle].spec;
    if (in.empty()) dtype = spec.dtype;
    if (spec.dtype != dtype) continue;
    const auto number = static_cast<int32_t>(in.size());
    in.push_back(handle);
    plan.inputs.push_back(spec);
    for (int32_t shard = 0; shard < spec.sharding.num_shards(); ++shard) {
      const Shape have = spec.sharding.ShardShape(spec.shape, shard).value();
      // An assembled array may have its shards in other memories than it says.
      const auto& shards = arrays_[handle].shards;
      const std::string memory = !shards.empty() ? shards[shard].group->kinds[shards[shard].index]
                                 : spec.sharding.memory_kind() == "host" ? "host"
                                                                         : "";
      if (pool.empty()) shape = have, kind = memory;
      if (have == shape && memory == kind) pool.push_back({number, shard});
    }
  }
  if (pool.empty()) return;
  r.Shuffle(pool);
  plan.shards.resize(r.Between(1, 3));
  std::vector<std::vector<int32_t>> devices(plan.shards.size());
  for (const RemapPlan::From& from : pool) {
    const int64_t o = r.Below(static_cast<int64_t>(plan.shards.size()));
    const int32_t device = plan.inputs[from.array].sharding.devices()[from.shard];
    if (std::find(devices[o].begin(), devices[o].end(), device) != devices[o].end()) continue;
    plan.shards[o].push_back(from);
    devices[o].push_back(device);
  }
  std::erase_if(plan.shards, [](const auto& shards) { return shards.empty(); });
  std::erase_if(devices, [](const auto& list) { return list.empty(); });
  std::vector<uint64_t> out;
  for (const std::vector<int32_t>& list : devices) {
    const auto pieces = static_cast<int64_t>(list.size());
    std::vector<int64_t> tiles(list.size());
    for (size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<int64_t>(i);
    plan.outputs.push_back({dtype, Vector(shape.dims[0] * pieces),
                            Sharding::Tiled(list, {pieces}, tiles, kind).value()});
    out.push_back(OutHandle());
  }
  const CopySemantics semantics = kSemantics[r.Below(3)];
  const bool copy = semantics == CopySemantics::kAlwaysCopy;
  world_.Trace("s{} remap [{}] -> [{}] by {}", session_, fmt::join(in, " "), fmt::join(out, " "),
               static_cast<int>(semantics));
  world_.controller->cluster().arrays().Remap(
      session_, in, plan, semantics, out,
      Expects(copy ? "INVALID_ARGUMENT" : "", "remap", out.size()));
  Began();
  if (!copy) {
    std::vector<ModelArray> arrays;
    for (size_t o = 0; o < out.size(); ++o) {
      ModelArray array{plan.outputs[o], {}, {}};
      for (const RemapPlan::From& from : plan.shards[o]) {
        const ModelArray& source = arrays_[in[from.array]];
        if (array.error.empty()) array.error = source.error;
        if (source.error.empty()) array.shards.push_back(source.shards[from.shard]);
      }
      if (!array.error.empty()) array.shards.clear();
      arrays.push_back(std::move(array));
    }
    for (size_t o = 0; o < out.size(); ++o) arrays_[out[o]] = std::move(arrays[o]);
    world_.Count("remap");
    if (semantics == CopySemantics::kDonateInput) {
      world_.Count("remap donates");
      for (const uint64_t handle : in) {
        arrays_[handle].shards.clear();
        arrays_[handle].gone = true;
      }
    }
  }
  world_.controller->Settle();
}

Resharding::Place Client::PlaceOf(DeviceId device) const {
  const Machine* machine = world_.controller->MachineOf(device);
  return {ExecutorId(static_cast<uint32_t>(world_.IndexOf(machine) + 1)), device};
}

// The shards in the order in which they are made: one island after the other. A shard that is made
// of copies elsewhere takes them in turns, so the order decides which of them it needs.
std::vector<int32_t> Client::ByIsland(const std::vector<int32_t>& devices) const {
  std::vector<int32_t> slices, order;
  for (const int32_t device : devices) {
    const int32_t slice = Virtual(device).slice_index;
    if (std::find(slices.begin(), slices.end(), slice) == slices.end()) slices.push_back(slice);
  }
  for (const int32_t slice : slices) {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (Virtual(devices[i]).slice_index == slice) order.push_back(static_cast<int32_t>(i));
    }
  }
  return order;
}

ModelArray Client::Remade(const ModelArray& source, const ArraySpec& spec, bool may_alias,
                          const PiecesOf& pieces_of) {
  ModelArray array{spec, {}, source.error};
  if (!source.error.empty()) return array;
  const std::vector<int32_t>& devices = spec.sharding.devices();
  const std::string kind = spec.sharding.memory_kind() == "host" ? "host" : "";
  std::vector<std::shared_ptr<ModelGroup>> all;  // in the order of their nodes
  std::map<const ModelGroup*, std::vector<std::shared_ptr<ModelGroup>>> reads;
  std::map<int32_t, std::shared_ptr<ModelGroup>> groups;  // the latest group on each island
  std::map<const ModelGroup*, size_t> num_pieces;
  std::map<const ModelGroup*, int64_t> cut_of;  // bytes that are not copies of whole shards
  const ClusterOptions& limits = world_.config.cluster;
  array.shards.resize(devices.size());
  std::vector<std::vector<ShardPiece>> made_of(devices.size());
  for (const int32_t i : ByIsland(devices)) {
    const VirtualDevice& device = Virtual(devices[i]);
    ModelShard same;
    std::vector<std::shared_ptr<ModelGroup>> used;
    const std::vector<ShardPiece>& pieces = made_of[i] = pieces_of(i);
    for (const ShardPiece& piece : pieces) {
      if (piece.made) {
        world_.Count("reshard copies what came");
        used.push_back(array.shards[piece.source].group);
        continue;
      }
      const ModelShard& from = source.shards[piece.source];
      used.push_back(from.group);
      const bool stays = from.device() == device.device && from.group->kinds[from.index] == kind;
      if (stays && piece.from.whole() && piece.to.whole()) same = from;
    }
    if (same.group != nullptr && may_alias && spec.dtype == source.spec.dtype) {
      world_.Count("reshard aliases");
      array.shards[i] = same;
      continue;
    }
    auto& group = groups[device.slice_index];
    if (group != nullptr && num_pieces[group.get()] + pieces.size() > limits.node_pieces) {
      world_.Count("reshard by several nodes");
      group = nullptr;
    }
    if (group == nullptr) {
      group = std::make_shared<ModelGroup>();
      group->stored = true;  // so far
      all.push_back(group);
    }
    num_pieces[group.get()] += pieces.size();
    array.shards[i] = {group, static_cast<int32_t>(group->values.size())};
    group->values.push_back(0);
    group->devices.push_back(device.device);
    group->kinds.push_back(kind);
    group->shapes.push_back(spec.sharding.ShardShape(spec.shape, i).value());
    group->deleted.push_back(false);
    group->words.emplace_back(group->shapes.back().num_elements());
    group->places |= BitsOf(device.device);
    group->machines |= group->places;
    const int64_t bytes = 8 * group->shapes.back().num_elements();
    if (pieces.size() != 1 || !pieces[0].from.whole() || !pieces[0].to.whole())
      cut_of[group.get()] += bytes;
    const int64_t largest = std::max(bytes, cut_of[group.get()]);
    group->stored = group->stored && largest <= limits.stored_array_bytes;
    for (const auto& read : used) {
      if (read == group) continue;
      group->machines |= read->machines;
      group->surely_failed = group->surely_failed || read->surely_failed;
      reads[group.get()].push_back(read);
    }
  }
  for (auto& group : all) {
    const auto& read = reads[group.get()];
    const bool stored = std::ranges::all_of(read, [](const auto& from) { return from->stored; });
    group->stored = group->stored && !read.empty() && stored;
    if (group->stored) world_.Count("reshard is stored");
    group->failures = Inherit(read, world_.config.memory != 0);
  }
  for (const int32_t i : ByIsland(devices)) {
    if (std::ranges::count(all, array.shards[i].group)) Assemble(source, array, i, made_of[i]);
  }
  if (groups.size() > 1) world_.Count("reshard over islands");
  return array;
}

// Sets the value of shard `shard` of `array`, which is made of `source`.
void Client::Assemble(const ModelArray& source, const ModelArray& array, int32_t shard,
                      const std::vector<ShardPiece>& pieces) {
  const ModelShard& made = array.shards[shard];
  ModelGroup& group = *made.group;
  std::vector<uint64_t>& words = group.words[made.index];
  Pieces values;
  for (const ShardPiece& piece : pieces) {
    const ModelShard& from = piece.made ? array.shards[piece.source] : source.shards[piece.source];
    values[piece.to.origin] = piece.made ? from.value() : BoxedValue(from.value(), piece.from);
    if (!group.stored) continue;
    const std::vector<uint64_t>& has = from.group->words[from.index];
    if (piece.from.whole() && piece.to.whole()) {  // of any type
      words = has;
    } else {
      std::copy_n(has.begin() + piece.from.origin[0], piece.from.extents[0],
                  words.begin() + piece.to.origin[0]);
    }
  }
  group.values[made.index] = group.stored     ? ValueOfWords(words)
                             : values.empty() ? 0
                                              : Assembled(values);
}

void Client::DonateAll(uint64_t handle) {
  arrays_[handle].shards.clear();
  arrays_[handle].gone = true;
}

// Makes another cut over other devices, sometimes an uneven one.
void Client::DoReshard() {
  Random& r = world_.random;
  const uint64_t handle = AnyHandle();
  if (handle == 0) return;
  const ModelArray source = arrays_[handle];
  ArraySpec spec{source.spec.dtype, source.spec.shape, {}};
  const std::vector<int32_t> devices = RandomDevices(r.Between(1, 6), r.Percent(60));
  const std::string kind = r.Percent(90) ? "" : "host";
  const auto count = static_cast<int64_t>(devices.size());
  const int64_t pieces = r.Percent(70) ? count : r.Between(1, count);
  std::vector<int64_t> tiles;
  for (int64_t i = 0; i < count; ++i) tiles.push_back(i % pieces);
  if (r.Percent(30)) r.Shuffle(tiles);
  spec.sharding = r.Percent(20) ? Sharding::Replicated(devices, kind)
                                : Sharding::Tiled(devices, {pieces}, tiles, kind).value();
  const CopySemantics semantics = kSemantics[r.Below(3)];
  const uint64_t out = OutHandle();
  world_.Trace("s{} reshard {} -> {} by {}", session_, handle, out, static_cast<int>(semantics));
  world_.controller->cluster().arrays().Reshard(
      session_, {handle}, {1, [spec](size_t, const ArraySpec&) { return spec; }}, semantics, {out},
      Expects(source.deleted() ? "FAILED_PRECONDITION" : "", "reshard", 1));
  Began();
  if (source.deleted()) return world_.controller->Settle();
  world_.Count("reshard");
  std::vector<Resharding::Place> from_places, to_places;
  for (const ModelShard& shard : source.shards) from_places.push_back(PlaceOf(shard.device()));
  for (const int32_t device : devices) to_places.push_back(PlaceOf(Virtual(device).device));
  std::optional<Resharding> plan;
  if (source.error.empty())
    plan = Resharding::Plan(spec.dtype, spec.shape, source.spec.sharding, spec.sharding,
                            from_places, to_places)
               .value();
  ModelArray array = Remade(source, spec, semantics != CopySemantics::kAlwaysCopy,
                            [&](int32_t shard) { return plan->PiecesOf(shard); });
  arrays_[out] = std::move(array);
  if (semantics == CopySemantics::kDonateInput) {
    world_.Count("reshard donates");
    DonateAll(handle);
  }
  world_.controller->Settle();
}

// Gives the same bytes another type.
void Client::DoBitcast() {
  Random& r = world_.random;
  const uint64_t handle = AnyHandle();
  if (handle == 0) return;
  const ModelArray source = arrays_[handle];
  ArraySpec spec = source.spec;
  const DType other = r.Percent(50) ? DType::kS64 : DType::kF64;
  spec.dtype = spec.dtype == DType::kU64 ? other : DType::kU64;
  std::string refusal;
  // An assembled array may have its shards in other memories than it says.
  const std::string kind = spec.sharding.memory_kind() == "host" ? "host" : "";
  for (const ModelShard& shard : source.shards) {
    if (shard.group->kinds[shard.index] != kind) refusal = "stays on its devices";
  }
  if (refusal.empty() && source.error.empty() && r.Percent(10) && spec.shape.num_elements() > 0) {
    spec.dtype = DType::kU32;
    refusal = "bytes";
  }
  if (source.deleted()) refusal = "FAILED_PRECONDITION";
  const CopySemantics semantics = kSemantics[r.Below(3)];
  const uint64_t out = OutHandle();
  world_.Trace("s{} bitcast {} -> {} by {}", session_, handle, out, static_cast<int>(semantics));
  world_.controller->cluster().arrays().Bitcast(
      session_, {handle}, {1, [spec](size_t, const ArraySpec&) { return spec; }}, semantics, {out},
      Expects(refusal, "bitcast", 1));
  Began();
  if (!refusal.empty()) return world_.controller->Settle();
  world_.Count("bitcast");
  ModelArray array =
      Remade(source, spec, semantics != CopySemantics::kAlwaysCopy, [&](int32_t shard) {
        const ModelShard& from = source.shards[shard];
        const int64_t bytes = 8 * from.group->shapes[from.index].num_elements();
        const Box whole = Box::Whole(1, {bytes});
        std::vector<ShardPiece> pieces;
        if (bytes > 0) pieces.push_back({shard, false, whole, whole});
        return pieces;
      });
  arrays_[out] = std::move(array);
  if (semantics == CopySemantics::kDonateInput) DonateAll(handle);
  world_.controller->Settle();
}

}  // namespace fairway::sim
