// SPDX-License-Identifier: Apache-2.0
// The array table: put, copy, assemble, disassemble, delete. Views are lists of shards, so most of
// these operations move nothing.
#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/cluster/state.h"

namespace fairway {

absl::StatusOr<Cluster::Arrays::PutResult> Cluster::Arrays::Put(
    SessionId session, uint64_t out, const ArraySpec& spec, std::vector<int32_t> blob_of_shard) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * found, state_->FindSession(session));
  auto put = state_->uploads.Put(*found, out, spec, std::move(blob_of_shard), /*lazy=*/true);
  state_->work.GoOn();
  return put;
}

void Cluster::Arrays::ProvideUpload(NodeId upload, int32_t blob, absl::StatusOr<BytesRef> bytes) {
  const Operation operation(*state_);
  state_->uploads.Provide(upload, blob, bytes);
  state_->work.GoOn();
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
