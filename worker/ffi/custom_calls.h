// SPDX-License-Identifier: Apache-2.0
// The custom calls that programs may make: all that jaxlib registers for its CPU backend. What is
// behind them is in kernels.h.
#ifndef FAIRWAY_WORKER_FFI_CUSTOM_CALLS_H_
#define FAIRWAY_WORKER_FFI_CUSTOM_CALLS_H_

#include <span>
#include <string_view>

#include "worker/ffi/call.h"

namespace fairway::ffi {

struct CustomCall {
  std::string_view name;
  // Whether the program calls it as it must be called: looks at shapes, element types and
  // attributes, not at data. INVALID_ARGUMENT, without the name.
  absl::Status (*check)(const Call& call);
  void (*run)(const Call& call);
  // For XLA: an XLA_FFI_Handler*. Never gives an error to a gang: an error of one member ends the
  // process. A call that `check` refuses gets NaN (-1 for integers) as its results.
  void* handler;
};

// In a fixed order. Thread-safe; the handlers too.
std::span<const CustomCall> CustomCalls();

// Null: none of that name.
const CustomCall* FindCustomCall(std::string_view name);

// Of the headers that the handlers were built with, "0.2". A plugin refuses newer ones silently.
std::string_view FfiVersion();

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_CUSTOM_CALLS_H_
