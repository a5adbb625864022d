// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/run_compiler_process.h"

#include "base/log.h"
#include "worker/compiler/pjrt_compiler.h"

namespace fairway {
namespace {

// Goes through the parser, XLA's passes and LLVM, all of which set themselves up at first use.
constexpr char kWarmUp[] = R"(module @warm_up {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";

absl::Status WarmUp(Compiler& compiler) {
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(1);
  return Annotate(compiler.Compile(kWarmUp, options).status(), "compiling a first program");
}

}  // namespace

int RunCompilerProcess(int fd, const PjrtConfig& config, const CompileLimits& limits,
                       int programs) {
  const bool left_network = LeaveNetwork();
  auto compiler = MakePjrtCompiler(config);
  absl::Status status = compiler.status();
  if (status.ok()) status = WarmUp(**compiler);
  if (!status.ok()) {
    status = Annotate(status, "this worker has no compiler");
    spdlog::error("{}", Describe(status));
    return ServeCompiler(fd, status, programs, nullptr);
  }
  const Seal seal(limits, left_network);
  return ServeCompiler(fd, compiler->get(), programs, &seal);
}

}  // namespace fairway
