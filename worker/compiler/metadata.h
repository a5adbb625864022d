// SPDX-License-Identifier: Apache-2.0
// What the front doors must know of a compiled program, read from its optimized HLO.
#ifndef FAIRWAY_WORKER_COMPILER_METADATA_H_
#define FAIRWAY_WORKER_COMPILER_METADATA_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {

// Fills name, parameters and outputs of `metadata`. Global extents are shard extents times tiles,
// so they are those of the program when it divides evenly; the partitioner pads what does not.
// INTERNAL: the module contradicts itself. UNIMPLEMENTED: a parameter or result is no array or
// token, or is tiled in memory.
absl::Status DescribeSignature(const hlo::HloModuleWithConfig& program, bool tupled_arguments,
                               v1::ExecutableMetadata& metadata);

// Whether no instruction makes one device wait for another. Kinds that are not known to be local
// count as waiting.
bool Separable(const hlo::HloModule& module);

// Whether an execution takes a fraction of a millisecond at most, whatever values its arguments
// have, and XLA's CPU client runs it on the thread that asks for it. `flops`: of XLA's cost
// analysis, which counts the body of a loop once.
bool Brief(const hlo::HloModule& module, double flops);
// Whether it calls functions of its client while it runs.
bool CallsBack(const hlo::HloModule& module);

// Whether the code tells its devices apart by their ordinals (fairway_own_part, worker/ffi), so
// that it would be wrong on others.
bool NamesDevices(const hlo::HloModule& module);

// The module as HLO text, near to XLA's own: for people, not for parsers. Cut after `limit` bytes.
std::string HloText(const hlo::HloModule& module, size_t limit = 1 << 20);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_METADATA_H_
