// SPDX-License-Identifier: Apache-2.0
// Finds results that are cut by parts of a mesh's axes. JAX has no name for such a sharding ("shape
// [1, 2, 4] is incompatible with mesh_shape"). JAX's own compiler replicates a result that an axis
// does not divide; the plugin's compiler cuts it by the part of the axis that divides it.
#ifndef FAIRWAY_WORKER_COMPILER_RESULT_CUTS_H_
#define FAIRWAY_WORKER_COMPILER_RESULT_CUTS_H_

#include <map>
#include <string>

#include "fairway/v1/executable.pb.h"

namespace fairway {

// Returns the indexes of those results, with their ranks. `program`: the program that was compiled
// to `metadata`.
std::map<size_t, size_t> ResultsCutByPartsOfAxes(const std::string& program,
                                                 const v1::ExecutableMetadata& metadata);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_RESULT_CUTS_H_
