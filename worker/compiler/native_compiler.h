// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_NATIVE_COMPILER_H_
#define FAIRWAY_WORKER_COMPILER_NATIVE_COMPILER_H_

#include <memory>

#include "worker/compiler/compiler.h"

namespace fairway {

// Checks v1::NativeProgram messages, places them on the devices of the options and describes them,
// for the host and sim runtimes. Metadata: cost has "flops" and "bytes accessed" of one device.
// `runtime`: the name of the runtime, for messages.
std::unique_ptr<Compiler> MakeNativeCompiler(std::string runtime);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_NATIVE_COMPILER_H_
