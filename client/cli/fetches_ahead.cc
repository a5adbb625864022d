// SPDX-License-Identifier: Apache-2.0
#include "client/cli/fetches_ahead.h"

#include "ifrt/service.pb.h"

namespace fairway {

using grpc::ByteBuffer;

OpenCalls::~OpenCalls() {
  std::unique_lock lock(mu_);
  for (grpc::ClientContext* const context : open_) context->TryCancel();
  none_.wait(lock, [&] { return open_.empty(); });
}

OpenCall::OpenCall(OpenCalls& calls, const CallMetadata& metadata) : calls_(calls) {
  for (const auto& [key, value] : metadata) context_->AddMetadata(key, value);
  const std::lock_guard lock(calls_.mu_);
  calls_.open_.insert(context_.get());
}

OpenCall::~OpenCall() {
  const std::lock_guard lock(calls_.mu_);
  calls_.open_.erase(context_.get());
  context_.reset();  // which uses the channel
  calls_.none_.notify_all();
}

std::shared_ptr<BufferLookup> BufferLookup::Start(grpc::GenericStub& controller, OpenCalls& calls,
                                                  const CallMetadata& metadata, ByteBuffer request,
                                                  bool early) {
  auto out = std::make_shared<BufferLookup>(calls, metadata);
  out->self_ = out;
  out->request_ = std::move(request);
  out->reading_ = true;
  grpc::ClientContext& context = out->call_.context();
  if (early) context.AddMetadata(kEarlyKey, "1");
  controller.PrepareBidiStreamingCall(&context, kLookupMethod, {}, out.get());
  out->AddHold();  // until the last read, which may begin later
  out->StartWriteLast(&out->request_, {});
  out->StartRead(&out->coming_);
  out->StartCall();
  return out;
}

void BufferLookup::Next(Wanted wanted) {
  std::optional<ByteBuffer> message;
  grpc::Status end;
  {
    const std::lock_guard lock(mu_);
    if (!messages_.empty()) {
      message = std::move(messages_.front());
      messages_.pop_front();
    } else if (end_.has_value()) {
      end = *end_;
    } else {
      wanted_ = std::move(wanted);
    }
    ReadOn();
    if (wanted_) return;
  }
  wanted(std::move(message), end);
}

void BufferLookup::Cancel() {
  const std::lock_guard lock(mu_);
  cancelled_ = true;
  messages_.clear();
  if (!end_.has_value()) call_.context().TryCancel();
  ReadOn();
}

void BufferLookup::ReadOn() {
  if (reading_ || drained_ || (messages_.size() >= kAhead && !cancelled_)) return;
  reading_ = true;
  StartRead(&coming_);
}

void BufferLookup::OnReadDone(bool ok) {
  Wanted wanted;
  ByteBuffer message;
  {
    const std::lock_guard lock(mu_);
    reading_ = false;
    if (!ok) {
      drained_ = true;
      RemoveHold();
      return;
    }
    message.Swap(&coming_);
    if (wanted_) {
      wanted = std::exchange(wanted_, nullptr);
    } else if (!cancelled_) {
      messages_.push_back(std::move(message));
    }
    ReadOn();
  }
  if (wanted) wanted(std::move(message), grpc::Status::OK);
}

void BufferLookup::OnDone(const grpc::Status& status) {
  const std::shared_ptr<BufferLookup> last = std::move(self_);
  Wanted wanted;
  {
    const std::lock_guard lock(mu_);
    end_ = status;
    wanted = std::exchange(wanted_, nullptr);
  }
  if (wanted) wanted(std::nullopt, status);
}

void FetchesAhead::Begin(uint64_t session, uint64_t handle, const CallMetadata& metadata) {
  xla::ifrt::proxy::GrpcHostBufferLookupRequest request;
  request.set_session_id(session);
  request.set_handle(handle);
  const grpc::Slice slice(request.SerializeAsString());
  const std::lock_guard lock(mu_);
  Fetches& fetches = sessions_[session];
  if (fetches.begun.size() >= kMost) {
    fetches.begun.begin()->second->Cancel();
    fetches.begun.erase(fetches.begun.begin());
  }
  std::shared_ptr<BufferLookup>& lookup = fetches.begun[handle];
  if (lookup != nullptr) lookup->Cancel();  // the client used the handle before
  lookup =
      BufferLookup::Start(*controller_, *calls_, metadata, ByteBuffer(&slice, 1), /*early=*/true);
}

std::shared_ptr<BufferLookup> FetchesAhead::Take(uint64_t session, uint64_t handle) {
  const std::lock_guard lock(mu_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return nullptr;
  const auto found = of->second.begun.find(handle);
  if (found == of->second.begun.end()) return nullptr;
  std::shared_ptr<BufferLookup> out = std::move(found->second);
  of->second.begun.erase(found);
  of->second.taken.insert(handle);
  return out;
}

bool FetchesAhead::Delete(uint64_t session, uint64_t handle) {
  const std::lock_guard lock(mu_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return false;
  const auto left = of->second.begun.find(handle);  // it began behind the client's own look-up
  if (left != of->second.begun.end()) {
    left->second->Cancel();
    of->second.begun.erase(left);
  }
  return of->second.taken.erase(handle) != 0;
}

void FetchesAhead::EndSession(uint64_t session) {
  const std::lock_guard lock(mu_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return;
  for (const auto& [handle, lookup] : of->second.begun) lookup->Cancel();
  sessions_.erase(of);
}

}  // namespace fairway
