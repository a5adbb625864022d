// SPDX-License-Identifier: Apache-2.0
// The supervisor's side of compiling: a pool of disposable processes. Each may die because of a
// program, or be killed because it uses too much.
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

// Keeps some processes warm, compiles each program in a process that compiles nothing else at that
// time and compiled for no other tenant before, and ends a process after a bounded number of
// programs. Owned by the supervisor.
// Thread-safe.
class CompilePool {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CompileResult>)>;

  struct Options {
    // Program and arguments. The program calls RunCompilerProcess(kCompileLinkFd, ...).
    std::vector<std::string> argv;
    // The whole environment, "NAME=value"; CompileEnvironment chooses from it. XLA_FLAGS should be
    // the value of XlaFlags().
    std::vector<std::string> env;
    // Each process is first told its target: `target`, or, while that is empty, the one that
    // SetTarget will bring. Programs wait for it.
    bool told = false;
    v1::CompileTarget target;
    int parallel = 4;  // programs that are compiled at the same time, at most
    // Processes that are kept ready for programs; once a second tenant has come, for those of any
    // tenant. As many as `parallel` more are kept for tenants for whom they compiled before.
    int warm = 2;
    // programs that one process compiles, at most; after a failed program it gets no other
    int programs = 16;
    // A process that has not said by then that it is ready is killed, and another one starts.
    std::chrono::milliseconds ready_within = std::chrono::minutes(2);
    CompileLimits limits;  // the limits that the processes were told; for texts of failures
  };

  // Starts the pool. Does not wait for a process to be up. Errors: a process cannot be started.
  static absl::StatusOr<std::unique_ptr<CompilePool>> Start(Options options);

  // Kills the processes. Programs under way end with CANCELLED before it returns. Not from a
  // `done`.
  ~CompilePool();
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  // Sets the target of programs that begin from now on. Only with Options::told. Never blocks.
  void SetTarget(v1::CompileTarget target);

  // Compiles a program. Never blocks. `done` runs once, on a thread of this object, and must not
  // block it. `limit` counts from this call; zero means no limit. Errors, beside those of
  // Compiler::Compile:
  //
  // DEADLINE_EXCEEDED: `limit` has passed; if a process was compiling the program, it was killed.
  // RESOURCE_EXHAUSTED: the process used more CPU time or memory than its limits.
  // INTERNAL: the process died otherwise while compiling; the text names the signal or the code.
  // DATA_LOSS: the code does not match its checksum.
  // UNAVAILABLE: there is no process, and none can be started.
  void Compile(std::string program, v1::CompileOptions options, std::chrono::milliseconds limit,
               Done done);

  // Process ids, in the order of their starts; the number of processes started so far, and of those
  // that ended by themselves, or were killed since they took too long. For metrics and tests.
  std::vector<int> pids() const;
  int starts() const;
  int crashes() const;

 private:
  class Loop;
  explicit CompilePool(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILE_POOL_H_
