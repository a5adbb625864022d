// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/run_compiler_process.h"

#include "base/log.h"

namespace fairway {
int RunCompilerProcess(int fd,
                       const std::function<absl::StatusOr<std::unique_ptr<Compiler>>()>& make,
                       const CompileLimits& limits, int programs) {
  const bool left_network = LeaveNetwork();
  const auto compiler = make();
  if (!compiler.ok()) {
    const absl::Status status = Annotate(compiler.status(), "this worker has no compiler");
    spdlog::error("{}", Describe(status));
    return ServeCompiler(fd, status, programs, nullptr);
  }
  const Seal seal(limits, left_network);
  return ServeCompiler(fd, compiler->get(), programs, &seal);
}

}  // namespace fairway
