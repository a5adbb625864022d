// SPDX-License-Identifier: Apache-2.0
// Requests that make one array from each of several inputs; the copy.
#include <map>
#include <memory>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/many.h"
#include "controller/cluster/placement.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {
namespace {

enum Phase { kCheck, kMake, kCommit, kDonate };

// Shards of one array with equal numbers have the same contents; -1: the sharding does not tell.
int64_t PartOf(const Sharding& sharding, int32_t position) {
  if (sharding.fully_replicated()) return 0;
  const bool tells = sharding.kind() == Sharding::Kind::kTiled || sharding.per_device();
  return tells ? sharding.tile_of()[position] : -1;
}

}  // namespace

void Making::Weigh(size_t first) {
  for (; first < nodes.size(); ++first) {
    Made& made = nodes[first];
    const size_t now = RecordBytesOf(*made.node) + RecordBytesOf(*made.group);
    bytes.Add(now);
    bytes.Remove(std::exchange(made.bytes, now));
  }
}

Making::Made Making::Take(size_t number) {
  bytes.Remove(nodes[number].bytes);
  return std::move(nodes[number]);
}

void Making::DropLast() {
  bytes.Remove(nodes.back().bytes);
  nodes.pop_back();
}

size_t Cluster::Requests::MakeRequest::Items(int phase) const {
  return phase == kDonate && semantics_ != CopySemantics::kDonateInput ? 0 : in_.size();
}

absl::Status Cluster::Requests::MakeRequest::Do(Session& session, int phase, size_t item,
                                                bool& again) {
  switch (phase) {
    case kCheck:
      return Check(session, item);
    case kMake:
      return MakeOne(session, item, again);
    case kCommit:
      Commit(session, item, again);
      if (item + 1 == in_.size() && !again && semantics_ != CopySemantics::kDonateInput)
        result = handles_.Take();
      return absl::OkStatus();
    default:
      if (!Planted(Bug::kForgetDonation))
        Donate(*sources_[item], session.arrays.at(handles_[item]));
      if (item + 1 == in_.size()) result = handles_.Take();
      return absl::OkStatus();
  }
}

absl::Status Cluster::Requests::MakeRequest::Check(Session& session, size_t item) {
  if (item == 0) {
    FAIRWAY_RETURN_IF_ERROR(handles_.CheckCount(in_.size()));
    handles_.Reserve(in_.size());
    sources_.reserve(in_.size());
  }
  FAIRWAY_ASSIGN_OR_RETURN(Array * source, Find(session, in_[item]));
  if (source->unknown) return source->error;
  FAIRWAY_RETURN_IF_ERROR(s.views.CheckUsable(*source, in_[item]));
  FAIRWAY_ASSIGN_OR_RETURN(ArraySpec target, TargetOf(session, item, *source));
  FAIRWAY_RETURN_IF_ERROR(s.requests.AddHandle(session, handles_));
  HoldIslandsOf(session, target);
  sources_.push_back(source);
  items_.push_back({std::move(target), Array(), 0});
  return absl::OkStatus();
}

void Cluster::Requests::MakeRequest::HoldIslandsOf(const Session& session,
                                                   const ArraySpec& target) {
  const std::vector<int32_t>& devices = target.sharding.devices();
  s.ChargeNamed(devices.size());
  IslandId last;
  for (const int32_t device : devices) {
    // Make refuses it.
    if (device < 0 || static_cast<size_t>(device) >= session.devices.size()) continue;
    const IslandId island = session.devices[device].island_id;
    if (island == std::exchange(last, island) || !islands_.insert(island).second) continue;
    s.Hold(session.id, hold, {island});
  }
}

absl::Status Cluster::Requests::MakeRequest::MakeOne(Session& session, size_t item, bool& again) {
  Item& of = items_[item];
  const Array& source = *sources_[item];
  if (!source.error.ok()) {
    of.array = Array{std::move(of.target), {}, source.error};
    return absl::OkStatus();
  }
  const size_t before = made_.nodes.size();
  FAIRWAY_ASSIGN_OR_RETURN(of.array, Make(session, source, of.target, again));
  of.nodes += made_.nodes.size() - before;
  made_.Weigh(before == 0 ? 0 : before - 1);  // the one before may have grown
  return s.CheckMade(session, made_.bytes.bytes());
}

void Cluster::Requests::MakeRequest::Commit(Session& session, size_t item, bool& again) {
  Item& of = items_.front();
  if (of.nodes > 0) {
    --of.nodes;
    Making::Made made = made_.Take(committed_++);
    made.group->handle_refs = 1;
    held.push_back(made.group->id);
    Node& node = s.nodes.Insert(session, std::move(made));
    s.ChargeShards(node.sources.size());
    s.nodes.Enqueue(node);
  }
  if (of.nodes > 0) {
    again = true;
    return;
  }
  s.views.Hold(of.array);
  for (const GroupId id : held) s.FindGroup(id)->handle_refs -= Planted(Bug::kHoldForEver) ? 0 : 1;
  held.clear();
  const uint64_t handle = handles_[item];
  if (each != nullptr) each(handle);
  session.arrays.emplace(handle, std::move(of.array));
  handles_.Used(item);
  items_.pop_front();
}

