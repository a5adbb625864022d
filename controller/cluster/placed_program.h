// SPDX-License-Identifier: Apache-2.0
// Programs on their way into the core: what can be worked out of one before the core knows of it.
// A program may have hundreds of thousands of values, so that is for other threads than the loop's;
// what is left is done by Cluster::Programs::Bind in slices.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_PLACED_PROGRAM_H_
#define FAIRWAY_CONTROLLER_CLUSTER_PLACED_PROGRAM_H_

#include <cstddef>
#include <memory>

#include "base/shared_vector.h"
#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {

// Bytes of memory that a program made of this holds, about.
size_t PlacedBytes(const ProgramSource& source);

// Puts a program onto a session's devices (Cluster::Sessions::SharedDevices). It is bound once.
// INVALID_ARGUMENT: devices that do not exist, or of several islands in one slice.
// RESOURCE_EXHAUSTED: no host memory for its constants, or more arguments and results than one call
// may have (kMaxCallValues).
absl::StatusOr<std::shared_ptr<PlacedProgram>> PlaceProgram(
    ProgramSource source, const SharedVector<VirtualDevice>& devices);

// What it takes and makes.
ExecutableSignature SignatureOf(const PlacedProgram& program);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PLACED_PROGRAM_H_
