// SPDX-License-Identifier: Apache-2.0
// The supervisor's side of compiling: a pool of disposable processes, each of which may die of what
// it compiles, or be killed for what it uses.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILE_POOL_H_
#define FAIRWAY_WORKER_COMPILER_COMPILE_POOL_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/compiler.h"
#include "worker/compiler/sandbox.h"

namespace fairway {

// Keeps some processes warm, gives each program to one of its own, and ends that process after a
// bounded number of programs. Thread-safe.
class CompilePool {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CompileResult>)>;

  struct Options {
    // Program and arguments; it calls RunCompilerProcess(kCompileLinkFd, ...).
    std::vector<std::string> argv;
    // The whole environment, "NAME=value", of which CompileEnvironment chooses. XLA_FLAGS should be
    // that of XlaFlags().
    std::vector<std::string> env;
    // Each process is told first what to compile for: `target`, or, while that is empty, what
    // SetTarget will say; programs wait for it.
    bool told = false;
    v1::CompileTarget target;
    int parallel = 4;      // programs compiled at one time, at most
    int warm = 2;          // processes that wait for programs
    int programs = 16;     // compiled by one process, at most; after one that failed none
    CompileLimits limits;  // what the processes were told; for the texts of failures
  };

  // Does not wait for a process to be up. Errors: it cannot be started.
  static absl::StatusOr<std::unique_ptr<CompilePool>> Start(Options options);

  // Kills the processes; what is under way ends with CANCELLED before this returns. Not from a
  // `done`.
  ~CompilePool();
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  // What programs that begin from now on are compiled for. With Options::told only. Never blocks.
  void SetTarget(v1::CompileTarget target);

  // Never blocks. `done` runs once, on a thread of this object, and must not block it. `limit`
  // counts from this call; zero means none. Errors beside those of Compiler::Compile:
  // DEADLINE_EXCEEDED: not done in time; the process was killed if it was at it.
  // RESOURCE_EXHAUSTED: the process used more CPU time or memory than its limits.
  // INTERNAL: the process died otherwise while compiling; the text names the signal or the code.
  // DATA_LOSS: the code does not match its checksum.
  // UNAVAILABLE: there is no process, and none can be started.
  void Compile(std::string program, v1::CompileOptions options, std::chrono::milliseconds limit,
               Done done);

  // Process ids, in the order of their starts; processes started so far. For status and tests.
  std::vector<int> pids() const;
  int starts() const;

 private:
  class Loop;
  explicit CompilePool(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_POOL_H_
