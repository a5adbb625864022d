// SPDX-License-Identifier: Apache-2.0
// Makes launches, a few arguments or results at a time.
#include "controller/cluster/new_launch.h"

#include <utility>

#include "controller/cluster/state.h"

namespace fairway {

bool Cluster::Launches::GoOn(Session& session, NewLaunch& launch) {
  constexpr int kAtOnce = 16;
  constexpr uint64_t kUnitsAtOnce = 32;
  const uint64_t until = s.units + kUnitsAtOnce;
  for (int i = 0; i < kAtOnce && s.units < until && launch.phase != NewLaunch::Phase::kDone; ++i)
    MakeSome(session, launch);
  return launch.phase == NewLaunch::Phase::kDone;
}

void Cluster::Launches::MakeSome(Session& session, NewLaunch& launch) {
  using Phase = NewLaunch::Phase;
  const auto has = [&](size_t items) {
    if (launch.next < items) return true;
    launch.next = 0;
    launch.phase = static_cast<Phase>(static_cast<int>(launch.phase) + 1);
    return false;
  };
  switch (launch.phase) {
    case Phase::kPlace:
      // Its stored inputs are placed first, because the nodes that place them need lower ids.
      if (has(launch.poison.ok() ? launch.arguments.size() : 0)) return PlaceArgument(launch);
      return BeginNode(session, launch);
    case Phase::kOutputs:
      if (has(launch.spec->outputs.size())) return MakeOutput(session, launch);
      if (launch.poison.ok()) return;
      // It never runs. Its results hold the error: an argument's, or that it is too large.
      return FailNew(launch, launch.poison);
    case Phase::kInputs:
      if (has(launch.arguments.size())) ReadArgument(launch);
      return;
    case Phase::kDonate:
      if (has(launch.donatable.size()))
        s.views.MarkDeleted(launch.arguments[launch.donatable[launch.next++]]->shards);
      return;
    case Phase::kCredit:
      if (has(launch.donatable.size())) return CreditDonation(launch);
      return EndNew(session, launch);
    case Phase::kDone:
      return;
  }
}

void Cluster::Launches::PlaceArgument(NewLaunch& launch) {
  if (launch.next == 0) launch.inputs.reserve(launch.arguments.size());
  const ShardList& shards = launch.arguments[launch.next++]->shards;
  s.ChargeShards(shards.size());
  s.stored_groups.PlaceShards(launch.inputs.emplace_back(shards));
}

void Cluster::Launches::BeginNode(Session& session, NewLaunch& launch) {
  const ExecutableSpec& spec = *launch.spec;
  CodeLayout& layout = s.layouts.at(spec.id);
  Node& node = s.nodes.Make(session.id, NodeKind::kLaunch, spec.island, spec.name);
  launch.node = &node;
  launch.id = node.id;
  node.making = true;
  node.executable = &spec;
  node.after_inputs = spec.after_inputs;
  node.layout = &layout;
  ++layout.runs;
  node.reservations = layout.reservations;
  node.outputs.reserve(spec.outputs.size());
  if (launch.poison.ok()) {
    node.inputs.reserve(launch.arguments.size());
    node.donatable = launch.donatable;
  }
  if (launch.watch == 0) return;
  node.watch = launch.watch;
  ++session.watches.at(launch.watch).open;
}

void Cluster::Launches::MakeOutput(Session& session, NewLaunch& launch) {
  Node& node = *launch.node;
  const size_t o = launch.next++;
  const ValueType& type = launch.spec->outputs[o];
  Group& group = s.groups.Make(session.id, node.island, type.dtype, type.memory_kind);
  group.producer = node.id;
  group.shapes = {type.shard};
  group.places = node.layout->outputs[o].places;
  group.room = node.layout->outputs[o].room;
  group.replica_of = node.layout->outputs[o].replica_of;
  const size_t shards = launch.spec->devices.size();
  Array array{launch.types[o], ShardList::AllOf(group.id, shards), absl::OkStatus()};
  node.outputs.push_back(group.id);
  launch.output_bytes += RecordBytesOf(group);
  s.views.Hold(array);
  launch.put(o, std::move(array));
}

void Cluster::Launches::ReadArgument(NewLaunch& launch) {
  Node& node = *launch.node;
  const size_t a = launch.next++;
  const ShardList& shards = node.inputs.emplace_back(std::move(launch.inputs[a]));
  s.ChargeShards(shards.size());
  GroupUse* last = nullptr;
  GroupId of;
  uint32_t begin = 0;
  for (const ShardList::Run& run : shards.runs()) {
    if (last == nullptr || of != run.group) {
      const auto [use, fresh] = launch.uses.try_emplace(of = run.group, GroupUse{a});
      last = &use->second;
      if (fresh) s.nodes.Read(node, run.group);
    }
    last->Add(a, run.end - std::exchange(begin, run.end));
  }
}

void Cluster::Launches::CreditDonation(NewLaunch& launch) {
  Node& node = *launch.node;
  const ShardList& shards = node.inputs[launch.donatable[launch.next++]];
  s.ChargeShards(shards.size());
  // A buffer that a sequence takes over need not be free when its outputs are made. A node that is
  // held back gets no credit.
  if (IsSequence(node) || (node.after_inputs && node.unsettled_inputs > 0)) return;
  for (const GroupId id : GroupsOf(shards)) {
    if (!CertainlyTaken(*s.FindGroup(id), launch.uses.at(id))) return;
  }
  size_t i = 0;
  for (const ShardRef ref : shards) {
    const Place& place = s.FindGroup(ref.group)->places[ref.shard];
    if (const Reservation* r = ReservationOn(node, place.device, i++); r != nullptr)
      AddCredit(node, *r, std::min(Rounded(place.bytes), r->output - r->credit));
  }
}

void Cluster::Launches::EndNew(Session& session, NewLaunch& launch) {
  Node& node = *std::exchange(launch.node, nullptr);
  Nodes::Weigh(session, node, launch.output_bytes);
  // Its executors are asked for each of its parts.
  const size_t parts = node.executable->parts.size() * node.layout->parts.size();
  if (node.inputs.size() + node.outputs.size() + parts / kValuesPerUnit > kLargeValues)
    s.nodes.CountLarge(node);
  s.nodes.Enqueue(node);
}

void Cluster::Launches::FailNew(NewLaunch& launch, const absl::Status& why) {
  launch.phase = NewLaunch::Phase::kDone;
  Node& node = *std::exchange(launch.node, nullptr);
  node.making = false;
  s.nodes.Fail(node, why, launch.id);
}

void Cluster::Launches::GiveUp(NewLaunch& launch) {
  if (launch.node != nullptr) FailNew(launch, absl::CancelledError("the session has ended"));
}

}  // namespace fairway
