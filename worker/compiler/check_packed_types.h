// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_CHECK_PACKED_TYPES_H_
#define FAIRWAY_WORKER_COMPILER_CHECK_PACKED_TYPES_H_

#include "base/status.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {

// Refuses a compiled program that uses 2-bit or 4-bit integers where XLA's CPU compiler (that of
// the xla-cpu-pjrt 0.0.1 plugin) is wrong. UNIMPLEMENTED: the operation and its type.
//
// Integers of 2 bits may only be passed on, also to custom calls that take them, and counted out
// (iota; right, also in parallel and under a checking allocator). The compiler packs them into
// bytes, but converts some values wrongly. It also copies pieces (concatenation, sorting,
// collectives) as if each had a byte of its own, beyond the end of its buffers (seen under a
// checking allocator). Of 4-bit integers only the conversion to f64 is wrong, in some shapes (rows
// of 4), also through f32; through s32 it is right.
absl::Status CheckPackedTypes(const hlo::HloModule& module);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_CHECK_PACKED_TYPES_H_
