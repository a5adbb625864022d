// SPDX-License-Identifier: Apache-2.0
// Calls of the PJRT C API: argument structs, errors, events. Only .cc files include the header of
// the C API.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CALL_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CALL_H_

#include <cstddef>
#include <cstring>

#include <absl/functional/any_invocable.h>

#include "base/status.h"

struct PJRT_Api;
struct PJRT_Error;
struct PJRT_Event;

namespace fairway::pjrt {

// An argument struct of the C API, followed by zeroes. A plugin refuses a struct_size below its own
// and reads all of a larger struct, so the padding lets one header call plugins with newer, longer
// structs.
template <typename Args>
struct Padded {
  Args args;
  char padding[256];

  Padded() {
    std::memset(static_cast<void*>(this), 0, sizeof(*this));
    args.struct_size = sizeof(*this);
  }
  Padded(const Padded&) = delete;
  Padded& operator=(const Padded&) = delete;
  Args* operator->() { return &args; }
};

// Takes the error over and converts it; nullptr is OK. Keeps the code (PJRT's codes are absl's) and
// the text.
absl::Status Consume(const PJRT_Api* api, PJRT_Error* error);

// Calls `function` (an entry of PJRT_Api). UNIMPLEMENTED: the plugin lacks it.
template <typename Function, typename Args>
absl::Status Call(const PJRT_Api* api, Function* function, Padded<Args>& args) {
  if (function == nullptr) {
    return Error(absl::StatusCode::kUnimplemented,
                 "the PJRT plugin lacks a function that is needed");
  }
  return Consume(api, function(&args.args));
}

void DestroyEvent(const PJRT_Api* api, PJRT_Event* event);

// Returns whether `event` has happened, with or without an error.
bool IsReady(const PJRT_Api* api, PJRT_Event* event);

// Takes `event` over. Runs `done` with its status: at once if it has happened, else on a thread of
// the plugin. There `done` must only hand the status over.
void WhenReady(const PJRT_Api* api, PJRT_Event* event, absl::AnyInvocable<void(absl::Status)> done);

// Takes `event` over and waits for it.
absl::Status Await(const PJRT_Api* api, PJRT_Event* event);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_CALL_H_
