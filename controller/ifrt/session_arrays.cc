// SPDX-License-Identifier: Apache-2.0
// Requests about arrays.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/ifrt/host_bytes.h"
#include "controller/ifrt/session.h"
#include "controller/sessions/handle_lists.h"
#include "wire/ifrt_remap.h"
#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

void SetHandles(const std::vector<uint64_t>& handles,
                google::protobuf::RepeatedField<uint64_t>* field) {
  field->Assign(handles.begin(), handles.end());
}

absl::StatusOr<CopySemantics> SemanticsFromProto(xla::ifrt::proto::ArrayCopySemantics semantics) {
  switch (semantics) {
    case xla::ifrt::proto::ARRAY_COPY_SEMANTICS_ALWAYS_COPY:
      return CopySemantics::kAlwaysCopy;
    case xla::ifrt::proto::ARRAY_COPY_SEMANTICS_REUSE_INPUT:
      return CopySemantics::kReuseInput;
    case xla::ifrt::proto::ARRAY_COPY_SEMANTICS_DONATE_INPUT:
      return CopySemantics::kDonateInput;
    default:
      return InvalidArgument("copy semantics number {} are unknown", static_cast<int>(semantics));
  }
}

// Accepts only the layout that our arrays have: dense, major to minor.
absl::Status CheckLayout(const xla::ifrt::LayoutProto& layout, int rank) {
  const xla::ifrt::Serialized& s = layout.serialized_layout();
  bool dense = false;
  if (s.type_name() == "xla::ifrt::PjRtLayout") {
    xla::ifrt::PjRtLayoutProto proto;
    xla::LayoutProto expected;
    DenseLayoutToProto(rank, &expected);
    dense = proto.ParseFromString(s.data()) && proto.xla_layout().minor_to_major_size() == rank &&
            std::equal(expected.minor_to_major().begin(), expected.minor_to_major().end(),
                       proto.xla_layout().minor_to_major().begin());
  } else if (s.type_name() == "xla::ifrt::CompactLayout") {
    xla::ifrt::CompactLayoutProto proto;
    dense = proto.ParseFromString(s.data()) && proto.major_to_minor_size() == rank;
    for (int d = 0; dense && d < rank; ++d) dense = proto.major_to_minor(d) == d;
  }
  if (dense) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented,
               "array layouts other than the default (major to minor) are not served");
}

// A block that a client asks for may have this many times the bytes of the array.
constexpr int64_t kMostGaps = 64;
// Bytes of the record of a fetch under way, or of its host buffer.
constexpr int64_t kFetchRecordBytes = 512;

struct CheckedWhole {
  ArraySpec spec;
  StridedLayout layout;
};

absl::StatusOr<CheckedWhole> CheckWhole(
    const xla::ifrt::proxy::MakeArrayFromHostBufferRequest& request) {
  CheckedWhole out;
  FAIRWAY_ASSIGN_OR_RETURN(
      out.spec, ArraySpecFromProtos(request.dtype(), request.shape(), request.sharding()));
  FAIRWAY_RETURN_IF_ERROR(CheckHasBytes(out.spec.dtype));
  if (request.has_layout())
    FAIRWAY_RETURN_IF_ERROR(CheckLayout(request.layout(), out.spec.shape.rank()));
  if (out.spec.sharding.num_shards() > 1 && !out.spec.sharding.fully_replicated())
    return InvalidArgument(
        "one host buffer makes an array on one device or a fully replicated one, not {} shards",
        out.spec.sharding.num_shards());
  FAIRWAY_ASSIGN_OR_RETURN(
      out.layout, CheckStrides(out.spec.dtype, out.spec.shape,
                               StridesOf(request.has_byte_strides(), request.byte_strides())));
  return out;
}

}  // namespace

// Whether the loop itself can bring these bytes into another order.
bool IfrtSession::IsQuick(const StridedLayout& layout) const {
  return layout.dense ||
         std::max(layout.block_bytes, layout.dense_bytes) <= options_.off_loop_bytes;
}

void IfrtSession::TakeUpload(uint64_t host_buffer, NodeId upload, int32_t blob,
                             StridedLayout layout) {
  host_buffers_.Take(host_buffer, [this, upload, blob,
                                   layout = std::move(layout)](HostBufferStore::Bytes bytes) {
    if (!bytes.ok() || IsQuick(layout)) {
      if (bytes.ok()) bytes = ToDense(layout, *std::move(bytes), *options_.blocks);
      return cluster_->arrays().ProvideUpload(upload, blob, std::move(bytes));
    }
    auto result = std::make_shared<HostBufferStore::Bytes>(*std::move(bytes));
    shell_->RunOffLoop([layout, result,
                        blocks = options_.blocks] { *result = ToDense(layout, **result, *blocks); },
                       [cluster = cluster_, upload, blob, result, alive = alive_] {
                         if (*alive)
                           cluster->arrays().ProvideUpload(upload, blob, std::move(*result));
                       });
  });
}

