// SPDX-License-Identifier: Apache-2.0
// The dispatch of requests, answers, futures.
#include "controller/ifrt/session.h"

#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/cluster/sessions.h"
#include "controller/ifrt/describe.h"
#include "controller/ifrt/making.h"
#include "controller/sessions/handle_lists.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

using xla::ifrt::proxy::IfrtRequest;

// Differs from the cluster's own handles only for readers of logs: the tables are different
// ones.
constexpr uint64_t kFirstFuture = kFirstServerHandle << 1;

absl::Status NotServed(const IfrtRequest& request) {
  const auto* field = IfrtRequest::descriptor()->FindFieldByNumber(request.request_case());
  if (field == nullptr)
    return Error(absl::StatusCode::kUnimplemented,
                 "a request of a kind that Fairway does not know");
  return Error(absl::StatusCode::kUnimplemented, "{} is not served by Fairway", field->name());
}

// Whether jaxlib's client goes on before it has the answer: it has chosen the handles of what is
// made.
bool ClientGoesOn(const xla::ifrt::proxy::IfrtRequest& request) {
  using Request = xla::ifrt::proxy::IfrtRequest;
  switch (request.request_case()) {
    case Request::kDestructArrayRequest:
      return true;
    case Request::kLoadedExecutableExecuteRequest: {
      const auto& execute = request.loaded_executable_execute_request();
      return !execute.result_array_handle().empty() &&
             (!execute.execute_options().fill_status() || execute.result_status_handle() != 0);
    }
    case Request::kMakeArrayFromHostBufferRequest:
      return request.make_array_from_host_buffer_request().has_array_handle();
    case Request::kAssembleArrayFromSingleDeviceArraysRequest:
      return request.assemble_array_from_single_device_arrays_request().result_handle() != 0;
    case Request::kFullyReplicatedShardRequest:
      return request.fully_replicated_shard_request().result_handle() != 0;
    case Request::kCopyArraysRequest:
      return !request.copy_arrays_request().result_handles().empty();
    case Request::kReshardArraysRequest:
      return !request.reshard_arrays_request().result_handles().empty();
    default:
      return false;
  }
}

}  // namespace

IfrtSession::IfrtSession(uint64_t id, SessionId session, Cluster* cluster, CompileService* compiler,
                         IfrtShell* shell, IfrtSessionOptions options)
    : id_(id),
      session_(session),
      cluster_(cluster),
      compiler_(compiler),
      programs_(
          cluster, compiler, session,
          [shell](auto work, auto then) { shell->RunOffLoop(std::move(work), std::move(then)); }),
      shell_(shell),
      options_(options),
      fetched_(std::make_shared<MemoryBudget>(options_.fetched)),
      errors_(cluster, session),
      destroyed_contexts_(std::make_shared<UserContext::Destroyed>()),
      next_future_(kFirstFuture),
      compiling_(options_.caps.compiling),
      alive_(std::make_shared<bool>(true)) {
  cluster_->sessions().SetSink(session_, this);
}

IfrtSession::~IfrtSession() {
  *alive_ = false;
  cluster_->sessions().SetSink(session_, nullptr);
}

void IfrtSession::Answer(Call call, const absl::Status& status,
                         std::unique_ptr<Response> response) {
  auto* metadata = response->mutable_response_metadata();
  metadata->set_op_id(call.op_id);
  call.context.reset();
  if (!status.ok()) {
    // The client would overlook the status beside a response.
    response->clear_response();
    StatusToProto(status, metadata->mutable_status());
  } else if (call.counted) {
    metadata->set_seq_num(next_seq_num_++);
    metadata->mutable_destroyed_user_context_ids()->Assign(destroyed_contexts_->ids.begin(),
                                                           destroyed_contexts_->ids.end());
    destroyed_contexts_->ids.clear();
  }
  shell_->Send(std::move(response), call.may_wait && status.ok());
}

bool IfrtSession::MayRead() const {
  // An execution whose arguments never come holds back the ends of those behind it.
  constexpr size_t kMaxUntoldEnds = 16384;
  return !fetched_->over() && ends_.size() < kMaxUntoldEnds &&
         options_.caps.MayRead(cluster_->sessions().BacklogOf(session_), compiling_);
}

void IfrtSession::Closes() {
  struct Rest {
    std::shared_ptr<void> host_buffers;
    decltype(contexts_) contexts;
    decltype(futures_) futures;
    ExecutionEnds ends;
    decltype(statuses_) statuses;
    decltype(watches_) watches;
    decltype(fetches_) fetches;
    std::shared_ptr<Making> making;
  };
  // Nobody is told of the contexts any more.
  destroyed_contexts_->ended = true;
  const size_t parts = host_buffers_.size() + contexts_.size() + futures_.size() + ends_.size() +
                       watches_.size() + fetches_.size() +
                       (making_ == nullptr ? 0 : making_->arrays());
  auto rest = std::make_shared<Rest>(
      Rest{host_buffers_.End(), std::move(contexts_), std::move(futures_), std::move(ends_),
           std::move(statuses_), std::move(watches_), std::move(fetches_), std::move(making_)});
  GiveUp(*shell_, std::move(rest), parts);
}

