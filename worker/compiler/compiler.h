// SPDX-License-Identifier: Apache-2.0
// The compiler interface: bytes and options in, code and metadata out. The executor only loads
// code.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILER_H_
#define FAIRWAY_WORKER_COMPILER_COMPILER_H_

#include <string>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"

namespace fairway {

// The answer to one Compile.
struct CompileResult {
  std::string code;  // for Runtime::Load
  // SHA-256 of `code`, hex: the plugin loads code with a flipped byte without complaint
  std::string checksum;
  v1::ExecutableMetadata metadata;
};

// Lives in a compile process, never in the executor or the supervisor. Its calls block; one call at
// a time.
class Compiler {
 public:
  virtual ~Compiler() = default;
  // `program`: a StableHLO portable artifact, MLIR bytecode or text. INVALID_ARGUMENT: the program
  // or the options do not compile (with the compiler's text); if the program is newer than the
  // plugin, the text names both StableHLO versions.
  virtual absl::StatusOr<CompileResult> Compile(const std::string& program,
                                                const v1::CompileOptions& options) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILER_H_