absl::Status IfrtSession::MakeArray(const xla::ifrt::proxy::MakeArrayFromHostBufferRequest& request,
                                    const Call& call, Response& response) {
  const absl::StatusOr<CheckedWhole> checked = CheckWhole(request);
  const auto make = [&]() -> absl::StatusOr<Cluster::Arrays::PutResult> {
    FAIRWAY_RETURN_IF_ERROR(checked.status());
    const int num_shards = checked->spec.sharding.num_shards();
    return cluster_->arrays().Put(session_, request.array_handle(), checked->spec,
                                  std::vector<int32_t>(num_shards, 0));
  };
  const absl::StatusOr<Cluster::Arrays::PutResult> put = make();
  if (!put.ok()) {
    host_buffers_.Take(request.host_buffer_handle(),
                       [](const HostBufferStore::Bytes&) {});  // drops the bytes
    return errors_.Poison({request.array_handle()}, put.status());
  }
  Hold(call, {put->handle});
  response.mutable_make_array_from_host_buffer_response()->set_array_handle(put->handle);
  TakeUpload(request.host_buffer_handle(), put->upload, 0, checked->layout);
  return absl::OkStatus();
}

absl::Status IfrtSession::Assemble(
    const xla::ifrt::proxy::AssembleArrayFromSingleDeviceArraysRequest& request, const Call& call,
    Response& response) {
  const std::vector<uint64_t> in = ToVector(request.single_device_array_handles());
  const auto assemble = [&]() -> absl::StatusOr<uint64_t> {
    FAIRWAY_ASSIGN_OR_RETURN(const CopySemantics semantics,
                             SemanticsFromProto(request.copy_semantics()));
    ArraySpec spec;
    if (request.has_dtype()) {
      FAIRWAY_ASSIGN_OR_RETURN(spec.dtype, DTypeFromProto(request.dtype()));
    }
    // JAX assembles tokens of several devices; the cluster has an empty array for each of them.
    if (spec.dtype == DType::kToken) spec.dtype = DType::kPred;
    FAIRWAY_ASSIGN_OR_RETURN(spec.shape, ShapeFromProto(request.shape()));
    FAIRWAY_ASSIGN_OR_RETURN(spec.sharding, ShardingFromProto(request.sharding(), spec.shape));
    return cluster_->arrays().Assemble(session_, std::move(spec), in, semantics,
                                       request.result_handle());
  };
  const absl::StatusOr<uint64_t> handle = assemble();
  if (!handle.ok()) return errors_.Poison({request.result_handle()}, handle.status());
  response.mutable_assemble_array_from_single_device_arrays_response()->set_array_handle(*handle);
  Hold(call, {*handle});
  return absl::OkStatus();
}

absl::Status IfrtSession::Disassemble(
    const xla::ifrt::proxy::DisassembleIntoSingleDeviceArraysRequest& request, const Call& call,
    Response& response) {
  const auto disassemble = [&]() -> absl::StatusOr<std::vector<uint64_t>> {
    FAIRWAY_RETURN_IF_ERROR(errors_.Check(request.array_handle()));
    FAIRWAY_ASSIGN_OR_RETURN(const CopySemantics semantics,
                             SemanticsFromProto(request.copy_semantics()));
    return cluster_->arrays().Disassemble(session_, request.array_handle(), semantics,
                                          ToVector(request.result_handles()));
  };
  const auto handles = disassemble();
  if (!handles.ok()) return errors_.Poison(ToVector(request.result_handles()), handles.status());
  SetHandles(
      *handles,
      response.mutable_disassemble_into_single_device_arrays_response()->mutable_array_handles());
  Hold(call, *handles);
  return absl::OkStatus();
}

Cluster::Done IfrtSession::Made(Call call, std::vector<uint64_t> asked, HandlesOf field) {
  return [this, call = std::move(call), asked = std::move(asked),
          field](const absl::StatusOr<std::vector<uint64_t>>& made) mutable {
    auto response = std::make_unique<Response>();
    if (made.ok()) SetHandles(*made, field(*response));
    const absl::Status status = errors_.Poison(std::move(asked), made.status());
    Answer(std::move(call), status, std::move(response));
  };
}

