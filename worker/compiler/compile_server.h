// SPDX-License-Identifier: Apache-2.0
// The process that compiles, and does nothing else. Of a worker's processes only these and the
// executor load the plugin. A program may end the process that compiles it.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_
#define FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_

#include "worker/compiler/compiler.h"
#include "worker/compiler/sandbox.h"

namespace fairway {

// The descriptor of the process's end of the link; CompilePool puts it there.
constexpr int kCompileLinkFd = 3;

// Writes to `fd` that it is ready or, without a compiler, the reason; then answers requests in
// order. It marks its last answer: that of number `programs`, an error, or one after which much of
// the limits of `seal` (nullptr: not confined) is used. So a program that is not sound meets no
// other program in its process. Returns 0 at end of file, 1 if the link breaks or there is no
// compiler. End of file while a program is being compiled ends the process at once, because its
// parent is gone.
int ServeCompiler(int fd, const absl::StatusOr<Compiler*>& compiler, int programs,
                  const Seal* seal);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_
