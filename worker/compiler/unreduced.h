// SPDX-License-Identifier: Apache-2.0
// Unreduced shardings: each device holds a part, and the sum of the parts over some mesh axes is
// the value. The plugin's compiler makes them (of a matrix product, say) and reduces them; what it
// does not know is to make one of a value that is whole: every device then keeps all of it where it
// should have its part, and the sum comes out too large.
//
// Here such a change is made a custom call (fairway_own_part, worker/ffi) before the plugin gets
// the program: the devices at the origin of those axes keep the value, the others have zeros.
#ifndef FAIRWAY_WORKER_COMPILER_UNREDUCED_H_
#define FAIRWAY_WORKER_COMPILER_UNREDUCED_H_

#include <string>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"

namespace fairway {

// `program` as the plugin shall compile it; what it is not for, and what is no MLIR bytecode, comes
// back as it is. UNIMPLEMENTED: it has unreduced shardings that can not be served.
absl::StatusOr<std::string> MakeUnreduced(std::string program, const v1::CompileOptions& options);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_UNREDUCED_H_