bool Cluster::Requests::MakeRequest::GiveUp() {
  if (!held.empty()) {
    const GroupId id = held.back();
    held.pop_back();
    s.views.Drop(Array{ArraySpec(), {{id, 0}}, absl::OkStatus()});
  } else if (made_.nodes.size() > committed_) {
    s.Charge(made_.nodes.back().node->pieces.size() / 4);
    made_.DropLast();
  } else if (!items_.empty()) {
    items_.pop_back();
  } else {
    return handles_.GiveUp();
  }
  return false;
}

// ---- copy

absl::StatusOr<Array> Cluster::Remaking::Copied(Session& session, const Array& source,
                                                const ArraySpec& target, bool may_alias,
                                                Making& made) {
  const Sharding& sharding = target.sharding;
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<IslandShards> parts,
                           SplitByIsland(session, sharding.devices()));
  std::vector<ShardRef> shards(source.shards.size());
  const VirtualDevice& first = session.devices[sharding.devices()[0]];
  FAIRWAY_ASSIGN_OR_RETURN(const std::string kind, MemoryKind(first, sharding.memory_kind()));
  for (const IslandShards& part : parts) {
    Node* node = nullptr;
    Group* group = nullptr;
    // A shard from another executor is sent to an executor once; the other devices there copy it.
    std::map<std::pair<ExecutorId, int64_t>, ShardRef> came;
    for (const int32_t position : part.positions) {
      ShardRef from = source.shards[position];
      const Group& from_group = *s.FindGroup(from.group);
      const VirtualDevice& device = session.devices[sharding.devices()[position]];
      const Place& place = from_group.places[from.shard];
      const bool stays = place.device == device.device && from_group.memory_kind == kind;
      if (stays && may_alias) {
        shards[position] = from;
        continue;
      }
      if (node == nullptr) {
        Making::Made& one = made.nodes.emplace_back();
        one.group = s.groups.New(session.id, part.island, source.spec.dtype, kind);
        one.node = s.nodes.New(session.id, NodeKind::kReceive, part.island,
                               "copy of " + ToString(source.spec.dtype, source.spec.shape));
        group = one.group.get();
        node = one.node.get();
        node->outputs = {group->id};
      }
      shards[position] = {group->id, static_cast<int32_t>(group->places.size())};
      const ExecutorId executor = s.ExecutorOf(device.device)->id;
      group->places.push_back({executor, device.local_ordinal, device.device, place.bytes});
      group->shapes.push_back(from_group.shape(from.shard));
      AddReservation(node->reservations, device.device, place.bytes, 0, node->reservations.size());
      const int64_t number = PartOf(source.spec.sharding, position);
      if (number >= 0 && place.executor != executor) {
        const auto [first, fresh] = came.emplace(std::pair{executor, number}, shards[position]);
        if (!fresh) from = first->second;
      }
      node->sources.push_back(from);
    }
    if (node == nullptr) continue;
    node->reads = GroupsOf(node->sources, group->id);
  }
  return Array{target, shards, absl::OkStatus()};
}

class Cluster::Requests::CopyRequest final : public MakeRequest {
 public:
  CopyRequest(State& state, std::vector<uint64_t> in, std::optional<std::vector<int32_t>> devices,
              std::optional<std::string> memory_kind, CopySemantics semantics,
              std::vector<uint64_t> out)
      : MakeRequest(state, std::move(in), semantics, std::move(out)),
        devices_(std::move(devices)),
        memory_kind_(std::move(memory_kind)) {}

 private:
  absl::StatusOr<ArraySpec> TargetOf(const Session&, size_t, const Array& source) override {
    const Sharding& old = source.spec.sharding;
    FAIRWAY_ASSIGN_OR_RETURN(Sharding sharding,
                             old.WithDevices(devices_.value_or(old.devices()),
                                             memory_kind_.value_or(old.memory_kind())));
    return ArraySpec{source.spec.dtype, source.spec.shape, std::move(sharding)};
  }
  absl::StatusOr<Array> Make(Session& session, const Array& source, const ArraySpec& target,
                             bool&) override {
    return s.remaking.Copied(session, source, target, may_alias(), made_);
  }
  // The copy also holds the shards that do not move. The source is deleted as soon as one of its
  // shards is.
  void Donate(Array& source, const Array& copy) override {
    ShardList moved;
    auto to = copy.shards.begin();
    for (const ShardRef from : source.shards) {
      if (*to != from) moved.push_back(from);
      ++to;
    }
    s.views.MarkDeleted(moved);
  }

  const std::optional<std::vector<int32_t>> devices_;
  const std::optional<std::string> memory_kind_;
};

absl::StatusOr<std::vector<uint64_t>> Cluster::Arrays::Copy(
    SessionId id, const std::vector<uint64_t>& in,
    const std::optional<std::vector<int32_t>>& devices,
    const std::optional<std::string>& memory_kind, CopySemantics semantics,
    const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(id));
  Requests::CopyRequest request(*state_, in, devices, memory_kind, semantics, out);
  return state_->requests.AtOnce(*session, request);
}

void Cluster::Arrays::Copy(SessionId id, std::vector<uint64_t> in,
                           std::optional<std::vector<int32_t>> devices,
                           std::optional<std::string> memory_kind, CopySemantics semantics,
                           std::vector<uint64_t> out, Done done, Each each) {
  const Operation operation(*state_);
  const absl::StatusOr<Session*> session = state_->FindSession(id);
  if (!session.ok()) return;
  state_->requests.Begin(
      **session,
      std::make_unique<Requests::CopyRequest>(*state_, std::move(in), std::move(devices),
                                              std::move(memory_kind), semantics, std::move(out)),
      std::move(done), std::move(each));
}

}  // namespace fairway
