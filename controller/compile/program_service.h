// SPDX-License-Identifier: Apache-2.0
// Binds programs for sessions: checks them, has their computations compiled, lowers them and makes
// them known to the core (docs/design/0040-programs.md).
//
// A program may have hundreds of thousands of nodes and values, so other threads do what takes
// longer with each of them; the loop sees to what that takes of the session's share of the
// controller's memory (docs/design/0059-shares.md), asks for compilations a few at a time, and has
// the core take the program in slices.
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
  // Runs `work` on some other thread, then `then` in the loop. What it runs for one service runs
  // one after the other, and is destroyed there.
  using OffLoop = std::function<void(std::function<void()> work, std::function<void()> then)>;
  struct Request {
    uint64_t out = 0;  // the handle for it; 0: any
    // Both on other threads. The program; and, if not empty, a look at what it takes and makes,
    // before it is bound.
    std::function<absl::StatusOr<v1::BoundProgram>()> program;
    std::function<void(const ExecutableSignature&)> describe;
  };

  ProgramService(Cluster* cluster, CompileService* compiler, SessionId session, OffLoop off_loop);
  ~ProgramService();
  ProgramService(const ProgramService&) = delete;
  ProgramService& operator=(const ProgramService&) = delete;

  // `done` gets the session's handle for the program; it runs in the loop, once, unless this
  // service or the session ends before. INVALID_ARGUMENT names node and source line, or the
  // computation whose types are not what the compiler says; UNIMPLEMENTED: the computation that the
  // runtime of its slice does not run; RESOURCE_EXHAUSTED: it takes more memory than the session
  // may have (Cluster::Programs::Reserve); else what the compiler said, with the computation's
  // name.
  void Bind(Request request, Done done);

 private:
  struct Work;
  struct Binding;

  // Takes a step of the binding's work on another thread, then, if that went well, does `then` in
  // the loop.
  void Off(const std::shared_ptr<Binding>& binding, absl::Status (*step)(Work&),
           std::function<void()> then);
  // Counts what its work takes by now. False: it is refused, and over.
  bool Reserve(const std::shared_ptr<Binding>& binding);
  // Asks for some more of its computations.
  void Compile(const std::shared_ptr<Binding>& binding);
  void Compiled(const std::shared_ptr<Binding>& binding, size_t number,
                const absl::StatusOr<CompiledProgram>& code);
  // One compilation less is open; after the last one it goes on.
  void Lower(const std::shared_ptr<Binding>& binding);
  void End(const std::shared_ptr<Binding>& binding, const absl::StatusOr<uint64_t>& bound);
  // Has another thread give up its work.
  void GiveUp(Binding& binding);

  Cluster* const cluster_;
  CompileService* const compiler_;
  const SessionId session_;
  const OffLoop off_loop_;
  uint64_t next_key_ = 1;
  std::map<uint64_t, std::weak_ptr<Binding>> bindings_;  // by key; those that are not over
  // Answers that come after the service's end find it gone, and so does work that has not begun.
  const std::shared_ptr<std::atomic<bool>> alive_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_COMPILE_PROGRAM_SERVICE_H_
