// SPDX-License-Identifier: Apache-2.0
// Whether executors can be sent what a launch takes. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_COMMAND_BYTES_H_
#define FAIRWAY_CONTROLLER_CLUSTER_COMMAND_BYTES_H_

#include <cstddef>

#include "base/status.h"
#include "controller/cluster/executable_spec.h"

namespace fairway {

// The most bytes on a link of any command that installs, prepares or launches it, on `devices` of
// one executor.
size_t CommandBytes(const ExecutableSpec& spec, size_t devices);

// RESOURCE_EXHAUSTED: a command of `bytes`, or with as many results, is refused by who gets it, who
// is lost then; `most`: ClusterOptions::command_bytes.
absl::Status CheckCommands(const ExecutableSpec& spec, size_t bytes, size_t most);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_COMMAND_BYTES_H_
