// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/run_compiler_process.h"

#include "base/log.h"
#include "worker/compiler/compile_wire.h"

namespace fairway {

int RunCompilerProcess(const CompilerProcess& config) {
  const bool left_network = LeaveNetwork();
  // Threads that the compiler starts inherit this restriction; a later call would not reach them.
  const bool confined = !config.assemblers.empty() && ExecuteOnly(config.assemblers);
  v1::CompileRequest first;
  if (config.told) {
    const auto frame = ReadFrame(config.fd);
    if (!frame.ok() || !first.ParseFromString(*frame)) return 1;
  }
  const auto compiler = config.make(first.target());
  if (!compiler.ok()) {
    const absl::Status status = Annotate(compiler.status(), "this worker has no compiler");
    spdlog::error("{}", Describe(status));
    return ServeCompiler(config.fd, status, config.programs, nullptr);
  }
  const bool executes = !config.assemblers.empty() && !HasNvJitLink();
  const Execution execution = !executes  ? Execution::kNone
                              : confined ? Execution::kAssembler
                                         : Execution::kAny;
  const Seal seal(config.limits, left_network, execution);
  return ServeCompiler(config.fd, compiler->get(), config.programs, &seal);
}

}  // namespace fairway
