// SPDX-License-Identifier: Apache-2.0
// Checks which calls out of XLA a program for GPUs makes. Some of XLA's own targets take a kernel
// in their attributes, which may then read and write all of the GPU's memory. Others take sizes
// that nobody compares with the operands. Clients may name neither.
#ifndef FAIRWAY_WORKER_COMPILER_CHECK_GPU_CALLS_H_
#define FAIRWAY_WORKER_COMPILER_CHECK_GPU_CALLS_H_

#include <string_view>

#include "base/status.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {

// Checks `program` as it came from a client: MLIR bytecode, or text. UNIMPLEMENTED: it makes a
// call, by name, that JAX does not write for XLA's own passes; a call whose target is not certain
// (a custom call in bytecode of another dialect than VHLO, or not in the plain form of text); or it
// has operations of a dialect that JAX does not write. INVALID_ARGUMENT: unreadable bytecode.
absl::Status CheckGpuProgram(std::string_view program);

// Checks the optimized program: it may only make calls that XLA itself makes from operations.
// UNIMPLEMENTED: the first other call.
absl::Status CheckGpuCode(const hlo::HloModule& module);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_CHECK_GPU_CALLS_H_
