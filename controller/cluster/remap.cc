// SPDX-License-Identifier: Apache-2.0
// Remapping: arrays from shards of others. Views are lists of shards, so nothing moves.
#include <algorithm>
#include <utility>

#include "controller/cluster/placement.h"

namespace fairway {
namespace {

absl::Status CheckInput(size_t number, const ArraySpec& want, const ArraySpec& got) {
  if (want.dtype != got.dtype || want.shape != got.shape)
    return InvalidArgument("remap: input {} is {}, the plan says {}", number,
                           ToString(got.dtype, got.shape), ToString(want.dtype, want.shape));
  if (want.sharding.devices() != got.sharding.devices())
    return InvalidArgument("remap: input {} lies on other devices than the plan says", number);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Array> Cluster::State::Remapped(const Session& session, const ArraySpec& spec,
                                               const std::vector<RemapPlan::From>& from,
                                               const std::vector<const Array*>& in) {
  FAIRWAY_RETURN_IF_ERROR(SplitByIsland(session, spec.sharding.devices()).status());
  const VirtualDevice& first = session.devices[spec.sharding.devices()[0]];
  FAIRWAY_ASSIGN_OR_RETURN(const std::string kind, MemoryKind(first, spec.sharding.memory_kind()));
  Array out{spec, {}, absl::OkStatus()};
  for (size_t i = 0; i < from.size(); ++i) {
    const Array& source = *in[from[i].array];
    if (!source.error.ok()) {
      if (out.error.ok()) out.error = source.error;
      continue;
    }
    const ShardRef ref = source.shards[from[i].shard];
    const Group& group = *FindGroup(ref.group);
    const int32_t device = spec.sharding.devices()[i];
    if (group.places[ref.shard].device != session.devices[device].device)
      return InvalidArgument(
          "remap: shard {} of input {} does not lie on device {}, where the output has it",
          from[i].shard, from[i].array, device);
    if (group.memory_kind != kind)
      return InvalidArgument("remap: shard {} of input {} does not lie in memory \"{}\"",
                             from[i].shard, from[i].array, spec.sharding.memory_kind());
    const auto want = spec.sharding.ShardShape(spec.shape, static_cast<int>(i));
    if (want.ok() && *want != group.shape(ref.shard))
      return InvalidArgument(
          "remap: shard {} of input {} is {}, the output has {} there", from[i].shard,
          from[i].array, ToString(spec.dtype, group.shape(ref.shard)), ToString(spec.dtype, *want));
    out.shards.push_back(ref);
  }
  if (!out.error.ok()) out.shards.clear();
  return out;
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Remap(SessionId session_id,
                                                     const std::vector<uint64_t>& in,
                                                     const RemapPlan& plan, CopySemantics semantics,
                                                     const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  State& s = *state_;
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.FindSession(session_id));
  if (semantics == CopySemantics::kAlwaysCopy)
    return InvalidArgument("remap: it copies nothing; say that the inputs are reused or donated");
  if (in.size() != plan.inputs.size())
    return InvalidArgument("remap: {} arrays for a plan of {}", in.size(), plan.inputs.size());
  std::vector<Array*> arrays;
  for (size_t i = 0; i < in.size(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(Array * array, s.FindArray(session_id, in[i]));
    FAIRWAY_RETURN_IF_ERROR(s.CheckUsable(*array, in[i]));
    // The type of an error array may never have been known.
    if (array->error.ok()) FAIRWAY_RETURN_IF_ERROR(CheckInput(i, plan.inputs[i], array->spec));
    arrays.push_back(array);
  }
  const std::vector<const Array*> sources(arrays.begin(), arrays.end());
  std::vector<Array> made;
  for (size_t o = 0; o < plan.outputs.size(); ++o) {
    FAIRWAY_ASSIGN_OR_RETURN(made.emplace_back(),
                             s.Remapped(*session, plan.outputs[o], plan.shards[o], sources));
  }
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<uint64_t> handles, s.NewHandles(*session, out, made.size()));
  for (size_t o = 0; o < made.size(); ++o) {
    s.HoldView(made[o]);
    session->arrays.emplace(handles[o], std::move(made[o]));
  }
  if (semantics == CopySemantics::kDonateInput) {
    for (Array* array : arrays) s.GiveAway(*array);
  }
  s.Settle();
  return handles;
}

}  // namespace fairway
