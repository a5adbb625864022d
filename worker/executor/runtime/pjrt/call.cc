// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/call.h"

#include <memory>
#include <utility>

#include "pjrt_c_api.h"

// ThreadSanitizer cannot see that the plugin orders registration before callback, because the
// plugin is not instrumented.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#define FAIRWAY_TSAN_ACQUIRE(address) __tsan_acquire(address)
#define FAIRWAY_TSAN_RELEASE(address) __tsan_release(address)
#else
#define FAIRWAY_TSAN_ACQUIRE(address)
#define FAIRWAY_TSAN_RELEASE(address)
#endif

namespace fairway::pjrt {
namespace {

absl::StatusCode CodeOf(const PJRT_Api* api, const PJRT_Error* error) {
  Padded<PJRT_Error_GetCode_Args> get;
  get->error = error;
  if (PJRT_Error* second = api->PJRT_Error_GetCode(&get.args); second != nullptr) {
    Padded<PJRT_Error_Destroy_Args> destroy;
    destroy->error = second;
    api->PJRT_Error_Destroy(&destroy.args);
    return absl::StatusCode::kUnknown;
  }
  const int code = static_cast<int>(get->code);
  return code >= 1 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

struct Waiter {
  const PJRT_Api* api;
  PJRT_Event* event;
  absl::AnyInvocable<void(absl::Status)> done;
};

void OnEvent(PJRT_Error* error, void* user_arg) {
  FAIRWAY_TSAN_ACQUIRE(user_arg);
  std::unique_ptr<Waiter> waiter(static_cast<Waiter*>(user_arg));
  absl::Status status = Consume(waiter->api, error);
  DestroyEvent(waiter->api, waiter->event);
  std::move(waiter->done)(std::move(status));
}

}  // namespace

absl::Status Consume(const PJRT_Api* api, PJRT_Error* error) {
  if (error == nullptr) return absl::OkStatus();
  Padded<PJRT_Error_Message_Args> message;
  message->error = error;
  api->PJRT_Error_Message(&message.args);
  absl::Status status(CodeOf(api, error), {message->message, message->message_size});
  Padded<PJRT_Error_Destroy_Args> destroy;
  destroy->error = error;
  api->PJRT_Error_Destroy(&destroy.args);
  return status;
}

void DestroyEvent(const PJRT_Api* api, PJRT_Event* event) {
  if (event == nullptr) return;
  Padded<PJRT_Event_Destroy_Args> args;
  args->event = event;
  (void)Consume(api, api->PJRT_Event_Destroy(&args.args));
}

bool IsReady(const PJRT_Api* api, PJRT_Event* event) {
  Padded<PJRT_Event_IsReady_Args> args;
  args->event = event;
  return Call(api, api->PJRT_Event_IsReady, args).ok() && args->is_ready;
}

void WhenReady(const PJRT_Api* api, PJRT_Event* event,
               absl::AnyInvocable<void(absl::Status)> done) {
  if (IsReady(api, event)) {
    Padded<PJRT_Event_Error_Args> error;
    error->event = event;
    absl::Status status = Call(api, api->PJRT_Event_Error, error);
    DestroyEvent(api, event);
    std::move(done)(std::move(status));
    return;
  }
  auto* waiter = new Waiter{api, event, std::move(done)};
  Padded<PJRT_Event_OnReady_Args> args;
  args->event = event;
  args->callback = &OnEvent;
  args->user_arg = waiter;
  FAIRWAY_TSAN_RELEASE(waiter);
  absl::Status status = Call(api, api->PJRT_Event_OnReady, args);
  if (status.ok()) return;
  std::unique_ptr<Waiter> refused(waiter);
  DestroyEvent(api, refused->event);
  std::move(refused->done)(std::move(status));
}

absl::Status Await(const PJRT_Api* api, PJRT_Event* event) {
  Padded<PJRT_Event_Await_Args> args;
  args->event = event;
  absl::Status status = Call(api, api->PJRT_Event_Await, args);
  DestroyEvent(api, event);
  return status;
}

}  // namespace fairway::pjrt
