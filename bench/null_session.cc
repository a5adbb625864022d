// SPDX-License-Identifier: Apache-2.0
#include "bench/null_session.h"

#include "controller/ifrt/compile_request.h"
#include "controller/ifrt/describe.h"
#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

absl::StatusOr<ArraySpec> OutputSpec(const v1::ValueSpec& value,
                                     const std::vector<int32_t>& devices) {
  ArraySpec out;
  out.dtype = DTypeFromNumber(value.dtype()).value_or(DType::kInvalid);
  out.shape = Shape{{value.global_dims().begin(), value.global_dims().end()}};
  out.sharding = devices.size() == 1 ? Sharding::SingleDevice(devices[0], value.memory_kind())
                                     : Sharding::Replicated(devices, value.memory_kind());
  xla::OpSharding sharding;
  if (devices.size() == 1 || !sharding.ParseFromString(value.op_sharding())) return out;
  FAIRWAY_ASSIGN_OR_RETURN(const TileAssignment tiles,
                           TilesFromOpSharding(sharding, static_cast<int>(devices.size())));
  if (tiles.kind != TileAssignment::Kind::kTiled) return out;
  FAIRWAY_ASSIGN_OR_RETURN(
      out.sharding, Sharding::Tiled(devices, tiles.tiles, tiles.tile_of, value.memory_kind()));
  return out;
}

absl::StatusOr<std::shared_ptr<const ArraySpec>> OfShard(const ArraySpec& whole, int shard) {
  FAIRWAY_ASSIGN_OR_RETURN(Shape shape, whole.sharding.ShardShape(whole.shape, shard));
  return std::make_shared<const ArraySpec>(
      ArraySpec{whole.dtype, std::move(shape), whole.sharding.OfShard(shard)});
}

constexpr uint64_t kDeletion = uint64_t{1} << 62;  // the future that all deletions share

// Whether the client numbers the answer: jaxlib drops its user contexts in the order of the
// numbered answers.
bool Counted(const xla::ifrt::proxy::IfrtRequest& request) {
  using Request = xla::ifrt::proxy::IfrtRequest;
  switch (request.request_case()) {
    case Request::kInitRequest:
    case Request::kDeleteArrayRequest:
    case Request::kDestructArrayRequest:
      return false;
    case Request::kCheckFutureRequest:
      return request.check_future_request().future_handle() != kDeletion;
    default:
      return true;
  }
}

}  // namespace

NullServer::NullServer(int num_devices, std::unique_ptr<Compiler> compiler)
    : compiler_(std::move(compiler)) {
  for (int i = 0; i < num_devices; ++i) {
    VirtualDevice device;
    device.id = device.local_ordinal = i;
    device.island = "null";
    device.platform_name = device.device_kind = "cpu";
    device.memory_kinds = {"device", "pinned_host", "unpinned_host"};
    devices_.push_back(std::move(device));
  }
}

absl::StatusOr<std::shared_ptr<const v1::ExecutableMetadata>> NullServer::Compile(
    const std::string& program, v1::CompileOptions options) {
  const int64_t count = options.num_replicas() * options.num_partitions();
  for (int64_t i = 0; !options.portable() && i < count; ++i)
    options.add_devices(static_cast<int32_t>(i));
  const std::lock_guard lock(mutex_);
  auto& cached = compiled_[program + options.SerializeAsString()];
  if (cached == nullptr) {
    FAIRWAY_ASSIGN_OR_RETURN(CompileResult result, compiler_->Compile(program, options));
    cached = std::make_shared<const v1::ExecutableMetadata>(std::move(result.metadata));
  }
  return cached;
}

void NullServer::ExpectUpload(uint64_t session, uint64_t handle) {
  const std::lock_guard lock(mutex_);
  Uploads& uploads = uploads_[session];
  if (uploads.arrived.erase(handle) == 0) uploads.expected.insert(handle);
}

void NullServer::UploadArrived(uint64_t session, uint64_t handle) {
  const std::lock_guard lock(mutex_);
  Uploads& uploads = uploads_[session];
  if (uploads.expected.erase(handle) == 0) uploads.arrived.insert(handle);
  if (!uploads.expected.empty()) return;
  for (const auto& then : std::exchange(uploads.waiting, {})) then();
}

