// SPDX-License-Identifier: Apache-2.0
// The errors of programs whose compile process ended before it answered.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILE_FAILURE_H_
#define FAIRWAY_WORKER_COMPILER_COMPILE_FAILURE_H_

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"
#include "worker/compiler/child.h"
#include "worker/compiler/sandbox.h"

namespace fairway {

// Returns "jit_f (1,234 bytes, SHA-256 0123456789ab...)": the module's name, if it can be found
// without decoding the program, its size and its checksum.
std::string ProgramTitle(std::string_view program);

// RESOURCE_EXHAUSTED: the process reached a limit. INTERNAL: any other end.
absl::Status CompileFailure(const ChildEnd& end, const CompileLimits& limits,
                            std::string_view title);

// DEADLINE_EXCEEDED. `started`: the program was being compiled; else it waited for a process.
absl::Status CompileTooLate(std::chrono::milliseconds limit, bool started, std::string_view title);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_FAILURE_H_
