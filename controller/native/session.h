// SPDX-License-Identifier: Apache-2.0
// One client's conversation over fairway.v1.Client (proto/fairway/v1/client.proto gives the meaning
// of the requests): a thin adapter onto the operations of the core.
//
// Knows no gRPC, thread or clock. Requests are handled in order. Only compilations, watches,
// fetches, and calls that ask for an answer, are answered later.
#ifndef FAIRWAY_CONTROLLER_NATIVE_SESSION_H_
#define FAIRWAY_CONTROLLER_NATIVE_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/virtual_device.h"
#include "controller/compile/compile_service.h"
#include "controller/compile/program_service.h"
#include "controller/sessions/caps.h"
#include "controller/sessions/error_arrays.h"
#include "controller/sessions/host_buffer_store.h"
#include "fairway/v1/client.pb.h"

namespace fairway {

// The shell of a session. Its functions must not re-enter the session.
class NativeShell {
 public:
  virtual ~NativeShell() = default;
  virtual void Send(v1::Answer answer) = 0;
  // Sends a ServerMessage that another thread has serialized.
  virtual void SendSerialized(std::string message) = 0;
  // Sends, as answers to `id`, the bytes of position `index` of its Fetch.shards, in pieces.
  virtual void SendBytes(uint64_t id, int32_t index, BytesRef bytes) = 0;
  // Runs `work` on another thread, then `then` in the loop (also after the session's end).
  virtual void RunOffLoop(std::function<void()> work, std::function<void()> then) = 0;
  // Lets another thread destroy `garbage`.
  virtual void Discard(std::shared_ptr<void> garbage) = 0;
};

struct NativeSessionOptions {
  SessionCaps caps;
  std::string server;  // the server's name in Welcome
};

inline constexpr uint32_t kMinClientProtocol = 1;
inline constexpr uint32_t kMaxClientProtocol = 1;

// Loop-confined. Owned by NativeDoor.
class NativeSession final : public SessionSink {
 public:
  // `session` is open in `cluster`, which answers to this from now on; the owner closes it.
  NativeSession(SessionId session, Cluster* cluster, CompileService* compiler, NativeShell* shell,
                const NativeSessionOptions& options);
  ~NativeSession() override;
  NativeSession(const NativeSession&) = delete;
  NativeSession& operator=(const NativeSession&) = delete;

  // Moves bulk payloads (program bytes, specs of many arrays) out of `request`.
  void Handle(v1::Request& request);
  // The session will be destroyed, its shell lives on: gives its large parts to another thread.
  void Closes();
  // An upload that a put has announced, or will announce, is complete.
  void Uploaded(uint64_t upload, absl::StatusOr<BytesRef> bytes);

  // From now on `status` answers every request, including those that wait for an answer, except
  // programs that are being compiled.
  void Refuse(const absl::Status& status);

  // SessionSink: the core's answers to this session.
  void OnWatched(SessionId session, uint64_t token, absl::Status status) override;
  void OnFetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) override;
  void OnBound(SessionId, uint64_t key, absl::StatusOr<uint64_t> program) override {
    programs_.Bound(key, program);
  }

  // Whether to go on handling requests (rule B3).
  bool MayRead() const;
  // Whether its last request is not over; the next one waits.
  bool Busy() const { return cluster_->sessions().Busy(session_); }
  // Units of work that the core has done so far, for all sessions.
  uint64_t WorkDone() const { return cluster_->units(); }

  SessionId session() const { return session_; }

 private:
  // One shard of a fetch under way.
  struct Fetching {
    uint64_t id = 0;
    int32_t index = 0;
    std::shared_ptr<bool> failed;  // shared by all its shards: one was answered with an error
  };

  // session.cc
  void Answer(uint64_t id, const absl::Status& status);
  absl::Status SayHello(uint64_t id, const v1::Hello& hello);
  absl::Status Dispatch(v1::Request& request, bool* answered);
  void Release(uint64_t id, const v1::Release& release);

  // session_arrays.cc
  absl::Status Put(v1::Put& put);
  absl::Status MakeError(const v1::MakeError& request);
  // Answers `id` once the request has ended.
  Cluster::Ended Ended(uint64_t id);
  // The same; if the request is refused, the results hold the error.
  Cluster::Done Made(uint64_t id, std::vector<uint64_t> out);
  void Copy(uint64_t id, const v1::Copy& copy);
  void Reshard(uint64_t id, v1::Reshard& request);
  absl::Status Assemble(const v1::Assemble& assemble);
  absl::Status Disassemble(const v1::Disassemble& disassemble);
  void Watch(uint64_t id, const std::vector<uint64_t>& arrays);
  void StartFetch(const Fetching& fetching, uint64_t array);
  absl::Status Fetch(uint64_t id, const v1::Fetch& fetch);

  // session_programs.cc
  void Compile(uint64_t id, v1::Compile& compile);
  absl::Status Bind(uint64_t id, uint64_t handle, const CompiledProgram& program,
                    const std::vector<int32_t>& devices);
  void BindProgram(uint64_t id, v1::BindProgram& bind);
  // The arguments and results of an executable or a program, as an answer.
  static v1::Answer CompiledAnswer(uint64_t id, const ExecutableSignature& signature);
  // The answer follows once the call has ended.
  void Call(uint64_t id, const v1::Call& call);

  const std::vector<VirtualDevice>& devices() const {
    return cluster_->sessions().Devices(session_);
  }

  const SessionId session_;
  Cluster* const cluster_;
  CompileService* const compiler_;
  ProgramService programs_;
  NativeShell* const shell_;
  const NativeSessionOptions options_;

  HostBufferStore uploads_;
  ErrorArrays errors_;
  // An executable or a program.
  struct Callable {
    size_t results = 0;
    bool program = false;
  };
  std::map<uint64_t, Callable> callables_;  // by handle
  std::map<uint64_t, uint64_t> watches_;    // token -> id
  std::map<uint64_t, Fetching> fetches_;    // by token
  uint64_t next_token_ = 1;
  bool greeted_ = false;
  absl::Status refusal_;  // not OK: the answer to every request
  PendingCompilations compiling_;
  std::shared_ptr<bool> alive_;  // false once the session has ended, for later callbacks
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_SESSION_H_
