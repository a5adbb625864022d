// SPDX-License-Identifier: Apache-2.0
// What newer releases of JAX write in a form that the plugin, which is older, cannot read, though
// it knows another form that says the same:
// - small floats (8 bits and less) as types of MLIR itself, at the border of a shard_map: the
//   plugin's MLIR has no number for them in bytecode ("unknown attribute code: 24"), but reads
//   names;
// - vhlo.composite_v2 (StableHLO 1.16, JAX 0.11): what JAX makes of erf, acosh, top_k and their
// like.
//   It is composite_v1 that may have regions, and these have none.
#ifndef FAIRWAY_WORKER_COMPILER_OLDER_FORMS_H_
#define FAIRWAY_WORKER_COMPILER_OLDER_FORMS_H_

#include <string>

namespace fairway {

// `program` in the older forms. What has nothing of the above, and what is no MLIR bytecode, comes
// back as it is.
std::string InOlderForms(std::string program);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_OLDER_FORMS_H_
