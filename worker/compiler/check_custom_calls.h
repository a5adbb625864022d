// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_CHECK_CUSTOM_CALLS_H_
#define FAIRWAY_WORKER_COMPILER_CHECK_CUSTOM_CALLS_H_

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "xla/hlo_subset.pb.h"

namespace fairway {

// Checks that the compiled program calls our custom calls (worker/ffi) with operands, results and
// attributes that they can work on. At run time it would be too late, because a gang must not fail.
// INVALID_ARGUMENT: the name of the call and the error. Calls of other names are the plugin's own:
// it refuses those that nobody registered with it. UNIMPLEMENTED: infeed and outfeed.
absl::Status CheckCustomCalls(const hlo::HloModule& module);

// Returns the integers and bools of an attribute dictionary as MLIR prints it: "{left = true, low =
// 1 : i32}". Leaves out all others.
std::map<std::string, int64_t, std::less<>> ParseAttributes(std::string_view text);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_CHECK_CUSTOM_CALLS_H_
