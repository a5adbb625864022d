// SPDX-License-Identifier: Apache-2.0
// Registers the custom calls of worker/ffi with a plugin, for this process: the executor and the
// compile helper, before either compiles or loads anything.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_FFI_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_FFI_H_

#include <string>

#include "base/status.h"
#include "worker/executor/runtime/pjrt/config.h"

namespace fairway::pjrt {

struct Plugin;
class Client;

// UNIMPLEMENTED, with the reason: plugins of another platform than the CPU's, and those without the
// FFI extension. A plugin says nothing when it refuses a handler: see ProbeCustomCalls. Once per
// plugin and process.
absl::Status RegisterCustomCalls(const Plugin& plugin, const PjrtConfig& config);

// Compiles a program that makes every custom call there is. Blocks for a compilation. The plugin's
// error names the first call that it does not know.
absl::Status ProbeCustomCalls(const Client& client);

// Probes, and writes into the log what this process can serve.
void LogCustomCalls(const Client& client);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_FFI_H_
