// SPDX-License-Identifier: Apache-2.0
// What a compile process may do and use. A program from a client is not safe data: decoding or
// compiling it may crash, never end or ask for any amount of memory. This bounds what that costs;
// it is no wall against code written to break out (docs/design/0021-compile-processes.md).
#ifndef FAIRWAY_WORKER_COMPILER_SANDBOX_H_
#define FAIRWAY_WORKER_COMPILER_SANDBOX_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace fairway {

// Per process; a process that has used a tenth of them gets no further program.
struct CompileLimits {
  std::chrono::seconds cpu{0};  // of all threads together; 0: none
  int64_t memory = 0;           // bytes; 0: none
};

// Bytes of memory for one program where nobody said otherwise: a quarter of the host's, 2 GiB at
// least.
int64_t DefaultCompileMemory();

// Exit codes of a compile process beside 0 (the link ended) and 1 (the link broke).
constexpr int kExitOutOfMemory = 41;

// First thing in a compile process, while it has one thread: its own network namespace where the
// system permits it, lower priority, first victim of the kernel when memory runs out.
// Returns whether the network is out of reach.
bool LeaveNetwork();

// The assembler that a CUDA plugin executes when it has no nvJitLink: `ptxas` of the packages
// beside `plugin`. Empty: there is none.
std::string AssemblerOf(const std::string& plugin);

// As early: from now on the process and what it starts execute no file but `program` (and the
// dynamic loader, which the kernel executes for it). Returns whether the system does that
// (Landlock).
bool ExecuteOnly(const std::string& program);

// Whether the process has opened nvJitLink, which compiles within it what the assembler would.
bool HasNvJitLink();

// What a compile process may execute, once it is sealed.
enum class Execution {
  kNone,
  kAssembler,  // ExecuteOnly is in force
  kAny,        // the assembler is needed, and the system cannot permit it alone
};

// Before the first untrusted byte: no new privileges, no core files, `limits` counted from what the
// process uses now, and a filter of system calls for all its threads: no sockets, no other
// programs (but as `execution` says), no signals to others, nothing administrative. A failed
// operator new ends the process with kExitOutOfMemory.
class Seal {
 public:
  Seal(const CompileLimits& limits, bool left_network, Execution execution = Execution::kNone);
  // What the system refused, in words; empty: all is in force.
  const std::string& refused() const { return refused_; }
  // Whether a tenth of a limit is used since: the next program should find more.
  bool Used() const;

 private:
  const CompileLimits limits_;
  const std::chrono::seconds cpu_;
  const int64_t memory_;
  std::string refused_;
};

// Of `env` ("NAME=value") what a compile process gets: what its libraries need, no secrets.
std::vector<std::string> CompileEnvironment(const std::vector<std::string>& env);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_SANDBOX_H_
