// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILE_OPTIONS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILE_OPTIONS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"
#include "worker/executor/runtime/pjrt/target.h"

namespace fairway::pjrt {

// Returns a serialized xla.CompileOptionsProto that holds only fields that Fairway sets, because
// XLA aborts the process on options without replicas. `devices` of `options` are local ordinals;
// the bytes hold the target's device ids. Without devices, and not portable: the first devices in
// order. INVALID_ARGUMENT: a count below 1 or above the target's devices; a device that is unknown
// or listed twice; a number of devices other than num_replicas * num_partitions.
absl::StatusOr<std::string> EncodeCompileOptions(const v1::CompileOptions& options,
                                                 const Target& target);

// Returns the local ordinals that code compiled with `options` runs on; empty if it is portable.
// INVALID_ARGUMENT as above.
absl::StatusOr<std::vector<int>> AssignedDevices(const v1::CompileOptions& options,
                                                 int num_devices);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILE_OPTIONS_H_
