// SPDX-License-Identifier: Apache-2.0
// One client's conversation over the IFRT proxy protocol: requests come in, answers go out.
//
// Knows no gRPC, thread or clock. Requests are handled in order. An answer carries its request's
// op_id, and answers may overtake each other. Only fetches and readiness answers wait for a device.
#ifndef FAIRWAY_CONTROLLER_IFRT_SESSION_H_
#define FAIRWAY_CONTROLLER_IFRT_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/btree_map.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/virtual_device.h"
#include "controller/compile/compile_service.h"
#include "controller/compile/program_service.h"
#include "controller/ifrt/execution_ends.h"
#include "controller/ifrt/strided.h"
#include "controller/ifrt/user_context.h"
#include "controller/sessions/caps.h"
#include "controller/sessions/error_arrays.h"
#include "controller/sessions/host_buffer_store.h"
#include "ifrt/messages.pb.h"

namespace fairway {

// The shell of a session. Its functions must not re-enter the session.
class IfrtShell {
 public:
  virtual ~IfrtShell() = default;
  // `may_wait`: the client goes on without it, so that it may be sent with others.
  virtual void Send(std::unique_ptr<xla::ifrt::proxy::IfrtResponse> response, bool may_wait) = 0;
  // Runs `work` on another thread, then `then` in the loop (also after the session's end).
  virtual void RunOffLoop(std::function<void()> work, std::function<void()> then) = 0;
  // Lets another thread destroy `garbage`.
  virtual void Discard(std::shared_ptr<void> garbage) = 0;
};

struct IfrtSessionOptions {
  SessionCaps caps;
  int64_t off_loop_bytes = 256 << 10;                      // larger strided copies leave the loop
  std::shared_ptr<BlockPool> blocks = BlockPool::Make(0);  // for bytes in another order
  // The budget for host buffers that clients fetched and did not delete, of all sessions together,
  // except those that come out of the transit memory. A session above its share is not read until
  // it deletes some.
  std::shared_ptr<MemoryBudget> fetched = std::make_shared<MemoryBudget>(int64_t{512} << 20);
};

// Loop-confined. Owned by IfrtDoor.
class IfrtSession final : public SessionSink {
 public:
  using Request = xla::ifrt::proxy::IfrtRequest;
  using Response = xla::ifrt::proxy::IfrtResponse;

  // `id` is the unguessable number that the client names on its side channel. `session` is open in
  // `cluster`, which answers to this from now on; the owner closes it.
  IfrtSession(uint64_t id, SessionId session, Cluster* cluster, CompileService* compiler,
              IfrtShell* shell, IfrtSessionOptions options);
  ~IfrtSession() override;
  IfrtSession(const IfrtSession&) = delete;
  IfrtSession& operator=(const IfrtSession&) = delete;

  // Moves bulk payloads (program bytes, specs of many arrays) out of `request`.
  void Handle(Request& request);
  // Does some more of the last request, if it is not over.
  void GoOn();
  bool HasMore() const { return making_ != nullptr; }
  // The session will be destroyed, its shell lives on: gives its large parts to another thread.
  void Closes();

  // From now on `status` answers every request, including those that wait for an answer, except
  // programs that are being compiled.
  void Refuse(const absl::Status& status);

  // SessionSink: the core's answers to this session.
  void OnWatched(SessionId session, uint64_t token, absl::Status status) override;
  void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) override;
  void OnBound(SessionId, uint64_t key, absl::StatusOr<uint64_t> program) override {
    programs_.Bound(key, program);
  }

  // Whether to go on reading requests: not while too many executions wait for device time.
  bool MayRead() const;
  // Whether its last request is not over; the next one waits.
  bool Busy() const { return making_ != nullptr || cluster_->sessions().Busy(session_); }
  // Whether another thread fills an answer: the next request waits, so that there are not many.
  bool Describing() const { return describing_ > 0; }
  // Units of work that the core has done so far, for all sessions.
  uint64_t WorkDone() const { return cluster_->units(); }

  uint64_t id() const { return id_; }
  SessionId session() const { return session_; }
  HostBufferStore& host_buffers() { return host_buffers_; }

