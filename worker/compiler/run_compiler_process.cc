// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/run_compiler_process.h"

#include "base/log.h"
#include "worker/compiler/pjrt_compiler.h"

namespace fairway {

int RunCompilerProcess(int fd_in, int fd_out, const PjrtConfig& config) {
  auto compiler = MakePjrtCompiler(config);
  if (!compiler.ok()) {
    const absl::Status status = Annotate(compiler.status(), "the compile helper has no compiler");
    spdlog::error("{}", Describe(status));
    return ServeCompiler(fd_in, fd_out, status);
  }
  return ServeCompiler(fd_in, fd_out, compiler->get());
}

}  // namespace fairway
