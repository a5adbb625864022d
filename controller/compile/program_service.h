// SPDX-License-Identifier: Apache-2.0
// Binds programs for sessions: checks them, has their computations compiled, lowers them and makes
// them known to the core (docs/design/0040-programs.md).
//
// A program may have hundreds of thousands of nodes and values, so other threads do the work that
// grows with their number. The loop counts the memory of that work against the session's share of
// the controller's memory (docs/design/0059-shares.md), asks for compilations a few at a time, and
// gives the core the program in slices.
#ifndef FAIRWAY_CONTROLLER_COMPILE_PROGRAM_SERVICE_H_
#define FAIRWAY_CONTROLLER_COMPILE_PROGRAM_SERVICE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/compile/compile_service.h"
#include "fairway/v1/program.pb.h"

namespace fairway {

// Loop-confined.
class ProgramService {
 public:
  using Done = std::function<void(absl::StatusOr<uint64_t>)>;
  // Runs `work` on another thread, then `then` in the loop. The pieces of work of one service run
  // one after the other, and are destroyed on that thread.
  using OffLoop = std::function<void(std::function<void()> work, std::function<void()> then)>;
  struct Request {
    uint64_t out = 0;  // the handle for the program; 0: any
    // Both run on other threads. `program` returns the program. `describe`, if set, is given its
    // arguments and results before it is bound.
    std::function<absl::StatusOr<v1::BoundProgram>()> program;
    std::function<void(const ExecutableSignature&)> describe;
  };

  ProgramService(Cluster* cluster, CompileService* compiler, SessionId session, OffLoop off_loop);
  ~ProgramService();
  ProgramService(const ProgramService&) = delete;
  ProgramService& operator=(const ProgramService&) = delete;

  // `done` gets the session's handle for the program. It runs in the loop, once, unless this
  // service or the session ends first. INVALID_ARGUMENT names node and source line, or the
  // computation whose types differ from the compiler's. UNIMPLEMENTED names the computation that
  // the runtime of its slice does not run. RESOURCE_EXHAUSTED: it takes more memory than the
  // session may have (Cluster::Programs::Reserve). Other errors are the compiler's, with the
  // computation's name.
  void Bind(Request request, Done done);
  // The core's answer to a program that this service has given it (SessionSink::OnBound).
  void Bound(uint64_t key, const absl::StatusOr<uint64_t>& program);

 private:
  struct Work;
  struct Binding;

  // Does a step of the binding's work on another thread, then, if that succeeded, calls `then` in
  // the loop.
  void Off(const std::shared_ptr<Binding>& binding, absl::Status (*step)(Work&),
           std::function<void()> then);
  // Counts the memory that its work now takes. False: it was refused, and is over.
  bool Reserve(const std::shared_ptr<Binding>& binding);
  // Asks for some more compilations.
  void Compile(const std::shared_ptr<Binding>& binding);
  void Compiled(const std::shared_ptr<Binding>& binding, size_t number,
                const absl::StatusOr<CompiledProgram>& code);
  // One compilation fewer is open; after the last one the binding goes on.
  void Lower(const std::shared_ptr<Binding>& binding);
  void End(const std::shared_ptr<Binding>& binding, const absl::StatusOr<uint64_t>& bound);
  // Lets another thread destroy its work.
  void GiveUp(Binding& binding);

  Cluster* const cluster_;
  CompileService* const compiler_;
  const SessionId session_;
  const OffLoop off_loop_;
  uint64_t next_key_ = 1;
  std::map<uint64_t, std::shared_ptr<Binding>> bindings_;  // by key: those that are not over
  // False once the service has ended: later answers then do nothing, and work does not begin.
  const std::shared_ptr<std::atomic<bool>> alive_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_COMPILE_PROGRAM_SERVICE_H_
