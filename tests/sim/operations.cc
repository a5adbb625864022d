// SPDX-License-Identifier: Apache-2.0
// A client's operations, and what the reference interpreter makes of them.
#include <algorithm>
#include <set>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/sessions.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

namespace fairway::sim {
namespace {

int64_t Total(const Shape& shape) { return ByteSize(DType::kU64, shape).value(); }

}  // namespace

const VirtualDevice& Client::Virtual(int32_t id) const { return devices_[id]; }
DeviceId Client::DeviceOf(int32_t id) const { return devices_[id].device; }

std::vector<int32_t> Client::RandomDevices(size_t count, bool one_island) {
  Random& r = world_.random;
  std::vector<int32_t> ids;
  const int32_t slice = Virtual(r.Pick(usable_)).slice_index;
  for (const int32_t id : usable_) {
    if (!one_island || Virtual(id).slice_index == slice) ids.push_back(id);
  }
  r.Shuffle(ids);
  if (ids.size() > count) ids.resize(count);
  if (r.Percent(60)) std::sort(ids.begin(), ids.end());
  return ids;
}

ArraySpec Client::RandomSpec() {
  Random& r = world_.random;
  const int64_t elements = r.Percent(5) ? 0 : r.Percent(50) ? r.Between(1, 8) : r.Between(1, 40);
  const std::string kind = r.Percent(90) ? "" : r.Percent(50) ? "device" : "host";
  const int64_t form = r.Below(10);
  if (form < 4)
    return {DType::kU64, Vector(elements), Sharding::SingleDevice(RandomDevices(1, true)[0], kind)};
  const std::vector<int32_t> devices = RandomDevices(r.Between(1, 5), r.Percent(80));
  if (form < 6) return {DType::kU64, Vector(elements), Sharding::Replicated(devices, kind)};
  const auto pieces = static_cast<int64_t>(devices.size());
  std::vector<int64_t> tiles(devices.size());
  for (size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<int64_t>(i);
  if (r.Percent(30)) r.Shuffle(tiles);
  return {DType::kU64, Vector(elements * pieces),
          Sharding::Tiled(devices, {pieces}, tiles, kind).value()};
}

uint64_t Client::AnyHandle() {
  if (arrays_.empty()) return 0;
  auto it = arrays_.begin();
  std::advance(it, world_.random.Below(static_cast<int64_t>(arrays_.size())));
  return it->first;
}

std::vector<uint64_t> Client::Alike(const ModelArray& like) {
  std::vector<uint64_t> out;
  for (const auto& [handle, array] : arrays_) {
    if (array.spec.sharding.devices() == like.spec.sharding.devices() && !array.deleted())
      out.push_back(handle);
  }
  return out;
}

// ---- put

void Client::Provide(SessionId session, NodeId upload, int32_t blob, absl::StatusOr<BytesRef> bytes,
                     int64_t delay) {
  const auto provide = [this, epoch = world_.epoch, upload, blob, bytes = std::move(bytes)] {
    if (world_.controller == nullptr || world_.epoch != epoch) return;
    world_.controller->cluster().arrays().ProvideUpload(upload, blob, bytes);
    world_.controller->Settle();
  };
  if (delay == 0) return provide();
  world_.queue.After(delay, [this, provide] { world_.ToController(provide); });
}

void Client::DoPut() {
  Random& r = world_.random;
  const ArraySpec spec = RandomSpec();
  const std::vector<int32_t>& devices = spec.sharding.devices();
  const bool shared = spec.sharding.fully_replicated() && r.Percent(80);
  const int64_t copies =
      spec.sharding.fully_replicated() && !shared ? static_cast<int64_t>(devices.size()) : 1;
  const bool stored = Total(spec.shape) * copies <= world_.config.cluster.stored_array_bytes;
  if (stored) world_.Count("put is stored");
  if (spec.shape.num_elements() == 0) world_.Count("array without bytes");
  std::vector<int32_t> blobs;
  for (size_t i = 0; i < devices.size(); ++i) blobs.push_back(shared ? 0 : static_cast<int32_t>(i));
  std::vector<uint64_t> values;
  for (int32_t b = 0; b <= blobs.back(); ++b)
    values.push_back(spec.shape.num_elements() == 0 ? 0 : Mix(session_.value, next_value_++) | 1);
  if (spec.sharding.fully_replicated()) values.assign(values.size(), values[0]);
  const auto put = world_.controller->cluster().arrays().Put(
      session_, r.Percent(80) ? OutHandle() : 0, spec, blobs);
  if (!Expect(put.status(), "", "put")) return;
  world_.Trace("s{} put h{} n{}, {} shards", session_, put->handle, put->upload, devices.size());

  ModelArray array{spec, {}, {}};
  std::vector<std::shared_ptr<ModelGroup>> groups;
  std::vector<int32_t> slices;
  for (size_t i = 0; i < devices.size(); ++i) {
    const int32_t slice = Virtual(devices[i]).slice_index;
    auto at = static_cast<size_t>(std::find(slices.begin(), slices.end(), slice) - slices.begin());
    if (at == slices.size()) {
      slices.push_back(slice);
      groups.push_back(std::make_shared<ModelGroup>());
    }
    ModelGroup& group = *groups[at];
    array.shards.push_back({groups[at], static_cast<int32_t>(group.values.size())});
    group.values.push_back(values[blobs[i]]);
    group.devices.push_back(DeviceOf(devices[i]));
    group.kinds.push_back(spec.sharding.memory_kind() == "host" ? "host" : "");
    group.shapes.push_back(spec.sharding.ShardShape(spec.shape, static_cast<int>(i)).value());
    group.deleted.push_back(false);
    group.places |= BitsOf(group.devices.back());
    group.machines = group.places;
    group.stored = stored;
    group.words.emplace_back(group.shapes.back().num_elements(), values[blobs[i]]);
  }
  const int32_t bad = r.Percent(5) ? blobs[r.Below(static_cast<int64_t>(blobs.size()))] : -1;
  const bool wrong_size = r.Percent(30);
  const std::string text =
      wrong_size ? "bytes, expected" : fmt::format("upload-error#{}", put->upload);
  for (size_t i = 0; i < devices.size() && bad >= 0; ++i) {
    for (size_t g = 0; g < groups.size(); ++g) {
      if (array.shards[i].group == groups[g] && blobs[i] == bad && groups[g]->failures.empty())
        groups[g]->failures = {{NodeId(put->upload.value + g), text}};
    }
  }
  arrays_[put->handle] = array;
  world_.controller->Settle();
  const bool late = r.Percent(20);
  for (int32_t b = 0; b <= blobs.back() && session_; ++b) {
    const auto at = static_cast<int>(std::find(blobs.begin(), blobs.end(), b) - blobs.begin());
    const int64_t size = Total(spec.sharding.ShardShape(spec.shape, at).value());
    absl::StatusOr<BytesRef> bytes(BytesRef(BytesOf(values[b], b == bad ? size + 8 : size)));
    if (b == bad && !wrong_size) bytes = absl::UnknownError(text);
    Provide(session_, put->upload, b, std::move(bytes), late ? r.Between(1, 1000000) : 0);
  }
}

void Client::DoMakeError() {
  const ArraySpec spec = RandomSpec();
  const std::string text = fmt::format("made#{}.{}", session_, next_value_++);
  const auto made = world_.controller->cluster().arrays().MakeError(session_, OutHandle(), spec,
                                                                    absl::UnknownError(text));
  if (Expect(made.status(), "", "make error")) arrays_[*made] = {spec, {}, text};
  world_.controller->Settle();
}

// ---- views

void Client::DoCopy() {
  Random& r = world_.random;
  const uint64_t first = AnyHandle();
  if (first == 0) return;
  const ModelArray like = arrays_[first];
  std::vector<uint64_t> in = {first};
  const std::vector<uint64_t> alike = Alike(like);
  if (!like.deleted() && alike.size() > 1 && r.Percent(25)) {
    const uint64_t second = alike[r.Below(static_cast<int64_t>(alike.size()))];
    if (second != first) in.push_back(second);
  }
  std::optional<std::vector<int32_t>> devices;
  if (r.Percent(85)) devices = RandomDevices(like.spec.sharding.devices().size(), r.Percent(60));
  if (devices && devices->size() != like.spec.sharding.devices().size()) devices.reset();
  std::optional<std::string> kind;
  if (r.Percent(15)) kind = r.Percent(50) ? "host" : "device";
  const CopySemantics semantics = kSemantics[r.Below(3)];
  std::vector<uint64_t> out;
  for (size_t i = 0; i < in.size(); ++i) out.push_back(OutHandle());
  // If both are views of the same shards, donating the first one deletes the second.
  bool shared = false;
  for (const ModelShard& a : like.shards) {
    for (const ModelShard& b : arrays_[in.back()].shards)
      shared = shared || (in.size() > 1 && a.group == b.group);
  }
  if (shared) in.pop_back(), out.pop_back();
  world_.Trace("s{} copy {} -> {} by {}", session_, in[0], out[0], static_cast<int>(semantics));
  world_.controller->cluster().arrays().Copy(
      session_, in, devices, kind, semantics, out,
      Expects(like.deleted() ? "FAILED_PRECONDITION" : "", "copy", in.size()));
  Began();
  if (like.deleted()) return world_.controller->Settle();
  for (size_t a = 0; a < in.size(); ++a) {
    const ModelArray source = arrays_[in[a]];
    const Sharding& old = source.spec.sharding;
    const Sharding sharding =
        old.WithDevices(devices.value_or(old.devices()), kind.value_or(old.memory_kind())).value();
    ModelArray copy{{source.spec.dtype, source.spec.shape, sharding}, {}, source.error};
    std::map<int32_t, std::shared_ptr<ModelGroup>> made;
    std::map<int32_t, std::vector<std::shared_ptr<ModelGroup>>> reads;
    std::vector<ModelShard> moved;
    std::map<std::pair<uint64_t, int64_t>, ModelShard> came;  // by executor and part
    const std::string to_kind = sharding.memory_kind() == "host" ? "host" : "";
    for (size_t i = 0; i < source.shards.size(); ++i) {
      const ModelShard from = source.shards[i];
      const VirtualDevice& device = Virtual(sharding.devices()[i]);
      if (from.device() == device.device && from.group->kinds[from.index] == to_kind &&
          semantics != CopySemantics::kAlwaysCopy) {
        copy.shards.push_back(from);
        world_.Count("copy aliases");
        continue;
      }
      auto& group = made[device.slice_index];
      if (group == nullptr) group = std::make_shared<ModelGroup>();
      copy.shards.push_back({group, static_cast<int32_t>(group->values.size())});
      const int64_t part = old.fully_replicated()                 ? 0
                           : old.kind() == Sharding::Kind::kTiled ? old.tile_of()[i]
                                                                  : -1;
      bool again = false;  // it came to that executor already, for another device
      ModelShard origin = from;
      if (part >= 0 && BitsOf(from.device()) != BitsOf(device.device)) {
        const auto [first, fresh] = came.emplace(std::pair{BitsOf(device.device), part}, from);
        again = !fresh;
        origin = first->second;
      }
      group->values.push_back(origin.value());
      group->devices.push_back(device.device);
      group->kinds.push_back(to_kind);
      group->shapes.push_back(from.group->shapes[from.index]);
      group->deleted.push_back(false);
      group->places |= BitsOf(device.device);
      group->machines |= group->places;
      moved.push_back(from);
      if (reads[device.slice_index].empty()) group->stored = true;  // so far
      group->stored = group->stored && origin.group->stored &&
                      Total(group->shapes.back()) <= world_.config.cluster.stored_array_bytes;
      group->words.push_back(origin.words());
      if (again) {
        world_.Count("copy copies what came");
        continue;
      }
      group->machines |= from.group->machines;
      group->surely_failed = group->surely_failed || from.group->surely_failed;
      reads[device.slice_index].push_back(from.group);
    }
    for (auto& [slice, group] : made) {
      group->failures = Inherit(reads[slice], world_.config.memory != 0);
      if (group->stored) world_.Count("copy is stored");
    }
    if (semantics == CopySemantics::kDonateInput) {
      for (const ModelShard& shard : moved) shard.group->deleted[shard.index] = true;
      if (!moved.empty()) world_.Count("copy donates");
    }
    if (made.size() > 1) world_.Count("copy over islands");
    arrays_[out[a]] = std::move(copy);
  }
  world_.controller->Settle();
}

void Client::DoAssemble() {
  Random& r = world_.random;
  const uint64_t first = AnyHandle();
  if (first == 0) return;
  const ModelArray& base = arrays_[first];
  if (base.shards.size() != 1 || base.deleted()) return;
  const Shape shape = base.spec.shape;
  const DType dtype = base.spec.dtype;
  std::vector<uint64_t> in;
  std::vector<int32_t> devices;
  for (const auto& [handle, array] : arrays_) {
    const bool fits = array.spec.sharding.num_shards() == 1 && array.spec.shape == shape &&
                      array.spec.dtype == dtype && !array.deleted();
    const int32_t device = array.spec.sharding.devices()[0];
    if (!fits || std::find(devices.begin(), devices.end(), device) != devices.end() ||
        r.Percent(20))
      continue;
    in.push_back(handle);
    devices.push_back(device);
  }
  if (in.empty()) return;
  const auto pieces = static_cast<int64_t>(in.size());
  std::vector<int64_t> tiles(in.size());
  for (size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<int64_t>(i);
  const ArraySpec spec{r.Percent(30) ? DType::kInvalid : dtype, Vector(shape.dims[0] * pieces),
                       Sharding::Tiled(devices, {pieces}, tiles).value()};
  const auto made = world_.controller->cluster().arrays().Assemble(
      session_, spec, in, CopySemantics::kReuseInput, OutHandle());
  if (Expect(made.status(), "", "assemble")) {
    ModelArray array{spec, {}, {}};
    array.spec.dtype = dtype;
    for (const uint64_t handle : in) {
      const ModelArray& piece = arrays_[handle];
      if (array.error.empty()) array.error = piece.error;
      if (piece.error.empty()) array.shards.push_back(piece.shards[0]);
    }
    if (!array.error.empty()) array.shards.clear();
    world_.Count("assemble");
    arrays_[*made] = std::move(array);
  }
  world_.controller->Settle();
}

void Client::DoDisassemble() {
  const uint64_t handle = AnyHandle();
  if (handle == 0) return;
  const ModelArray array = arrays_[handle];
  std::vector<uint64_t> out;
  for (int i = 0; i < array.spec.sharding.num_shards(); ++i) out.push_back(OutHandle());
  const auto made = world_.controller->cluster().arrays().Disassemble(
      session_, handle, CopySemantics::kReuseInput, out);
  if (Expect(made.status(), array.deleted() ? "FAILED_PRECONDITION" : "", "disassemble")) {
    for (size_t i = 0; i < made->size(); ++i) {
      const Shape shape =
          array.spec.sharding.ShardShape(array.spec.shape, static_cast<int>(i)).value();
      ModelArray piece{{array.spec.dtype, shape, array.spec.sharding.OfShard(static_cast<int>(i))},
                       {},
                       array.error};
      if (array.error.empty()) piece.shards = {array.shards[i]};
      arrays_[(*made)[i]] = std::move(piece);
    }
    world_.Count("disassemble");
  }
  world_.controller->Settle();
}

void Client::DoReplicatedShard() {
  const uint64_t handle = AnyHandle();
  if (handle == 0) return;
  const ModelArray array = arrays_[handle];
  const bool replicated = array.spec.sharding.fully_replicated();
  const auto made = world_.controller->cluster().arrays().FullyReplicatedShard(
      session_, handle, CopySemantics::kReuseInput, OutHandle());
  if (Expect(made.status(),
             array.deleted() ? "FAILED_PRECONDITION"
             : replicated    ? ""
                             : "not fully replicated",
             "fully replicated shard")) {
    ModelArray shard{
        {array.spec.dtype, array.spec.shape, array.spec.sharding.OfShard(0)}, {}, array.error};
    if (array.error.empty()) shard.shards = {array.shards[0]};
    arrays_[*made] = std::move(shard);
    world_.Count("replicated shard");
  }
  world_.controller->Settle();
}

void Client::DoDelete() {
  const uint64_t handle = AnyHandle();
  if (handle == 0) return;
  world_.controller->cluster().arrays().Delete(session_, {handle}, Expects("", "delete"));
  Began();
  world_.Trace("s{} deletes h{}", session_, handle);
  arrays_[handle].Delete();
  world_.Count("delete");
  world_.controller->Settle();
}

void Client::DoDestruct() {
  Random& r = world_.random;
  std::vector<uint64_t> handles;
  for (const auto& [handle, array] : arrays_) {
    if (r.Percent(arrays_.size() > 12 ? 40 : 15)) handles.push_back(handle);
  }
  r.Shuffle(handles);
  const bool unknown = r.Percent(5);
  for (const uint64_t handle : handles) arrays_.erase(handle);
  if (unknown) handles.push_back(OutHandle());
  world_.Trace("s{} destructs {} arrays", session_, handles.size());
  world_.controller->cluster().arrays().Destruct(session_, handles,
                                                 Expects(unknown ? "NOT_FOUND" : "", "destruct"));
  Began();
  world_.controller->Settle();
}

void Client::DoLook() {
  const uint64_t handle = AnyHandle();
  Cluster& cluster = world_.controller->cluster();
  cluster.sessions().BacklogOf(session_);
  if (handle == 0) return;
  const auto deleted = cluster.arrays().IsDeleted(session_, handle);
  if (!deleted.ok() || *deleted != arrays_[handle].deleted())
    world_.Broken("API", "s{}: array {} says deleted = {}, expected {}", session_, handle,
                  deleted.ok() ? fmt::format("{}", *deleted) : Describe(deleted.status()),
                  arrays_[handle].deleted());
  const ArraySpec* spec = cluster.arrays().Spec(session_, handle);
  if (spec == nullptr || spec->shape != arrays_[handle].spec.shape ||
      spec->sharding.devices() != arrays_[handle].spec.sharding.devices())
    world_.Broken("API", "s{}: array {} has another type than expected", session_, handle);
}

// ---- asking

Client::Request::Item Client::ItemOf(uint64_t handle, bool fetch) const {
  Request::Item item;
  const auto it = arrays_.find(handle);
  if (it == arrays_.end()) {
    item.never = "NOT_FOUND";
    return item;
  }
  const ModelArray& array = it->second;
  if (!array.error.empty()) {
    item.never = array.error;
  } else if (array.deleted()) {
    item.never = "FAILED_PRECONDITION";
  } else if (fetch && array.shards.size() != 1 && !array.spec.sharding.fully_replicated()) {
    item.never = "different shards";
  } else {
    for (const ModelShard& shard : array.shards) {
      if (std::find(item.groups.begin(), item.groups.end(), shard.group) == item.groups.end())
        item.groups.push_back(shard.group);
      item.gone = item.gone || shard.group->surely_failed;
      if (fetch) break;
    }
  }
  return item;
}

void Client::Ask(bool fetch, const std::vector<uint64_t>& handles, std::string_view what) {
  const uint64_t token = next_token_++;
  Request request;
  request.fetch = fetch;
  request.what = fmt::format("{} of {}", what, handles[0]);
  for (const uint64_t handle : handles) {
    request.items.push_back(ItemOf(handle, fetch));
    const auto it = arrays_.find(handle);
    if (fetch && it != arrays_.end() && !it->second.shards.empty())
      request.value = it->second.shards[0].seen();
  }
  requests_[token] = std::move(request);
  world_.Trace("s{} {} of h{}, token {}", session_, fetch ? "fetch" : "watch", handles[0], token);
  if (fetch) {
    world_.controller->cluster().arrays().Fetch(session_, token, handles[0]);
  } else {
    world_.controller->cluster().arrays().Watch(session_, token, handles);
    Began();
  }
}

void Client::DoWatch() {
  std::vector<uint64_t> handles;
  for (int64_t i = world_.random.Between(1, 3); i > 0; --i) {
    const uint64_t handle = AnyHandle();
    if (handle != 0 && std::find(handles.begin(), handles.end(), handle) == handles.end())
      handles.push_back(handle);
  }
  if (handles.empty()) return;
  Ask(false, handles, "watch");
  world_.controller->Settle();
}

void Client::DoFetch() {
  const uint64_t handle = AnyHandle();
  if (handle == 0) return;
  Ask(true, {handle}, "fetch");
  world_.controller->Settle();
}

void Client::Await(uint64_t token, NodeId node, std::shared_ptr<ModelGroup> outcome) {
  Request request;
  request.what = fmt::format("watch of node {}", node);
  request.items.push_back({"", false, {std::move(outcome)}});
  requests_[token] = std::move(request);
}

void Client::TwoResultsOfOneHandle() {
  const uint64_t handle = AnyHandle(), out = OutHandle();
  if (handle == 0) return;
  const auto made = world_.controller->cluster().arrays().Copy(
      session_, {handle, handle}, std::nullopt, std::nullopt, CopySemantics::kReuseInput,
      {out, out});
  Expect(made.status(), arrays_[handle].deleted() ? "FAILED_PRECONDITION" : "ALREADY_EXISTS",
         "copy to one handle twice");
}

// Uses handles that are not this session's.
void Client::DoWrong() {
  uint64_t foreign = OutHandle();
  for (const auto& other : world_.clients) {
    if (other.get() == this || !other->session_ || other->arrays_.empty()) continue;
    const uint64_t handle = other->arrays_.begin()->first;
    if (!arrays_.contains(handle) && handle < kFirstServerHandle) foreign = handle;
  }
  world_.Count("foreign handle");
  Cluster& cluster = world_.controller->cluster();
  switch (world_.random.Below(6)) {
    case 0:
      Ask(true, {foreign}, "fetch");
      break;
    case 1:
      Ask(false, {foreign}, "watch");
      break;
    case 2:
      Expect(cluster.arrays().Delete(session_, {foreign}), "NOT_FOUND",
             "delete of a foreign array");
      break;
    case 3:
      Expect(
          cluster.arrays()
              .Copy(session_, {foreign}, std::nullopt, std::nullopt, CopySemantics::kReuseInput, {})
              .status(),
          "NOT_FOUND", "copy of a foreign array");
      break;
    case 4:
      TwoResultsOfOneHandle();
      break;
    default:
      Expect(cluster.executables().Execute(session_, foreign, {}, {}, {}).status(), "NOT_FOUND",
             "execute of a foreign handle");
      break;
  }
  world_.controller->Settle();
}

}  // namespace fairway::sim
