// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_PJRT_COMPILER_H_
#define FAIRWAY_WORKER_COMPILER_PJRT_COMPILER_H_

#include <memory>
#include <string>
#include <string_view>

#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/compiler.h"
#include "worker/executor/runtime/pjrt/config.h"

namespace fairway {

namespace pjrt {
class Target;
}

// A compiler over a PJRT plugin: its code is for a PjrtRuntime of the same plugin and number of
// devices. Loads the plugin. Kind cpu: creates the one client of this process, and `target` says
// nothing. Kind cuda: compiles for what `target` describes, without a client. Errors: those of
// pjrt::Client::Create and pjrt::Topology::Create.
absl::StatusOr<std::unique_ptr<Compiler>> MakePjrtCompiler(const PjrtConfig& config,
                                                           const v1::CompileTarget& target = {});

// As above, after compiling a small program of its own, so that the first of a client takes no
// longer than later ones.
absl::StatusOr<std::unique_ptr<Compiler>> MakeWarmPjrtCompiler(
    const PjrtConfig& config, const v1::CompileTarget& target = {});

// For what the process has already.
std::unique_ptr<Compiler> MakePjrtCompiler(std::shared_ptr<const pjrt::Target> target);

// The version in the header of a StableHLO portable artifact, "1.13.3"; empty for other programs.
std::string ArtifactVersion(std::string_view program);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_PJRT_COMPILER_H_
