// SPDX-License-Identifier: Apache-2.0
// The metadata of a compiled program for the front doors, read from its optimized HLO.
#ifndef FAIRWAY_WORKER_COMPILER_METADATA_H_
#define FAIRWAY_WORKER_COMPILER_METADATA_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {

// Fills name, parameters and outputs of `metadata`. Global extents are shard extents times tiles.
// They are the program's own if it divides evenly; else they include the partitioner's padding.
// INTERNAL: the module contradicts itself. UNIMPLEMENTED: a parameter or result is neither array
// nor token, or is tiled in memory.
absl::Status DescribeSignature(const hlo::HloModuleWithConfig& program, bool tupled_arguments,
                               v1::ExecutableMetadata& metadata);

// Returns whether no instruction makes one device wait for another. Kinds that are not known to be
// local count as waiting.
bool Separable(const hlo::HloModule& module);

// Returns whether an execution takes a fraction of a millisecond at most, for all values of its
// arguments, and XLA's CPU client runs it on the calling thread. `flops`: the result of XLA's cost
// analysis, which counts the body of a loop once.
bool Brief(const hlo::HloModule& module, double flops);
// Returns whether the same holds for a program with collectives, but for the time in which its
// devices wait for each other.
bool MeetsBriefly(const hlo::HloModule& module, double flops);
// Returns whether the program calls functions of its client while it runs.
bool CallsBack(const hlo::HloModule& module);

// Returns whether the code distinguishes its devices by their ordinals (fairway_own_part,
// worker/ffi): then it would be wrong on other devices.
bool NamesDevices(const hlo::HloModule& module);

// Returns the module as HLO text, close to XLA's own: for people, not for parsers. Cut after
// `limit` bytes.
std::string HloText(const hlo::HloModule& module, size_t limit = 1 << 20);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_METADATA_H_
