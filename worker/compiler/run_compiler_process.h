// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
#define FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_

#include "worker/compiler/compile_server.h"
#include "worker/compiler/sandbox.h"
#include "worker/executor/runtime/pjrt/config.h"

namespace fairway {

// The main of a compile process: loads the plugin, compiles a small program of its own so that the
// first of a client takes no longer than later ones, confines itself and serves the link for
// at most `programs` programs. Call it while the process has one thread. Returns the exit code.
int RunCompilerProcess(int fd, const PjrtConfig& config, const CompileLimits& limits, int programs);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