 private:
  // A request that has not been answered.
  struct Call {
    uint64_t op_id = 0;
    // Whether its answer takes a seq_num. jaxlib's client drops user contexts in the order of these
    // numbers and waits for each, but does not see those of Init and of batched requests (frees,
    // deletions and their futures): if these had numbers it would keep every context for ever.
    bool counted = true;
    std::shared_ptr<UserContext> context;
    bool may_wait = false;  // the client does not wait for its answer, if that is no error
  };
  // A handle that CheckFuture or FetchExecuteResult asks for once.
  struct Future {
    bool of_execution = false;
    bool of_deletion = false;
    std::optional<absl::Status> status;  // once it is known
    std::optional<Call> waiter;
  };
  struct Loaded {
    ExecutableId id;
    std::shared_ptr<const v1::ExecutableMetadata> metadata;
    std::vector<int32_t> devices;  // virtual devices
    bool portable = false;
    std::map<int32_t, uint64_t> placed;  // of portable code: by device, the cluster's handle
    bool dataflow = false;               // a program of several computations; has no metadata
  };

  // session.cc
  // Takes the requests that Handle leaves to it.
  void HandleExecutables(Call call, Request& request);
  void Answer(Call call, const absl::Status& status, std::unique_ptr<Response> response);
  template <typename Fill>
  void AnswerWith(Call call, Fill fill) {
    auto response = std::make_unique<Response>();
    const absl::Status status = fill(*response);
    Answer(std::move(call), status, std::move(response));
  }
  // Counts what this holds for the client: futures, user contexts, executables. RESOURCE_EXHAUSTED:
  // no more of these may be made.
  absl::Status CountRecords();
  uint64_t MakeFuture(Future future);
  void FutureEnded(uint64_t handle, absl::Status status);
  // Tells the ends of executions that may be told, some now and the rest in later turns.
  void TellEnds();
  void AskFuture(Call call, uint64_t handle, bool of_execution);
  void AnswerFuture(Call call, const Future& future);
  uint64_t WatchToken(std::function<void(absl::Status)> done);
  void CheckValueReady(Call call, const xla::ifrt::proxy::CheckValueReadyRequest& request);

  void Hold(const Call& call, const std::vector<uint64_t>& handles);

  // session_arrays.cc: each returns OK with the response filled, or an error.
  absl::Status MakeArray(const xla::ifrt::proxy::MakeArrayFromHostBufferRequest& request,
                         const Call& call, Response& response);
  absl::Status Assemble(const xla::ifrt::proxy::AssembleArrayFromSingleDeviceArraysRequest& request,
                        const Call& call, Response& response);
  absl::Status Disassemble(
      const xla::ifrt::proxy::DisassembleIntoSingleDeviceArraysRequest& request, const Call& call,
      Response& response);
  // Answers the call at its end: with the handles of the results in a field of the response, or
  // with an error, which the requested results then hold.
  using HandlesOf = google::protobuf::RepeatedField<uint64_t>* (*)(Response&);
  Cluster::Done Made(Call call, std::vector<uint64_t> asked, HandlesOf field);
  // Calls Hold with each result.
  Cluster::Each Holding(const Call& call);
  void CopyArrays(Call call, const xla::ifrt::proxy::CopyArraysRequest& request);
  using Remaking = void (Cluster::Arrays::*)(SessionId, std::vector<uint64_t>,
                                             Cluster::Arrays::Targets, CopySemantics,
                                             std::vector<uint64_t>, Cluster::Done, Cluster::Each);
  template <typename Proto>
  void Remake(Call call, Proto& taken, Remaking how, HandlesOf field);
  void Reshard(Call call, xla::ifrt::proxy::ReshardArraysRequest& request);
  void Bitcast(Call call, xla::ifrt::proxy::BitcastArraysRequest& request);
  void RemapArrays(Call call, const xla::ifrt::proxy::RemapArraysRequest& request);
  absl::Status ReplicatedShard(const xla::ifrt::proxy::FullyReplicatedShardRequest& request,
                               const Call& call, Response& response);
  // Counts a fetch of `bytes` bytes until nobody has them any more.
  std::shared_ptr<void> ChargeFetched(int64_t bytes);
  absl::Status CopyToHost(const xla::ifrt::proxy::CopyToHostBufferRequest& request,
                          Response& response);
  void DeleteArrays(Call call, const xla::ifrt::proxy::DeleteArrayRequest& request);
  void DestructArrays(Call call, const xla::ifrt::proxy::DestructArrayRequest& request);
  bool IsQuick(const StridedLayout& layout) const;
  void TakeUpload(uint64_t host_buffer, NodeId upload, int32_t blob, StridedLayout layout);

