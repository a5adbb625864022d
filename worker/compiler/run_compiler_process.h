// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
#define FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/compile_server.h"
#include "worker/compiler/sandbox.h"

namespace fairway {

// Makes a compiler for the target that the supervisor sent; empty: it sent none.
using CompilerMaker =
    std::function<absl::StatusOr<std::unique_ptr<Compiler>>(const v1::CompileTarget& target)>;

struct CompilerProcess {
  int fd = kCompileLinkFd;  // the link
  bool told = false;        // the first message on the link is the target
  CompilerMaker make;
  CompileLimits limits;
  int programs = 1;  // programs that it compiles, at most
  // The files that it may open from the start on: FilesToCompile.
  FileRights files;
};

// The main function of a compile process: makes its compiler, confines itself and serves the link.
// Call it while the process has one thread. Returns the exit code.
int RunCompilerProcess(const CompilerProcess& config);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_RUN_COMPILER_PROCESS_H_
