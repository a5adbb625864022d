// SPDX-License-Identifier: Apache-2.0
// The helper's side: a process that compiles and does nothing else. It alone of a worker's
// processes, beside the executor, loads the plugin; bad options or programs may end it.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_
#define FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_

#include "worker/compiler/compiler.h"

namespace fairway {

// The descriptor at which a helper finds its end of the link (CompilerProcess puts it there).
constexpr int kCompileLinkFd = 3;

// Answers requests from `fd_in` on `fd_out` (which may be the same), in order, with `compiler`; a
// failed `compiler` answers every request with its error. Returns 0 at end of file, 1 when the link
// breaks. End of file while a program is being compiled ends the process at once: its parent is
// gone.
int ServeCompiler(int fd_in, int fd_out, const absl::StatusOr<Compiler*>& compiler);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_SERVER_H_
