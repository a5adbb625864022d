// SPDX-License-Identifier: Apache-2.0
// Which calls out of XLA a program for GPUs may make. Some of XLA's own targets take a kernel in
// their attributes, which may then read and write all of the GPU's memory, or sizes that nobody
// compares with the operands: clients may name neither.
#ifndef FAIRWAY_WORKER_COMPILER_CHECK_GPU_CALLS_H_
#define FAIRWAY_WORKER_COMPILER_CHECK_GPU_CALLS_H_

#include <string_view>

#include "base/status.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {

// `program` as it came from a client: MLIR bytecode, or text. UNIMPLEMENTED: it makes a call that
// JAX does not write for XLA's own passes, by name; or one whose target cannot be told for sure (a
// custom call in bytecode of another dialect than VHLO, or not in the plain form of text); or it
// has operations of a dialect that JAX does not write. INVALID_ARGUMENT: unreadable bytecode.
absl::Status CheckGpuProgram(std::string_view program);

// The optimized program: it makes no calls but those that XLA itself makes of operations.
// UNIMPLEMENTED: the first other one.
absl::Status CheckGpuCode(const hlo::HloModule& module);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_CHECK_GPU_CALLS_H_
