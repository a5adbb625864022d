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

// Runs `program` on the calling thread. `arguments` and the result: [device][value]. A block that
// nobody else holds is written into once its last reader is the step at work; every other is left
// as it is. Two results may share a block. RESOURCE_EXHAUSTED: no memory for a value.
// `exchange`, of launch `launch`: how to reach the executors that run it on other devices; nullptr:
// there are none. Then also its errors.
absl::StatusOr<std::vector<std::vector<Bytes>>> RunNative(const NativeProgram& program,
                                                          std::vector<std::vector<Bytes>> arguments,
                                                          Exchange* exchange = nullptr,
                                                          uint64_t launch = 0);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_HOST_EXECUTION_H_
