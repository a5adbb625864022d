// SPDX-License-Identifier: Apache-2.0
// Remapping: makes arrays of shards of others. Views are lists of shards, so nothing moves.
#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/cluster/many.h"
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

absl::StatusOr<Array> Cluster::Remaking::Remapped(const Session& session, const ArraySpec& spec,
                                                  const std::vector<RemapPlan::From>& from,
                                                  const std::vector<Array*>& in) {
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
    const Group& group = *s.FindGroup(ref.group);
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

class Cluster::Requests::RemapRequest final : public ManyRequest {
 public:
  RemapRequest(State& state, std::vector<uint64_t> in, RemapPlan plan, CopySemantics semantics,
               std::vector<uint64_t> out)
      : ManyRequest(state, 4),
        in_(std::move(in)),
        plan_(std::move(plan)),
        semantics_(semantics),
        handles_(std::move(out)) {}
  bool GiveUp() override {
    if (made_.empty()) return handles_.GiveUp();
    made_.pop_back();
    return false;
  }

 private:
  enum Phase { kCheck, kMake, kCommit, kDonate };

  size_t Items(int phase) const override {
    if (phase == kCheck) return in_.size();
    if (phase == kDonate) return semantics_ == CopySemantics::kDonateInput ? in_.size() : 0;
    return plan_.outputs.size();
  }
  absl::Status Do(Session& session, int phase, size_t item, bool&) override {
    switch (phase) {
      case kCheck: {
        FAIRWAY_ASSIGN_OR_RETURN(Array * array, Find(session, in_[item]));
        if (array->unknown) return array->error;
        FAIRWAY_RETURN_IF_ERROR(s.views.CheckUsable(*array, in_[item]));
        if (array->error.ok())
          FAIRWAY_RETURN_IF_ERROR(CheckInput(item, plan_.inputs[item], array->spec));
        arrays_.push_back(array);
        return absl::OkStatus();
      }
      case kMake: {
        if (item == 0) FAIRWAY_RETURN_IF_ERROR(handles_.CheckCount(plan_.outputs.size()));
        FAIRWAY_ASSIGN_OR_RETURN(
            made_.emplace_back(),
            s.remaking.Remapped(session, plan_.outputs[item], plan_.shards[item], arrays_));
        s.Charge(plan_.shards[item].size());
        return s.requests.AddHandle(session, handles_);
      }
      case kCommit: {
        s.views.Hold(made_.front());
        const uint64_t handle = handles_[item];
        if (each != nullptr) each(handle);
        session.arrays.emplace(handle, std::move(made_.front()));
        made_.pop_front();
        handles_.Used(item);
        if (item + 1 == plan_.outputs.size()) result = handles_.Take();
        return absl::OkStatus();
      }
      default:
        s.views.GiveAway(*arrays_[item]);
        return absl::OkStatus();
    }
  }

  const std::vector<uint64_t> in_;
  const RemapPlan plan_;
  const CopySemantics semantics_;
  ResultHandles handles_;
  std::vector<Array*> arrays_;
  std::deque<Array> made_;
};

namespace {

absl::Status CheckRemap(size_t in, const RemapPlan& plan, CopySemantics semantics) {
  if (semantics == CopySemantics::kAlwaysCopy)
    return InvalidArgument("remap: it copies nothing; say that the inputs are reused or donated");
  if (in != plan.inputs.size())
    return InvalidArgument("remap: {} arrays for a plan of {}", in, plan.inputs.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint64_t>> Cluster::Arrays::Remap(SessionId id,
                                                             const std::vector<uint64_t>& in,
                                                             const RemapPlan& plan,
                                                             CopySemantics semantics,
                                                             const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(id));
  FAIRWAY_RETURN_IF_ERROR(CheckRemap(in.size(), plan, semantics));
  Requests::RemapRequest request(*state_, in, plan, semantics, out);
  return state_->requests.AtOnce(*session, request);
}

void Cluster::Arrays::Remap(SessionId id, std::vector<uint64_t> in, RemapPlan plan,
                            CopySemantics semantics, std::vector<uint64_t> out, Done done,
                            Each each) {
  const Operation operation(*state_);
  const absl::StatusOr<Session*> session = state_->FindSession(id);
  if (!session.ok()) return;
  if (absl::Status wrong = CheckRemap(in.size(), plan, semantics); !wrong.ok())
    return state_->requests.AnswerAtOnce(id, std::move(done), std::move(wrong));
  state_->requests.Begin(**session,
                         std::make_unique<Requests::RemapRequest>(
                             *state_, std::move(in), std::move(plan), semantics, std::move(out)),
                         std::move(done), std::move(each));
}

}  // namespace fairway
