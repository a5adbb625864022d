// SPDX-License-Identifier: Apache-2.0
// Rewrites forms of newer JAX releases that the plugin cannot read into older forms that it can
// read:
// - Small floats (8 bits and less) as types of MLIR itself, at the border of a shard_map: the
//   plugin's MLIR has no number for them in bytecode ("unknown attribute code: 24"), but reads
//   their names.
// - vhlo.composite_v2 (StableHLO 1.16, JAX 0.11), which JAX makes of erf, acosh, top_k and others.
//   It is composite_v1 with optional regions, and these have none.
#ifndef FAIRWAY_WORKER_COMPILER_OLDER_FORMS_H_
#define FAIRWAY_WORKER_COMPILER_OLDER_FORMS_H_

#include <string>

namespace fairway {

// Returns `program` in the older forms. Returns a program without these forms, or one that is not
// MLIR bytecode, unchanged.
std::string InOlderForms(std::string program);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_OLDER_FORMS_H_
