// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_EXECUTION_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_EXECUTION_H_

#include <memory>
#include <vector>

#include "base/blob.h"
#include "base/status.h"
#include "worker/executor/runtime/exchange.h"
#include "worker/executor/runtime/native/native_launch.h"
#include "worker/executor/runtime/native/native_program.h"

namespace fairway {

// Runs `program` on the calling thread. `values`, as [device][value], has the arguments, and then
// the results. A step may write into a block that nobody else holds and that nothing later reads;
// all other blocks stay as they are. Two results may share a block. RESOURCE_EXHAUSTED: no memory
// for a value. `exchange` talks to the executors that run launch `launch` on other devices;
// nullptr: there are none. With it, Exchange's errors too.
absl::Status RunNative(const NativeProgram& program, std::vector<std::vector<Bytes>>& values,
                       Exchange* exchange = nullptr, uint64_t launch = 0);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_EXECUTION_H_
