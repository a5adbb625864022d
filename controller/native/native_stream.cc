// SPDX-License-Identifier: Apache-2.0
#include "controller/native/native_stream.h"

#include <algorithm>
#include <utility>

#include <grpcpp/support/proto_buffer_reader.h>

namespace fairway {
namespace {

// One message may carry millions of requests. So many are handled between two looks at the
// session's caps, and before others have their turn in the loop.
constexpr int kRequestsBetweenLooks = 64;
constexpr int kRequestsOfATurn = 256;
constexpr uint64_t kUnitsOfATurn = 1000;  // work of the core
// About the memory that a small request takes once it has been read, or a message without any.
constexpr size_t kRequestBytes = 256;

}  // namespace

size_t MemoryOf(const v1::ClientMessage& message, size_t came) {
  if (came <= kShortMessage) return kRequestBytes + came * kMostOfByte;
  const size_t about = came + kRequestBytes * static_cast<size_t>(message.requests_size());
  // A handle that has one byte in the message has eight in memory.
  return std::max(about, message.SpaceUsedLong());
}

void NativeStream::FinishStream(const absl::Status& status) {
  Finish({static_cast<grpc::StatusCode>(static_cast<int>(status.code())), Text(status)});
}

absl::StatusOr<NativeStream::Decoded> NativeStream::Decode(
    std::unique_ptr<grpc::ByteBuffer> message) {
  Decoded out;
  out.item.message = std::make_unique<v1::ClientMessage>();
  grpc::ProtoBufferReader reader(message.get());
  if (!reader.status().ok() || !out.item.message->ParseFromZeroCopyStream(&reader))
    return InvalidArgument("what came is no fairway.v1.ClientMessage");
  out.item.bytes = out.bytes = MemoryOf(*out.item.message, message->Length());
  FAIRWAY_ASSIGN_OR_RETURN(out.item.uploaded, uploads_.Take(*out.item.message));
  // The message remembers this size: the loop has no time to walk through long requests.
  (void)out.item.message->ByteSizeLong();
  return out;
}

absl::Status NativeStream::Begin(const v1::Request& hello) {
  if (!hello.has_hello() || hello.id() == 0)
    return InvalidArgument("a session begins with a Hello that has an id");
  const std::string& tenant = tenant_.empty() ? hello.hello().tenant() : tenant_;
  FAIRWAY_ASSIGN_OR_RETURN(session_, door_->Open(tenant.empty() ? "default" : tenant, this));
  return absl::OkStatus();
}

NativeStream::Going NativeStream::HandleAll(std::vector<ClientBatch> items) {
  if (closed_) return Going::kEnded;
  for (ClientBatch& item : items) batches_.push_back(std::move(item));
  int handled = 0;
  uint64_t until = 0;
  while (!batches_.empty()) {
    ClientBatch& batch = batches_.front();
    if (next_request_ == 0) {
      if (session_ == nullptr && batch.message->requests_size() > 0) {
        const absl::Status begun = Begin(batch.message->requests(0));
        if (!begun.ok()) {
          CloseSession();
          End(begun);
          return Going::kEnded;
        }
      }
      for (Uploaded& uploaded : batch.uploaded)
        session_->Uploaded(uploaded.upload, std::move(uploaded.bytes));
      batch.uploaded.clear();
    }
    for (; next_request_ < batch.message->requests_size(); ++next_request_) {
      if (handled == 0) until = session_->WorkDone() + kUnitsOfATurn;
      if (session_->Busy() || handled == kRequestsOfATurn) return Going::kSoon;
      if (session_->WorkDone() >= until) return session_->MayRead() ? Going::kSoon : Going::kLater;
      // Also at the first one: each request may end its turn, as a call of a long program does.
      if (handled++ % kRequestsBetweenLooks == 0 && (!session_->MayRead() || LeavesTooMuchUnread()))
        return Going::kLater;
      session_->Handle(*batch.message->mutable_requests(next_request_));
    }
    DropBatch();
  }
  return session_ == nullptr || session_->MayRead() ? Going::kOn : Going::kLater;
}

void NativeStream::DropBatch() {
  ClientBatch over = std::move(batches_.front());
  batches_.pop_front();
  next_request_ = 0;
  const size_t bytes = over.bytes;
  GiveUp(std::move(over), bytes);
}

void NativeStream::FailSession(const absl::Status& status) {
  if (session_ != nullptr) return session_->Refuse(status);
  if (!closed_) End(status);
}

void NativeStream::CloseSession() {
  closed_ = true;
  while (!batches_.empty()) DropBatch();
  if (session_ != nullptr) door_->Close(std::exchange(session_, nullptr)->session());
}

void NativeStream::Send(v1::Answer answer) {
  // The outbox returns the answer's weight once the answer lies in it.
  SessionStream::Send([&] { return outbox_.Add(std::move(answer)); });
}

void NativeStream::SendSerialized(std::string message) {
  SessionStream::Send([&] { return outbox_.AddSerialized(std::move(message)); });
}

void NativeStream::SendBytes(uint64_t id, int32_t index, BytesRef bytes) {
  SessionStream::Send([&] {
    const bool shared = bytes->size() > Outbox::kSmallBytes;
    const size_t weight = outbox_.Add(id, index, std::move(bytes));
    return Weight(weight, shared ? 0 : weight);
  });
}

NativeStream::Outgoing NativeStream::Next() {
  Outbox::Message message = outbox_.Next();
  return {std::move(message.bytes), Weight(message.weight, message.weight - message.shared)};
}

}  // namespace fairway
