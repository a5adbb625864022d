// SPDX-License-Identifier: Apache-2.0
// Bounds what a compile process may do and use. A program from a client is not safe data: decoding
// or compiling it may crash, never end, or ask for any amount of memory. This bounds the damage; it
// is no wall against code written to break out (docs/design/0021-compile-processes.md).
#ifndef FAIRWAY_WORKER_COMPILER_SANDBOX_H_
#define FAIRWAY_WORKER_COMPILER_SANDBOX_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/process/walls.h"

namespace fairway {

// For each process. A process that has used a tenth of them gets no further program.
struct CompileLimits {
  std::chrono::seconds cpu{0};  // of all threads together; 0: none
  int64_t memory = 0;           // bytes; 0: none
};

// Returns the memory for one program if no option sets it, in bytes: a quarter of the host's, at
// least 2 GiB.
int64_t DefaultCompileMemory();

// Exit codes of a compile process, beside 0 (the link ended) and 1 (the link broke).
constexpr int kExitOutOfMemory = 41;

// Call it first in a compile process, while it has one thread. Gives the process its own network
// namespace if the system permits that, a lower priority, and makes it the kernel's first victim
// when memory runs out. Returns whether the network is out of reach.
bool LeaveNetwork();

// Returns the assemblers that a CUDA plugin may execute if it has no nvJitLink: each `ptxas` in the
// folders where XLA looks for one (FindCudaExecutable in xla/stream_executor/cuda). These are those
// of PATH, of CUDA's toolkit in /usr/local and /opt, and of the packages beside `plugin`. Empty:
// there is none.
std::vector<std::string> AssemblersOf(const std::string& plugin);

// Returns the files that compiling with `plugin` needs (ConfineFiles): system libraries, those of
// the plugin and of its packages, what the system says of its processors. Nothing in the worker's
// folders of keys and data. XLA gives an assembler temporary files, so with one the folder of
// temporary files may be written. `plugin` may be empty.
FileRights FilesToCompile(const std::string& plugin, const std::vector<std::string>& assemblers);

// Returns whether the process has opened nvJitLink, which compiles within the process in place of
// the assembler.
bool HasNvJitLink();

// What a sealed compile process may execute.
enum class Execution {
  kNone,
  kAssembler,  // what ConfineFiles permits
};

// Make it before the process reads the first untrusted byte. From then on: no new privileges, no
// core files, `limits` beyond what the process uses now, and a filter of system calls for all its
// threads (no sockets, no other programs except those of `execution`, no signals to others, nothing
// administrative). A failed operator new ends the process with kExitOutOfMemory.
class Seal {
 public:
  // `left_network`, `confined`: what LeaveNetwork and ConfineFiles returned.
  Seal(const CompileLimits& limits, bool left_network, bool confined,
       Execution execution = Execution::kNone);
  // What the system refused, in words; empty: everything is in force.
  const std::string& refused() const { return refused_; }
  // Returns whether a tenth of a limit has been used since; then the next program should get
  // another process.
  bool Used() const;

 private:
  const CompileLimits limits_;
  const std::chrono::seconds cpu_;
  const int64_t memory_;
  std::string refused_;
};

// Returns the entries of `env` ("NAME=value") that a compile process gets: those that its libraries
// need, no secrets.
std::vector<std::string> CompileEnvironment(const std::vector<std::string>& env);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_SANDBOX_H_