void NullServer::AfterUploads(uint64_t session, std::function<void()> then) {
  const std::lock_guard lock(mutex_);
  Uploads& uploads = uploads_[session];
  if (uploads.expected.empty()) return then();
  uploads.waiting.push_back(std::move(then));
}

std::optional<int64_t> NullServer::HostBuffer(uint64_t session, uint64_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto it = host_buffers_.find({session, handle});
  return it == host_buffers_.end() ? std::nullopt : std::optional(it->second);
}

void NullServer::SetHostBuffer(uint64_t session, uint64_t handle, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  host_buffers_[{session, handle}] = bytes;
}

void NullServer::DeleteHostBuffer(uint64_t session, uint64_t handle) {
  const std::lock_guard lock(mutex_);
  host_buffers_.erase({session, handle});
}

void NullServer::ForgetSession(uint64_t session) {
  const std::lock_guard lock(mutex_);
  host_buffers_.erase(host_buffers_.lower_bound({session, 0}),
                      host_buffers_.upper_bound({session, UINT64_MAX}));
  uploads_.erase(session);
}

std::unique_ptr<NullSession::Response> NullSession::Handle(const Request& request) {
  auto response = std::make_unique<Response>();
  const absl::Status status = Fill(request, *response);
  auto* metadata = response->mutable_response_metadata();
  metadata->set_op_id(request.request_metadata().op_id());
  if (!status.ok()) {
    response->clear_response();
    StatusToProto(status, metadata->mutable_status());
  } else if (Counted(request)) {
    metadata->set_seq_num(next_seq_num_++);
    if (const uint64_t context = request.request_metadata().user_context_id(); context != 0)
      metadata->add_destroyed_user_context_ids(context);
  }
  return response;
}

absl::Status NullSession::Fill(const Request& request, Response& response) {
  const std::vector<VirtualDevice>& devices = server_->devices();
  switch (request.request_case()) {
    case Request::kInitRequest:
      DescribeDevices(id_, devices, response.mutable_init_response());
      return absl::OkStatus();
    case Request::kGetDefaultLayoutRequest:
      return DefaultLayout(request.get_default_layout_request(), devices,
                           response.mutable_get_default_layout_response());
    case Request::kGetDefaultDeviceAssignmentRequest:
      return DefaultDeviceAssignment(request.get_default_device_assignment_request(),
                                     static_cast<int>(devices.size()),
                                     response.mutable_get_default_device_assignment_response());
    case Request::kMakeArrayFromHostBufferRequest:
      return MakeArray(request.make_array_from_host_buffer_request(), response);
    case Request::kMakeArraysFromHostBufferShardsRequest:
      return MakeShards(request.make_arrays_from_host_buffer_shards_request(), response);
    case Request::kDisassembleIntoSingleDeviceArraysRequest:
      return Disassemble(request.disassemble_into_single_device_arrays_request(), response);
    case Request::kCopyArraysRequest:
      return CopyArrays(request.copy_arrays_request(), response);
    case Request::kFullyReplicatedShardRequest: {
      const auto& shard = request.fully_replicated_shard_request();
      FAIRWAY_ASSIGN_OR_RETURN(const Spec whole, Find(shard.array_handle()));
      FAIRWAY_ASSIGN_OR_RETURN(Spec first, OfShard(*whole, 0));
      response.mutable_fully_replicated_shard_response()->set_array_handle(
          Keep(shard.result_handle(), std::move(first)));
      return absl::OkStatus();
    }
    case Request::kCopyToHostBufferRequest:
      response.mutable_copy_to_host_buffer_response();
      return CopyToHost(request.copy_to_host_buffer_request());
    case Request::kCheckValueReadyRequest:
      response.mutable_check_value_ready_response();
      return absl::OkStatus();
    case Request::kCheckFutureRequest:
      response.mutable_check_future_response();
      return absl::OkStatus();
    case Request::kLoadedExecutableFetchExecuteResultRequest:
      response.mutable_loaded_executable_fetch_execute_result_response();
      return absl::OkStatus();
    case Request::kDeleteArrayRequest:
      response.mutable_delete_array_response()->set_deletion_future_handle(kDeletion);
      return absl::OkStatus();
    case Request::kIsArrayDeletedRequest:
      response.mutable_is_array_deleted_response();
      return absl::OkStatus();
    case Request::kDestructArrayRequest:
      for (const uint64_t handle : request.destruct_array_request().array_handle())
        arrays_.erase(handle);
      response.mutable_destruct_array_response();
      return absl::OkStatus();
    case Request::kCompileRequest:
      return Compile(request.compile_request(), response);
    case Request::kLoadedExecutableMetadataRequest: {
      FAIRWAY_ASSIGN_OR_RETURN(
          const Loaded* loaded,
          FindLoaded(request.loaded_executable_metadata_request().loaded_executable_handle()));
      DescribeExecutable(*loaded->metadata, loaded->devices.size(), devices[0].memory_kinds,
                         response.mutable_loaded_executable_metadata_response());
      return absl::OkStatus();
    }
    case Request::kLoadedExecutableExecuteRequest:
      return Execute(request.loaded_executable_execute_request(), response);
    case Request::kLoadedExecutableDestructRequest:
      loaded_.erase(request.loaded_executable_destruct_request().loaded_executable_handle());
      response.mutable_loaded_executable_destruct_response();
      return absl::OkStatus();
    default:
      return Error(absl::StatusCode::kUnimplemented, "the null front door has no request {}",
                   static_cast<int>(request.request_case()));
  }
}

