// SPDX-License-Identifier: Apache-2.0
// The supervisor's side of the compile helper: a child process that may die of what it compiles.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILER_PROCESS_H_
#define FAIRWAY_WORKER_COMPILER_COMPILER_PROCESS_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "worker/compiler/compiler.h"

namespace fairway {

// Starts the helper, sends it one request at a time, restarts it when it ends. Thread-safe.
class CompilerProcess {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CompileResult>)>;

  struct Options {
    // Program and arguments; it calls RunCompilerProcess(kCompileLinkFd, kCompileLinkFd, ...).
    std::vector<std::string> argv;
    // The whole environment, "NAME=value". XLA_FLAGS should be that of XlaFlags().
    std::vector<std::string> env;
  };

  // Does not wait for the helper to be up. Errors: the child cannot be started.
  static absl::StatusOr<std::unique_ptr<CompilerProcess>> Start(Options options);

  // Kills the helper; what is under way ends with CANCELLED before this returns. Not from a `done`.
  ~CompilerProcess();
  CompilerProcess(const CompilerProcess&) = delete;
  CompilerProcess& operator=(const CompilerProcess&) = delete;

  // Never blocks. `done` runs once, on a thread of this object, and must not block it. `limit`
  // counts from this call; zero means none. Errors beside those of Compiler::Compile:
  // DEADLINE_EXCEEDED: not done in time; the helper was killed if it was at it.
  // INTERNAL: the helper died while compiling; the text names the signal or the exit code.
  // DATA_LOSS: the code does not match its checksum. UNAVAILABLE: the helper cannot be started.
  void Compile(std::string program, v1::CompileOptions options, std::chrono::milliseconds limit,
               Done done);

  // The helper's process id; 0 when it is not running. Helpers started so far. For status and
  // tests.
  int pid() const;
  int starts() const;

 private:
  class Loop;
  explicit CompilerProcess(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILER_PROCESS_H_
