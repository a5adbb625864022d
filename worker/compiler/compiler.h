// SPDX-License-Identifier: Apache-2.0
// The compile seam: bytes and options in, code and metadata out. The executor only loads.
#ifndef FAIRWAY_WORKER_COMPILER_COMPILER_H_
#define FAIRWAY_WORKER_COMPILER_COMPILER_H_

#include <string>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"

namespace fairway {

struct CompileResult {
  std::string code;      // what Runtime::Load takes
  std::string checksum;  // SHA-256 of `code`, hex; native code is not safe data, a flipped byte
                         // loads without complaint
  v1::ExecutableMetadata metadata;
};

// Blocking; one call at a time. Lives in a helper process, never in the executor or the supervisor.
class Compiler {
 public:
  virtual ~Compiler() = default;
  // `program`: StableHLO portable artifact, MLIR bytecode or text. INVALID_ARGUMENT: it or the
  // options do not compile (the text of the compiler is kept); the text names both StableHLO
  // versions when the program is newer.
  virtual absl::StatusOr<CompileResult> Compile(const std::string& program,
                                                const v1::CompileOptions& options) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_COMPILER_H_
