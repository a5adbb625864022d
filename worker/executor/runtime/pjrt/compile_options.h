// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILE_OPTIONS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILE_OPTIONS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"
#include "worker/executor/runtime/pjrt/target.h"

namespace fairway::pjrt {

// Serialized xla.CompileOptionsProto with nothing in it that Fairway did not put there: XLA aborts
// the process on options without replicas. `devices` of the options are local ordinals; the bytes
// hold the target's device ids. Empty and not portable: the first devices in order.
// INVALID_ARGUMENT: counts below 1 or beyond the target's devices, a device unknown or listed
// twice, or as many devices as are not num_replicas * num_partitions.
absl::StatusOr<std::string> EncodeCompileOptions(const v1::CompileOptions& options,
                                                 const Target& target);

// The local ordinals that code compiled with `options` runs on; empty when it is portable.
// INVALID_ARGUMENT as above.
absl::StatusOr<std::vector<int>> AssignedDevices(const v1::CompileOptions& options,
                                                 int num_devices);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILE_OPTIONS_H_