Cluster::Each IfrtSession::Holding(const Call& call) {
  if (call.context == nullptr) return nullptr;
  return [this, context = call.context](uint64_t handle) { contexts_[handle] = context; };
}

void IfrtSession::CopyArrays(Call call, const xla::ifrt::proxy::CopyArraysRequest& request) {
  std::vector<uint64_t> out = ToVector(request.result_handles());
  Cluster::Each hold = Holding(call);
  Cluster::Done made = Made(std::move(call), out, [](Response& r) {
    return r.mutable_copy_arrays_response()->mutable_array_handles();
  });
  const absl::StatusOr<CopySemantics> semantics = SemanticsFromProto(request.copy_semantics());
  if (!semantics.ok()) return made(semantics.status());
  std::optional<std::vector<int32_t>> devices;
  if (!request.device_ids().empty())
    devices.emplace(request.device_ids().begin(), request.device_ids().end());
  std::optional<std::string> memory_kind;
  if (request.has_memory_kind()) memory_kind = request.memory_kind();
  cluster_->arrays().Copy(session_, ToVector(request.array_handles()), std::move(devices),
                          std::move(memory_kind), *semantics, std::move(out), std::move(made),
                          std::move(hold));
}

template <typename Proto>
void IfrtSession::Remake(Call call, Proto& taken, Remaking how, HandlesOf field) {
  auto request = std::make_shared<Proto>(std::move(taken));
  std::vector<uint64_t> out = ToVector(request->result_handles());
  Cluster::Each hold = Holding(call);
  Cluster::Done made = [this, request,
                        made = Made(std::move(call), out, field)](const auto& result) mutable {
    made(result);
    const int parts = request->array_specs_size();
    GiveUp(*shell_, std::move(request), parts);
  };
  const absl::StatusOr<CopySemantics> semantics = SemanticsFromProto(request->copy_semantics());
  if (!semantics.ok()) return made(semantics.status());
  std::vector<uint64_t> in = ToVector(request->array_handles());
  Cluster::Arrays::Targets targets{
      static_cast<size_t>(request->array_specs_size()), [request](size_t i, const ArraySpec&) {
        return ArraySpecFromProto(request->array_specs(static_cast<int>(i)));
      }};
  (cluster_->arrays().*how)(session_, std::move(in), std::move(targets), *semantics, std::move(out),
                            std::move(made), std::move(hold));
}

void IfrtSession::Reshard(Call call, xla::ifrt::proxy::ReshardArraysRequest& request) {
  Remake(std::move(call), request, &Cluster::Arrays::Reshard,
         [](Response& r) { return r.mutable_reshard_arrays_response()->mutable_array_handles(); });
}

void IfrtSession::Bitcast(Call call, xla::ifrt::proxy::BitcastArraysRequest& request) {
  Remake(std::move(call), request, &Cluster::Arrays::Bitcast,
         [](Response& r) { return r.mutable_bitcast_arrays_response()->mutable_array_handles(); });
}

void IfrtSession::RemapArrays(Call call, const xla::ifrt::proxy::RemapArraysRequest& request) {
  std::vector<uint64_t> out = ToVector(request.result_handles());
  Cluster::Each hold = Holding(call);
  Cluster::Done made = Made(std::move(call), out, [](Response& r) {
    return r.mutable_remap_arrays_response()->mutable_array_handles();
  });
  const absl::StatusOr<CopySemantics> semantics = SemanticsFromProto(request.copy_semantics());
  if (!semantics.ok()) return made(semantics.status());
  absl::StatusOr<RemapPlan> plan = RemapPlanFromProto(request.plan());
  if (!plan.ok()) return made(plan.status());
  cluster_->arrays().Remap(session_, ToVector(request.array_handles()), *std::move(plan),
                           *semantics, std::move(out), std::move(made), std::move(hold));
}

absl::Status IfrtSession::ReplicatedShard(
    const xla::ifrt::proxy::FullyReplicatedShardRequest& request, const Call& call,
    Response& response) {
  const auto shard = [&]() -> absl::StatusOr<uint64_t> {
    FAIRWAY_RETURN_IF_ERROR(errors_.Check(request.array_handle()));
    FAIRWAY_ASSIGN_OR_RETURN(const CopySemantics semantics,
                             SemanticsFromProto(request.copy_semantics()));
    return cluster_->arrays().FullyReplicatedShard(session_, request.array_handle(), semantics,
                                                   request.result_handle());
  };
  const absl::StatusOr<uint64_t> handle = shard();
  if (!handle.ok()) return errors_.Poison({request.result_handle()}, handle.status());
  response.mutable_fully_replicated_shard_response()->set_array_handle(*handle);
  Hold(call, {*handle});
  return absl::OkStatus();
}

