// SPDX-License-Identifier: Apache-2.0
// The custom calls that programs may make: all those that jaxlib registers for its CPU backend.
// Their computations are in kernels.h.
#ifndef FAIRWAY_WORKER_FFI_CUSTOM_CALLS_H_
#define FAIRWAY_WORKER_FFI_CUSTOM_CALLS_H_

#include <span>
#include <string_view>

#include "worker/ffi/call.h"

namespace fairway::ffi {

// A custom call of the table.
struct CustomCall {
  std::string_view name;
  // Checks that the program makes the call correctly: looks at shapes, element types and
  // attributes, not at data. INVALID_ARGUMENT, without the call's name.
  absl::Status (*check)(const Call& call);
  void (*run)(const Call& call);
  // For XLA: an XLA_FFI_Handler*. It never returns an error to a gang, because an error of one
  // member ends the process. If `check` refuses a call, its results are NaN (-1 for integers).
  void* handler;
};

// All custom calls, in a fixed order. Thread-safe, as are the handlers.
std::span<const CustomCall> CustomCalls();

// nullptr: there is none of that name.
const CustomCall* FindCustomCall(std::string_view name);

// The version of the headers that the handlers were built with: "0.2". A plugin silently refuses
// newer handlers.
std::string_view FfiVersion();

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_CUSTOM_CALLS_H_