void IfrtSession::Handle(Request& request) {
  while (making_ != nullptr) MakeSome();  // for tests: a stream would wait
  Call call{request.request_metadata().op_id(), true,
            UserContext::Make(request.request_metadata().user_context_id(), destroyed_contexts_),
            ClientGoesOn(request)};
  const auto with = [&](auto fill) {  // `fill` may use `call`
    auto response = std::make_unique<Response>();
    const absl::Status status = fill(*response);
    Answer(std::move(call), status, std::move(response));
  };
  (void)CountRecords();
  absl::Status status = refusal_.ok() ? CheckHandleLists(request) : refusal_;
  if (!status.ok()) return with([&](Response&) { return std::move(status); });
  switch (request.request_case()) {
    case Request::kInitRequest:
      call.counted = false;
      return with([&](Response& r) {
        DescribeDevices(id_, devices(), r.mutable_init_response());
        return absl::OkStatus();
      });
    case Request::kGetDefaultLayoutRequest:
      return with([&](Response& r) {
        return DefaultLayout(request.get_default_layout_request(), devices(),
                             r.mutable_get_default_layout_response());
      });
    case Request::kGetDefaultDeviceAssignmentRequest:
      return with([&](Response& r) {
        return DefaultDeviceAssignment(request.get_default_device_assignment_request(),
                                       static_cast<int>(devices().size()),
                                       r.mutable_get_default_device_assignment_response());
      });
    case Request::kMakeArrayFromHostBufferRequest:
      return with([&](Response& r) {
        return MakeArray(request.make_array_from_host_buffer_request(), call, r);
      });
    case Request::kMakeArraysFromHostBufferShardsRequest:
      return MakeShards(std::move(call),
                        *request.mutable_make_arrays_from_host_buffer_shards_request());
    case Request::kMakeErrorArraysRequest:
      return MakeErrors(std::move(call), *request.mutable_make_error_arrays_request());
    case Request::kAssembleArrayFromSingleDeviceArraysRequest:
      return with([&](Response& r) {
        return Assemble(request.assemble_array_from_single_device_arrays_request(), call, r);
      });
    case Request::kDisassembleIntoSingleDeviceArraysRequest:
      return with([&](Response& r) {
        return Disassemble(request.disassemble_into_single_device_arrays_request(), call, r);
      });
    case Request::kCopyArraysRequest:
      return CopyArrays(std::move(call), request.copy_arrays_request());
    case Request::kReshardArraysRequest:
      return Reshard(std::move(call), *request.mutable_reshard_arrays_request());
    case Request::kFullyReplicatedShardRequest:
      return with([&](Response& r) {
        return ReplicatedShard(request.fully_replicated_shard_request(), call, r);
      });
    case Request::kRemapArraysRequest:
      return RemapArrays(std::move(call), request.remap_arrays_request());
    case Request::kBitcastArraysRequest:
      return Bitcast(std::move(call), *request.mutable_bitcast_arrays_request());
    case Request::kCopyToHostBufferRequest:
      return with(
          [&](Response& r) { return CopyToHost(request.copy_to_host_buffer_request(), r); });
    case Request::kDeleteArrayRequest:
      call.counted = false;
      return DeleteArrays(std::move(call), request.delete_array_request());
    case Request::kDestructArrayRequest:
      call.counted = false;
      return DestructArrays(std::move(call), request.destruct_array_request());
    case Request::kIsArrayDeletedRequest:
      return with([&](Response& r) {
        const auto deleted = cluster_->arrays().IsDeleted(
            session_, request.is_array_deleted_request().array_handle());
        if (deleted.ok()) r.mutable_is_array_deleted_response()->set_deleted(*deleted);
        return deleted.status();
      });
    default:
      return HandleExecutables(std::move(call), request);
  }
}

// Requests about executables, and about the readiness of values.
void IfrtSession::HandleExecutables(Call call, Request& request) {
  const auto with = [&](auto fill) {  // `fill` may use `call`
    auto response = std::make_unique<Response>();
    const absl::Status status = fill(*response);
    Answer(std::move(call), status, std::move(response));
  };
  switch (request.request_case()) {
    case Request::kCheckValueReadyRequest:
      return CheckValueReady(std::move(call), request.check_value_ready_request());
    case Request::kCheckFutureRequest:
      return AskFuture(std::move(call), request.check_future_request().future_handle(), false);
    case Request::kLoadedExecutableFetchExecuteResultRequest:
      return AskFuture(
          std::move(call),
          request.loaded_executable_fetch_execute_result_request().result_status_handle(), true);
    case Request::kCompileRequest:
      return Compile(std::move(call), *request.mutable_compile_request());
    case Request::kLoadedExecutableMetadataRequest:
      return Metadata(std::move(call),
                      request.loaded_executable_metadata_request().loaded_executable_handle());
    case Request::kLoadedExecutableExecuteRequest:
      return Execute(std::move(call), request.loaded_executable_execute_request());
    case Request::kLoadedExecutableCostAnalysisRequest:
      return with([&](Response& r) {
        return CostAnalysis(
            request.loaded_executable_cost_analysis_request().loaded_executable_handle(), r);
      });
    case Request::kLoadedExecutableHumanReadableProgramTextRequest:
      return with([&](Response& r) {
        return ProgramText(request.loaded_executable_human_readable_program_text_request()
                               .loaded_executable_handle(),
                           r);
      });
    case Request::kLoadedExecutableDestructRequest:
      return with([&](Response& r) {
        return DestructExecutable(
            request.loaded_executable_destruct_request().loaded_executable_handle(), r);
      });
    default:
      return with([&](Response&) { return NotServed(request); });
  }
}

