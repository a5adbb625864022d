// SPDX-License-Identifier: Apache-2.0
// What JAX writes and the plugin's older compiler does not know, made of what it knows, before it
// gets the program.
//
// Unreduced shardings: each device holds a part, and the sum of the parts over some mesh axes is
// the value. The plugin's compiler makes them (of a matrix product, say) and reduces them; what it
// does not know is to make one of a value that is whole: every device then keeps all of it where it
// should have its part, and the sum comes out too large. Such a change becomes a custom call
// (fairway_own_part, worker/ffi) that leaves each device its part.
//
// Results that JAX could not name the sharding of (result_cuts.h) are told to be replicated.
//
// Placement in a kind of memory: where all memory is the host's, an annotation has nothing to do,
// and becomes a barrier. In which memory results are is written beside, at the program's border.
#ifndef FAIRWAY_WORKER_COMPILER_REWRITE_H_
#define FAIRWAY_WORKER_COMPILER_REWRITE_H_

#include <map>
#include <set>
#include <string>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"

namespace fairway {

// `program` as the plugin shall compile it; what it is not for, and what is no MLIR bytecode, comes
// back as it is. `one_memory`: the devices' memory is the host's. `replicated`: the results to be
// replicated, with their ranks. UNIMPLEMENTED: it has unreduced shardings that can not be served.
absl::StatusOr<std::string> RewriteForPlugin(std::string program, const v1::CompileOptions& options,
                                             bool one_memory,
                                             const std::map<size_t, size_t>& replicated = {});

// The results of `program` that shall be in "unpinned_host" memory. XLA knows one kind of host
// memory, and calls it "pinned_host".
std::set<size_t> UnpinnedResults(const std::string& program, const v1::CompileOptions& options);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_REWRITE_H_
