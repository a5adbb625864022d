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

namespace {

constexpr int32_t kValue = 0x5AFE;

absl::StatusOr<std::unique_ptr<RawBuffer>> PutProbe(const std::shared_ptr<Client>& client,
                                                    int device) {
  const PJRT_Api* api = client->api();
  Padded<PJRT_Client_BufferFromHostBuffer_Args> put;
  put->client = client->raw();
  put->data = &kValue;
  put->type = PJRT_Buffer_Type_S32;
  put->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  put->device = client->device(device);
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_Client_BufferFromHostBuffer, put));
  auto buffer = std::make_unique<RawBuffer>(client, put->buffer);
  FAIRWAY_RETURN_IF_ERROR(Await(api, put->done_with_host_buffer));
  return buffer;
}

}  // namespace

Health::Health(std::shared_ptr<Client> client, std::shared_ptr<Completions> copies)
    : client_(std::move(client)), copies_(std::move(copies)) {
  if (client_->is_cpu()) return;
  for (int device = 0; device < client_->num_devices(); ++device)
    probes_.push_back(PutProbe(client_, device));
}

Health::~Health() = default;

void Health::WhenLost(absl::AnyInvocable<void(absl::Status)> lost) {
  const std::lock_guard lock(mutex_);
  lost_ = std::move(lost);
}

void Health::Suspect(int device, const absl::Status& why) {
  // A device that returns one of these errors works; a CPU device works as long as the process
  // does.
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
  const auto& probe = probes_[device];
  FAIRWAY_RETURN_IF_ERROR(probe.status());
  const PJRT_Api* api = client_->api();
  int32_t back = 0;
  Padded<PJRT_Buffer_ToHostBuffer_Args> get;
  get->src = (*probe)->raw();
  get->dst = &back;
  get->dst_size = sizeof back;
  FAIRWAY_RETURN_IF_ERROR(Call(api, api->PJRT_Buffer_ToHostBuffer, get));
  FAIRWAY_RETURN_IF_ERROR(Await(api, get->event));
  return back == kValue ? absl::OkStatus() : absl::InternalError("other bytes came back");
}

}  // namespace fairway::pjrt