void IfrtSession::Refuse(const absl::Status& status) {
  refusal_ = status;
  while (!watches_.empty()) OnWatched(session_, watches_.rbegin()->first, status);
  while (!fetches_.empty()) OnFetched(session_, fetches_.rbegin()->first, status);
  std::vector<uint64_t> asked;
  for (const auto& [handle, future] : futures_) {
    if (future.waiter.has_value()) asked.push_back(handle);
  }
  for (const uint64_t handle : asked) FutureEnded(handle, status);
}

absl::Status IfrtSession::CountRecords() {
  constexpr size_t kFuture = 192, kEnd = 160, kContext = 112, kLoaded = 512;
  return cluster_->sessions().CountDoor(
      session_, futures_.size() * kFuture + ends_.size() * kEnd + contexts_.size() * kContext +
                    loaded_.size() * kLoaded + destroyed_contexts_->ids.size() * sizeof(uint64_t));
}

uint64_t IfrtSession::MakeFuture(Future future) {
  const uint64_t handle = next_future_++;
  futures_.emplace(handle, std::move(future));
  return handle;
}

void IfrtSession::FutureEnded(uint64_t handle, absl::Status status) {
  const auto it = futures_.find(handle);
  if (it == futures_.end()) return;
  it->second.status = std::move(status);
  if (!it->second.waiter.has_value()) return;
  Future future = std::move(it->second);
  futures_.erase(it);
  AnswerFuture(*std::move(future.waiter), future);
}

void IfrtSession::TellEnds() {
  constexpr int kAtOnce = 256;
  if (telling_ends_) return;
  for (int i = 0; i < kAtOnce; ++i) {
    auto end = ends_.Next();
    if (!end.has_value()) return;
    const auto it = statuses_.find(end->first);
    const uint64_t handle = it->second;
    statuses_.erase(it);
    FutureEnded(handle, std::move(end->second));
  }
  if (!ends_.has_next()) return;
  telling_ends_ = true;
  shell_->RunOffLoop([] {},
                     [this, alive = alive_] {
                       if (!*alive) return;
                       telling_ends_ = false;
                       TellEnds();
                     });
}

void IfrtSession::AskFuture(Call call, uint64_t handle, bool of_execution) {
  const auto it = futures_.find(handle);
  if (it == futures_.end() || it->second.of_execution != of_execution ||
      it->second.waiter.has_value()) {
    return AnswerWith(std::move(call), [&](Response&) {
      return Error(absl::StatusCode::kNotFound,
                   "there is no future {}, or it was asked for already", handle);
    });
  }
  if (it->second.of_deletion) call.counted = false;
  if (!it->second.status.has_value()) {
    it->second.waiter = std::move(call);
    return;
  }
  const Future future = std::move(it->second);
  futures_.erase(it);
  AnswerFuture(std::move(call), future);
}

void IfrtSession::AnswerFuture(Call call, const Future& future) {
  AnswerWith(std::move(call), [&](Response& r) {
    if (future.of_execution) {
      r.mutable_loaded_executable_fetch_execute_result_response();
    } else {
      r.mutable_check_future_response();
    }
    return *future.status;
  });
}

uint64_t IfrtSession::WatchToken(std::function<void(absl::Status)> done) {
  const uint64_t token = next_token_++;
  watches_.emplace(token, std::move(done));
  return token;
}

void IfrtSession::OnWatched(SessionId, uint64_t token, absl::Status status) {
  auto watch = watches_.extract(token);
  if (!watch.empty()) watch.mapped()(std::move(status));
}

void IfrtSession::OnFetched(SessionId, uint64_t token, absl::StatusOr<BytesRef> bytes) {
  auto fetch = fetches_.extract(token);
  if (!fetch.empty()) fetch.mapped()(std::move(bytes));
}

void IfrtSession::CheckValueReady(Call call,
                                  const xla::ifrt::proxy::CheckValueReadyRequest& request) {
  const uint64_t token = WatchToken([this, call = std::move(call)](absl::Status status) {
    AnswerWith(call, [&](Response& r) {
      r.mutable_check_value_ready_response();
      return status;
    });
  });
  cluster_->arrays().Watch(session_, token, ToVector(request.value_handles()));
}

void IfrtSession::Hold(const Call& call, const std::vector<uint64_t>& handles) {
  if (call.context == nullptr) return;
  for (const uint64_t handle : handles) contexts_[handle] = call.context;
}

}  // namespace fairway
