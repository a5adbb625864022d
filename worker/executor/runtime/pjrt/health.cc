// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/health.h"

#include <cstdint>
#include <utility>

#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/buffer.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/completions.h"

namespace fairway::pjrt {

Health::Health(std::shared_ptr<Client> client, std::shared_ptr<Completions> copies)
    : client_(std::move(client)), copies_(std::move(copies)) {}

void Health::WhenLost(absl::AnyInvocable<void(absl::Status)> lost) {
  const std::lock_guard lock(mutex_);
  lost_ = std::move(lost);
}

void Health::Suspect(int device, const absl::Status& why) {
  // Such a device has told that it works, and those of CPUs do as long as the process does.
  if (client_->is_cpu() || why.code() == absl::StatusCode::kResourceExhausted ||
      why.code() == absl::StatusCode::kInvalidArgument)
    return;
  {
    const std::lock_guard lock(mutex_);
    if (looking_ || lost_ == nullptr) return;
    looking_ = true;
  }
  copies_->Post([self = shared_from_this(), device, why] {
    const absl::Status status = self->Probe(device);
    {
      const std::lock_guard lock(self->mutex_);
      self->looking_ = false;
    }
    if (status.ok()) return;
    self->Lost(Error(absl::StatusCode::kInternal,
                     "device {} cannot be used any more: a call ended with {}; a copy of 4 bytes "
                     "after it with {}",
                     device, Describe(why), Describe(status)));
  });
}

void Health::Lost(absl::Status why) {
  absl::AnyInvocable<void(absl::Status)> lost;
  {
    const std::lock_guard lock(mutex_);
    lost = std::exchange(lost_, nullptr);
  }
  if (lost != nullptr) lost(std::move(why));
}

absl::Status Health::Probe(int device) const {
  const PJRT_Api* api = client_->api();
  int32_t value = 1, back = 0;
  Padded<PJRT_Client_BufferFromHostBuffer_Args> put;
  put->client = client_->raw();
  put->data = &value;
  put->type = PJRT_Buffer_Type_S32;
  put->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  put->device = client_->device(device);
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_Client_BufferFromHostBuffer, put));
  const RawBuffer buffer(client_, put->buffer);
  FAIRWAY_RETURN_IF_ERROR(Await(api, put->done_with_host_buffer));
  Padded<PJRT_Buffer_ToHostBuffer_Args> get;
  get->src = buffer.raw();
  get->dst = &back;
  get->dst_size = sizeof back;
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_Buffer_ToHostBuffer, get));
  FAIRWAY_RETURN_IF_ERROR(Await(api, get->event));
  return back == value ? absl::OkStatus() : absl::InternalError("other bytes came back");
}

}  // namespace fairway::pjrt
