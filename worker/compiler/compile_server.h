// SPDX-License-Identifier: Apache-2.0
// The process that compiles and does nothing else. Such processes alone of a worker's, beside the
// executor, load the plugin; what they compile may end them.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_
#define FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_

#include "worker/compiler/compiler.h"
#include "worker/compiler/sandbox.h"

namespace fairway {

// The descriptor at which the process finds its end of the link (CompilePool puts it there).
constexpr int kCompileLinkFd = 3;

// Says on `fd` that it is ready or, without a compiler, why not; then answers requests in order.
// The last answer is marked: that of number `programs`, or an error, or one that used much of the
// limits of `seal` (none: not confined). So a program that is not sound meets no other in its
// process. Returns 0 at end of file, 1 when the link breaks or there is no compiler. End of file
// while a program is being compiled ends the process at once: its parent is gone.
int ServeCompiler(int fd, const absl::StatusOr<Compiler*>& compiler, int programs,
                  const Seal* seal);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_
