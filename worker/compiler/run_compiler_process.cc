// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/run_compiler_process.h"

#include "base/log.h"
#include "worker/compiler/compile_wire.h"

namespace fairway {

int RunCompilerProcess(const CompilerProcess& config) {
  const bool left_network = LeaveNetwork();
  // Threads that the compiler starts inherit this wall; a later call would not reach them.
  const bool confined = ConfineFiles(config.files);
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
  const bool executes = !config.files.execute.empty() && !HasNvJitLink();
  const Seal seal(config.limits, left_network, confined,
                  executes ? Execution::kAssembler : Execution::kNone);
  return ServeCompiler(config.fd, compiler->get(), config.programs, &seal);
}

}  // namespace fairway
