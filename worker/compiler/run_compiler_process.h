// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
#define FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_

#include <functional>
#include <memory>

#include "worker/compiler/compile_server.h"
#include "worker/compiler/sandbox.h"

namespace fairway {

// The main of a compile process: makes its compiler, confines itself and serves the link for
// at most `programs` programs. Call it while the process has one thread. Returns the exit code.
int RunCompilerProcess(int fd,
                       const std::function<absl::StatusOr<std::unique_ptr<Compiler>>()>& make,
                       const CompileLimits& limits, int programs);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