std::shared_ptr<void> IfrtSession::ChargeFetched(int64_t bytes) {
  // Larger blocks come out of the transit memory, or are files (BlockPool): not counted here.
  if (bytes >= static_cast<int64_t>(BlockPool::kSmallest)) bytes = 0;
  bytes += kFetchRecordBytes;
  fetched_->Take(bytes);
  return {nullptr, [fetched = fetched_, bytes](void*) { fetched->Release(bytes); }};
}

absl::Status IfrtSession::CopyToHost(const xla::ifrt::proxy::CopyToHostBufferRequest& request,
                                     Response& response) {
  FAIRWAY_RETURN_IF_ERROR(errors_.Check(request.array_handle()));
  const ArraySpec* spec = cluster_->arrays().Spec(session_, request.array_handle());
  if (spec == nullptr)
    return Error(absl::StatusCode::kNotFound, "there is no array {}", request.array_handle());
  FAIRWAY_RETURN_IF_ERROR(CheckHasBytes(spec->dtype));
  FAIRWAY_ASSIGN_OR_RETURN(StridedLayout layout, CheckStrides(spec->dtype, spec->shape,
                                                              StridesOf(request.has_byte_strides(),
                                                                        request.byte_strides())));
  // The whole block is made here and sent, so its gaps may pad the array but not fill gigabytes.
  if (layout.block_bytes / kMostGaps > std::max<int64_t>(layout.dense_bytes, 4096))
    return InvalidArgument("the byte strides of {} ask for a block of {} bytes",
                           ToString(spec->dtype, spec->shape), layout.block_bytes);
  const uint64_t host_buffer = request.host_buffer_handle();
  // Answered before the bytes are here: the client's lookup waits for them, or gets a late error.
  response.mutable_copy_to_host_buffer_response();
  host_buffers_.Expect(host_buffer, ChargeFetched(layout.block_bytes));
  const uint64_t token = next_token_++;
  fetches_.emplace(token,
                   [this, host_buffer, layout = std::move(layout)](HostBufferStore::Bytes bytes) {
                     if (!bytes.ok() || IsQuick(layout)) {
                       if (bytes.ok())
                         bytes = FromDense(layout, *std::move(bytes), *options_.blocks);
                       return host_buffers_.StoreIfExpected(host_buffer, std::move(bytes));
                     }
                     auto result = std::make_shared<HostBufferStore::Bytes>(*std::move(bytes));
                     shell_->RunOffLoop(
                         [layout, result, blocks = options_.blocks] {
                           *result = FromDense(layout, **result, *blocks);
                         },
                         [this, host_buffer, result, alive = alive_] {
                           if (*alive)
                             host_buffers_.StoreIfExpected(host_buffer, std::move(*result));
                         });
                   });
  cluster_->arrays().Fetch(session_, token, request.array_handle());
  return absl::OkStatus();
}

void IfrtSession::DeleteArrays(Call call, const xla::ifrt::proxy::DeleteArrayRequest& request) {
  cluster_->arrays().Delete(session_, ToVector(request.array_handle()),
                            [this, call = std::move(call)](const absl::Status& ended) mutable {
                              Future future;
                              future.of_deletion = true;
                              future.status = ended;
                              AnswerWith(std::move(call), [&](Response& r) -> absl::Status {
                                if (const absl::Status room = CountRecords(); !room.ok())
                                  return Annotate(room, "the arrays were deleted");
                                r.mutable_delete_array_response()->set_deletion_future_handle(
                                    MakeFuture(std::move(future)));
                                return absl::OkStatus();
                              });
                            });
}

void IfrtSession::DestructArrays(Call call, const xla::ifrt::proxy::DestructArrayRequest& request) {
  cluster_->arrays().Destruct(
      session_, ToVector(request.array_handle()),
      [this, call = std::move(call)](const absl::Status& ended) mutable {
        AnswerWith(std::move(call), [&](Response& r) {
          r.mutable_destruct_array_response();
          return ended;
        });
      },
      [this](uint64_t handle) { contexts_.erase(handle); });
}

}  // namespace fairway
