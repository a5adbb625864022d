// SPDX-License-Identifier: Apache-2.0
// Whether the commands of a launch can be sent to executors. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_COMMAND_BYTES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_COMMAND_BYTES_H_

#include <cstddef>

#include "base/status.h"
#include "controller/cluster/executable_spec.h"

namespace fairway {

// The most bytes of the sequence, encoded.
size_t SequenceBytes(const Sequence& sequence);
// About the bytes of the command that installs the code.
size_t InstallBytes(const ExecutableSpec& spec);
// The most bytes that any command which installs, prepares or launches the code has on a link, for
// `devices` of one executor.
size_t CommandBytes(const ExecutableSpec& spec, size_t devices);

// RESOURCE_EXHAUSTED: a command has more than `most` bytes (ClusterOptions::command_bytes), or too
// many results. An executor would refuse it and be lost.
absl::Status CheckCommands(const ExecutableSpec& spec, size_t bytes, size_t most);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_COMMAND_BYTES_H_
