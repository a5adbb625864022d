// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/buffer.h"

#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/call.h"

namespace fairway::pjrt {

RawBuffer::~RawBuffer() {
  Padded<PJRT_Buffer_Destroy_Args> args;
  args->buffer = raw_;
  absl::Status status = Call(client_->api(), client_->api()->PJRT_Buffer_Destroy, args);
  if (!status.ok()) spdlog::warn("destroying a buffer: {}", Describe(status));
}

bool RawBuffer::IsDeleted() const {
  Padded<PJRT_Buffer_IsDeleted_Args> args;
  args->buffer = raw_;
  return Call(client_->api(), client_->api()->PJRT_Buffer_IsDeleted, args).ok() && args->is_deleted;
}

absl::StatusOr<char*> RawBuffer::Address() const {
  Padded<PJRT_Buffer_UnsafePointer_Args> args;
  args->buffer = raw_;
  FAIRWAY_RETURN_IF_ERROR(Call(client_->api(), client_->api()->PJRT_Buffer_UnsafePointer, args));
  return reinterpret_cast<char*>(args->buffer_pointer);
}

absl::StatusOr<std::shared_ptr<RawBuffer>> Buffer::Pin() const {
  std::lock_guard lock(mutex_);
  if (consumed_) return DonatedError(spec_);
  return raw_;
}

void Buffer::Consume() {
  std::shared_ptr<RawBuffer> released;  // declared first: freed after the lock
  std::lock_guard lock(mutex_);
  consumed_ = true;
  released = std::move(raw_);
}

void Buffer::Restore(std::shared_ptr<RawBuffer> raw) {
  std::lock_guard lock(mutex_);
  consumed_ = false;
  raw_ = std::move(raw);
}

}  // namespace fairway::pjrt
