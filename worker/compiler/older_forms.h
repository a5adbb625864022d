// SPDX-License-Identifier: Apache-2.0
// Small floats (8 bits and less) where a program names them as types of MLIR itself, which JAX does
// at the border of a shard_map. The plugin's MLIR is older and has no number for them in bytecode
// ("unknown attribute code: 24"), but reads their names.
#ifndef FAIRWAY_WORKER_COMPILER_NEWER_TYPES_H_
#define FAIRWAY_WORKER_COMPILER_NEWER_TYPES_H_

#include <string>

namespace fairway {

// `program` with those types as text. What has none, and what is no MLIR bytecode, comes back as it
// is.
std::string SpellNewerTypes(std::string program);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_NEWER_TYPES_H_
