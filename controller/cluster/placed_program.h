// SPDX-License-Identifier: Apache-2.0
// Programs on their way into the core: the part of binding that needs nothing of the core. A
// program may have hundreds of thousands of values, so other threads than the loop's do this part.
// Cluster::Programs::Bind does the rest in slices.
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

// The approximate bytes of memory that a program made of `source` holds.
size_t PlacedBytes(const ProgramSource& source);

// Puts a program onto a session's devices (Cluster::Sessions::SharedDevices). The result is bound
// once. INVALID_ARGUMENT: a device does not exist, or those of a slice are of several islands.
// RESOURCE_EXHAUSTED: there is no host memory for its constants, or it has more arguments and
// results than one call may have (kMaxCallValues).
// `encode`: as EncodeSequence in wire/; nullptr: its sequences are encoded when they are sent.
absl::StatusOr<std::shared_ptr<PlacedProgram>> PlaceProgram(
    ProgramSource source, const SharedVector<VirtualDevice>& devices,
    std::string (*encode)(const Sequence&) = nullptr);

// The program's arguments and results.
ExecutableSignature SignatureOf(const PlacedProgram& program);
// How many they are.
size_t CallValues(const PlacedProgram& program);
ResultTypes ResultsOf(std::shared_ptr<const PlacedProgram> program);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_PLACED_PROGRAM_H_
