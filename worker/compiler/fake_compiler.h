// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_FAKE_COMPILER_H_
#define FAIRWAY_WORKER_COMPILER_FAKE_COMPILER_H_

#include <memory>

#include "worker/compiler/compiler.h"

namespace fairway {

// "Compiles" FakeProgram texts for the FakeRuntime: places them on the devices of the options and
// describes them. The options give the number of devices; tiles must fit it.
std::unique_ptr<Compiler> MakeFakeCompiler();

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_FAKE_COMPILER_H_
