// SPDX-License-Identifier: Apache-2.0
// Binds programs for sessions: checks them, has their computations compiled, lowers them and makes
// them known to the core (docs/design/0040-programs.md).
#ifndef FAIRWAY_CONTROLLER_PROGRAM_SERVICE_H_
#define FAIRWAY_CONTROLLER_PROGRAM_SERVICE_H_

#include <functional>
#include <memory>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/compile_service.h"
#include "fairway/v1/program.pb.h"

namespace fairway {

// Loop-confined.
class ProgramService {
 public:
  using Done = std::function<void(absl::StatusOr<uint64_t>)>;
  // Runs `work` on some other thread, then `then` in the loop.
  using OffLoop = std::function<void(std::function<void()> work, std::function<void()> then)>;

  ProgramService(Cluster* cluster, CompileService* compiler, OffLoop off_loop);
  ~ProgramService();
  ProgramService(const ProgramService&) = delete;
  ProgramService& operator=(const ProgramService&) = delete;

  // `done` gets the session's handle for the program, `out` unless that is 0; it runs in the loop,
  // once, unless this service ends before. INVALID_ARGUMENT names node and source line,
  // or the computation whose types are not what the compiler says; UNIMPLEMENTED: the computation
  // that the runtime of its slice does not run; else what the compiler said, with the computation's
  // name; NOT_FOUND: the session has ended meanwhile.
  void Bind(SessionId session, uint64_t out, const v1::BoundProgram& request, Done done);

 private:
  struct Binding;

  absl::Status Prepare(SessionId session, const v1::BoundProgram& request, Binding& binding) const;
  void Compile(const std::shared_ptr<Binding>& binding, int32_t computation, int32_t place);
  absl::Status Compiled(Binding& binding, int32_t computation, int32_t place,
                        const CompiledProgram& code) const;
  void Finish(const std::shared_ptr<Binding>& binding);

  Cluster* const cluster_;
  CompileService* const compiler_;
  const OffLoop off_loop_;       // lowering takes a second when loops unroll to 100,000 steps
  std::shared_ptr<bool> alive_;  // answers that come after the service's end find it gone
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_PROGRAM_SERVICE_H_
