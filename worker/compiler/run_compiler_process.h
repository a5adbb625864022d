// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
#define FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_

#include "worker/compiler/compile_server.h"
#include "worker/executor/runtime/pjrt/config.h"

namespace fairway {

// The compile helper's main: loads the plugin and serves the link (which may be one descriptor
// twice) until its end. A plugin that does not load is the answer to every request. Returns the
// exit code.
int RunCompilerProcess(int fd_in, int fd_out, const PjrtConfig& config);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
