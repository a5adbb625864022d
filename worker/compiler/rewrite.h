// SPDX-License-Identifier: Apache-2.0
// Rewrites forms that JAX writes and the plugin's older compiler does not know, before the plugin
// gets the program.
//
// Unreduced shardings: each device holds a part, and the sum of the parts over some mesh axes is
// the value. The plugin's compiler makes such values (of a matrix product, for example) and reduces
// them. It cannot make one from a value that is whole: then every device keeps the whole value
// where it should have a part, and the sum is too large. Such a change becomes a custom call
// (fairway_own_part, worker/ffi) that leaves each device its part.
//
// Results whose sharding JAX could not name (result_cuts.h) become replicated.
//
// Placement in a kind of memory: if all memory is the host's, an annotation has no effect, and
// becomes a barrier. The memory of the results is recorded separately, at the program's border.
#ifndef FAIRWAY_WORKER_COMPILER_REWRITE_H_
#define FAIRWAY_WORKER_COMPILER_REWRITE_H_

#include <map>
#include <set>
#include <string>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"

namespace fairway {

// Returns `program` in the form for the plugin. A program that needs no change, or that is not MLIR
// bytecode, comes back unchanged. `one_memory`: the devices' memory is the host's. `replicated`:
// the results to replicate, with their ranks. UNIMPLEMENTED: it has unreduced shardings that cannot
// be served.
absl::StatusOr<std::string> RewriteForPlugin(std::string program, const v1::CompileOptions& options,
                                             bool one_memory,
                                             const std::map<size_t, size_t>& replicated = {});

// Returns the results of `program` that must be in "unpinned_host" memory. XLA knows one kind of
// host memory, and calls it "pinned_host".
std::set<size_t> UnpinnedResults(const std::string& program, const v1::CompileOptions& options);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_REWRITE_H_
