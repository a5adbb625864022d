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

// Makes a compiler over a PJRT plugin. Its code is for a PjrtRuntime of the same plugin and number
// of devices. Loads the plugin. Kind cpu: creates the one client of this process and ignores
// `target`. Kind cuda: compiles for the devices that `target` describes, without a client. Errors:
// those of pjrt::Client::Create and pjrt::Topology::Create.
absl::StatusOr<std::unique_ptr<Compiler>> MakePjrtCompiler(const PjrtConfig& config,
                                                           const v1::CompileTarget& target = {});

// The same, but first compiles a small program of its own, so that the first program of a client
// takes no longer than later ones.
absl::StatusOr<std::unique_ptr<Compiler>> MakeWarmPjrtCompiler(
    const PjrtConfig& config, const v1::CompileTarget& target = {});

// Makes a compiler for a target that the process already has.
std::unique_ptr<Compiler> MakePjrtCompiler(std::shared_ptr<const pjrt::Target> target);

// Returns the version in the header of a StableHLO portable artifact, "1.13.3"; empty for other
// programs.
std::string ArtifactVersion(std::string_view program);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_PJRT_COMPILER_H_