  // session_making.cc: answers once all arrays are made.
  class Making;
  class MakingShards;
  class MakingErrors;
  using ShardsRequest = xla::ifrt::proxy::MakeArraysFromHostBufferShardsRequest;
  using ErrorsRequest = xla::ifrt::proxy::MakeErrorArraysRequest;
  void MakeShards(Call call, ShardsRequest& request);
  void MakeErrors(Call call, ErrorsRequest& request);
  void BeginMaking(std::shared_ptr<Making> making);
  void MakeSome();

  // session_executables.cc
  void Compile(Call call, xla::ifrt::proxy::CompileRequest& request);
  absl::Status FillCompiled(const CompiledProgram& program, const std::vector<int32_t>& devices,
                            bool portable, Response& response);
  void Metadata(Call call, uint64_t handle);
  struct Executing;
  void Execute(Call call, const xla::ifrt::proxy::LoadedExecutableExecuteRequest& request);
  // Its results have these handles, or it was refused.
  void Executed(Executing& executing, const absl::StatusOr<std::vector<uint64_t>>& handles);
  void DescribeOutputs(Executing& executing, std::vector<uint64_t> handles,
                       std::unique_ptr<Response> response);
  // Answers the call once `fill` has described so many arguments and results. If they are many,
  // another thread calls it.
  void Describe(Call call, size_t values, std::function<absl::Status(Response& response)> fill,
                std::unique_ptr<Response> response);
  // The devices that an execution names, or else those of its code.
  std::vector<int32_t> DevicesOf(
      const Loaded& loaded, const xla::ifrt::proxy::LoadedExecutableExecuteRequest& request) const;
  absl::StatusOr<uint64_t> HandleFor(Loaded& loaded, uint64_t handle,
                                     const std::vector<int32_t>& devices);
  absl::Status CostAnalysis(uint64_t handle, Response& response);
  absl::Status ProgramText(uint64_t handle, Response& response);
  absl::Status DestructExecutable(uint64_t handle, Response& response);
  absl::StatusOr<Loaded*> FindLoaded(uint64_t handle);
  // UNIMPLEMENTED: it is not one computation but a dataflow program, which has no `what`.
  absl::StatusOr<Loaded*> FindComputation(uint64_t handle, std::string_view what);

  // session_dataflow.cc
  void BindDataflow(Call call, xla::ifrt::proxy::CompileRequest& request);
  void FillBound(uint64_t handle, const std::string& name, std::vector<int32_t> devices,
                 Response& response);
  void DataflowMetadata(Call call, uint64_t handle);

  const std::vector<VirtualDevice>& devices() const {
    return cluster_->sessions().Devices(session_);
  }

  const uint64_t id_;
  const SessionId session_;
  Cluster* const cluster_;
  CompileService* const compiler_;
  ProgramService programs_;
  IfrtShell* const shell_;
  const IfrtSessionOptions options_;

  HostBufferStore host_buffers_;
  const std::shared_ptr<MemoryBudget> fetched_;  // the session's share of options_.fetched
  std::map<uint64_t, Future> futures_;
  ExecutionEnds ends_;                            // of executions with a status
  absl::btree_map<uint64_t, uint64_t> statuses_;  // their futures, by their numbers in ends_
  bool telling_ends_ = false;                     // TellEnds goes on in a later turn
  std::map<uint64_t, Loaded> loaded_;
  ErrorArrays errors_;
  absl::btree_map<uint64_t, std::shared_ptr<UserContext>> contexts_;  // by array handle
  std::shared_ptr<UserContext::Destroyed> destroyed_contexts_;
  std::map<uint64_t, std::function<void(absl::Status)>> watches_;              // by token
  std::map<uint64_t, std::function<void(absl::StatusOr<BytesRef>)>> fetches_;  // by token
  uint64_t next_token_ = 1;
  uint64_t next_future_;
  int64_t next_seq_num_ = 0;
  std::shared_ptr<Making> making_;  // runs its last request; nullptr: none, or the core does
  int describing_ = 0;              // answers that another thread fills
  absl::Status refusal_;            // not OK: the answer to every request
  PendingCompilations compiling_;
  std::shared_ptr<bool> alive_;  // false once the session has ended, for later callbacks
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_SESSION_H_