uint64_t NullSession::Keep(uint64_t handle, Spec spec) {
  if (handle == 0) handle = next_handle_++;
  arrays_[handle] = std::move(spec);
  return handle;
}

absl::StatusOr<NullSession::Spec> NullSession::Find(uint64_t handle) const {
  const auto it = arrays_.find(handle);
  if (it == arrays_.end())
    return Error(absl::StatusCode::kNotFound, "there is no array {}", handle);
  return it->second;
}

absl::StatusOr<const NullSession::Loaded*> NullSession::FindLoaded(uint64_t handle) const {
  const auto it = loaded_.find(handle);
  if (it == loaded_.end())
    return Error(absl::StatusCode::kNotFound, "there is no executable {}", handle);
  return &it->second;
}

absl::Status NullSession::MakeArray(const xla::ifrt::proxy::MakeArrayFromHostBufferRequest& request,
                                    Response& response) {
  FAIRWAY_ASSIGN_OR_RETURN(
      ArraySpec spec, ArraySpecFromProtos(request.dtype(), request.shape(), request.sharding()));
  server_->ExpectUpload(id_, request.host_buffer_handle());
  response.mutable_make_array_from_host_buffer_response()->set_array_handle(
      Keep(request.array_handle(), std::make_shared<const ArraySpec>(std::move(spec))));
  return absl::OkStatus();
}

absl::Status NullSession::MakeShards(
    const xla::ifrt::proxy::MakeArraysFromHostBufferShardsRequest& request, Response& response) {
  auto* out = response.mutable_make_arrays_from_host_buffer_shards_response();
  for (int i = 0; i < request.specs_size(); ++i) {
    for (const auto& buffer : request.specs(i).host_buffers())
      server_->ExpectUpload(id_, buffer.host_buffer_handle());
    FAIRWAY_ASSIGN_OR_RETURN(ArraySpec spec, ArraySpecFromProto(request.specs(i).array_spec()));
    const uint64_t handle = i < request.array_handles_size() ? request.array_handles(i) : 0;
    out->add_array_handles(Keep(handle, std::make_shared<const ArraySpec>(std::move(spec))));
  }
  return absl::OkStatus();
}

absl::Status NullSession::Disassemble(
    const xla::ifrt::proxy::DisassembleIntoSingleDeviceArraysRequest& request, Response& response) {
  FAIRWAY_ASSIGN_OR_RETURN(const Spec whole, Find(request.array_handle()));
  auto* out = response.mutable_disassemble_into_single_device_arrays_response();
  for (int i = 0; i < whole->sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(Spec shard, OfShard(*whole, i));
    const uint64_t handle = i < request.result_handles_size() ? request.result_handles(i) : 0;
    out->add_array_handles(Keep(handle, std::move(shard)));
  }
  return absl::OkStatus();
}

