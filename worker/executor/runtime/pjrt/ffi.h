// SPDX-License-Identifier: Apache-2.0
// Registers the custom calls of worker/ffi with a plugin, for this process. The executor and the
// compile processes do so before they compile or load anything.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_FFI_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_FFI_H_

#include <string>

#include "base/status.h"
#include "worker/executor/runtime/pjrt/config.h"

namespace fairway::pjrt {

struct Plugin;
class Client;

// Registers all custom calls, once per plugin and process. UNIMPLEMENTED, with the reason: the
// plugin is for another platform than CPU, or has no FFI extension. A plugin is silent when it
// refuses a handler: see ProbeCustomCalls.
absl::Status RegisterCustomCalls(const Plugin& plugin, const PjrtConfig& config);

// Compiles a program that makes every custom call. Blocks for a compilation. The plugin's error
// names the first call that it does not know.
absl::Status ProbeCustomCalls(const Client& client);

// Probes, and logs the custom calls that this process can serve.
void LogCustomCalls(const Client& client);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_FFI_H_
