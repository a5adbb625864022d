// SPDX-License-Identifier: Apache-2.0
// What a client is told when the process that compiled its program ended before it answered.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILE_FAILURE_H_
#define FAIRWAY_WORKER_COMPILER_COMPILE_FAILURE_H_

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"
#include "worker/compiler/child.h"
#include "worker/compiler/sandbox.h"

namespace fairway {

// "jit_f (1,234 bytes, SHA-256 0123456789ab...)": the module's name as far as it can be found
// without decoding the program.
std::string ProgramTitle(std::string_view program);

// RESOURCE_EXHAUSTED: a limit was met. INTERNAL: any other end.
absl::Status CompileFailure(const ChildEnd& end, const CompileLimits& limits,
                            std::string_view title);

// DEADLINE_EXCEEDED. `started`: it was being compiled, not waiting for a process.
absl::Status CompileTooLate(std::chrono::milliseconds limit, bool started, std::string_view title);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_FAILURE_H_