absl::Status NullSession::CopyArrays(const xla::ifrt::proxy::CopyArraysRequest& request,
                                     Response& response) {
  auto* out = response.mutable_copy_arrays_response();
  for (int i = 0; i < request.array_handles_size(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(Spec spec, Find(request.array_handles(i)));
    if (!request.device_ids().empty()) {
      ArraySpec moved = *spec;
      FAIRWAY_ASSIGN_OR_RETURN(moved.sharding,
                               spec->sharding.WithDevices(
                                   {request.device_ids().begin(), request.device_ids().end()}, {}));
      spec = std::make_shared<const ArraySpec>(std::move(moved));
    }
    const uint64_t handle = i < request.result_handles_size() ? request.result_handles(i) : 0;
    out->add_array_handles(Keep(handle, std::move(spec)));
  }
  return absl::OkStatus();
}

absl::Status NullSession::CopyToHost(const xla::ifrt::proxy::CopyToHostBufferRequest& request) {
  FAIRWAY_ASSIGN_OR_RETURN(const Spec spec, Find(request.array_handle()));
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(spec->dtype, spec->shape));
  server_->SetHostBuffer(id_, request.host_buffer_handle(), bytes);
  return absl::OkStatus();
}

absl::Status NullSession::Compile(const xla::ifrt::proxy::CompileRequest& request,
                                  Response& response) {
  FAIRWAY_ASSIGN_OR_RETURN(const ParsedCompile parsed,
                           ParseCompile(request, static_cast<int>(server_->devices().size())));
  Loaded loaded;
  loaded.devices = parsed.devices;
  FAIRWAY_ASSIGN_OR_RETURN(loaded.metadata,
                           server_->Compile(request.program().data(), parsed.options));
  for (const v1::ValueSpec& value : loaded.metadata->outputs()) {
    FAIRWAY_ASSIGN_OR_RETURN(ArraySpec output, OutputSpec(value, loaded.devices));
    loaded.outputs.push_back(std::make_shared<const ArraySpec>(std::move(output)));
  }
  auto* out = response.mutable_compile_response();
  out->set_loaded_executable_handle(next_handle_++);
  out->set_name(ValidUtf8(loaded.metadata->name()));
  out->set_num_devices(static_cast<int32_t>(loaded.devices.size()));
  if (!parsed.options.portable())
    out->mutable_device_ids()->Assign(loaded.devices.begin(), loaded.devices.end());
  out->mutable_addressable_device_ids()->Assign(loaded.devices.begin(), loaded.devices.end());
  out->set_fingerprint_value(loaded.metadata->fingerprint());
  out->set_ready_future_handle(next_handle_++);
  loaded_.emplace(out->loaded_executable_handle(), std::move(loaded));
  return absl::OkStatus();
}

absl::Status NullSession::Execute(const xla::ifrt::proxy::LoadedExecutableExecuteRequest& request,
                                  Response& response) {
  FAIRWAY_ASSIGN_OR_RETURN(const Loaded* loaded, FindLoaded(request.loaded_executable_handle()));
  auto* out = response.mutable_loaded_executable_execute_response();
  if (request.execute_options().fill_status() && request.result_status_handle() == 0)
    out->set_status_handle(next_handle_++);
  const bool named = !request.result_array_handle().empty();
  for (size_t i = 0; i < loaded->outputs.size(); ++i) {
    const Spec& spec = loaded->outputs[i];
    if (named) {
      Keep(request.result_array_handle(static_cast<int>(i)), spec);
      continue;
    }
    auto* output = out->add_outputs();
    DTypeToProto(spec->dtype, output->mutable_dtype());
    ShapeToProto(spec->shape, output->mutable_shape());
    FAIRWAY_RETURN_IF_ERROR(
        ShardingToProto(spec->sharding, spec->shape, output->mutable_sharding()));
    output->set_array_handle(Keep(0, spec));
  }
  return absl::OkStatus();
}

}  // namespace fairway
