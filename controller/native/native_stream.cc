// SPDX-License-Identifier: Apache-2.0
#include "controller/native/native_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <google/protobuf/unknown_field_set.h>
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
// The loop itself destroys what is brief, each request when it was handled: so do messages of at
// most so many requests that have no others.
constexpr int kBriefRequest = 256;  // bytes that came
constexpr int kBriefRequests = 50000;

const google::protobuf::UnknownFieldSet& UnknownFields(const google::protobuf::Message& message) {
  return message.GetReflection()->GetUnknownFields(message);
}

// The numbers in a request of those that come most often; nullopt: it is another one.
std::optional<size_t> Numbers(const v1::Request& request) {
  const google::protobuf::Message* kind = nullptr;
  size_t numbers = 0;
  if (request.has_call()) {
    const v1::Call& call = request.call();
    kind = &call;
    numbers = call.arguments_size() + call.results_size() + call.non_donatable_size();
  } else if (request.has_release()) {
    const v1::Release& release = request.release();
    kind = &release;
    numbers = release.arrays_size() + release.executables_size();
  }
  if (kind == nullptr || !UnknownFields(request).empty() || !UnknownFields(*kind).empty())
    return std::nullopt;
  return numbers;
}

bool IsBrief(const v1::Request& request) {
  return request.GetCachedSize() <= kBriefRequest || Numbers(request);
}

}  // namespace

size_t MemoryOf(const v1::ClientMessage& message, size_t came) {
  if (came <= kShortMessage) return kRequestBytes + came * kMostOfByte;
  // A number that has one byte in the message has eight in memory, and its list has room for twice
  // as many.
  constexpr size_t kNumber = 2 * sizeof(uint64_t);
  size_t bytes = came + kRequestBytes + UnknownFields(message).SpaceUsedExcludingSelfLong();
  for (const v1::Request& request : message.requests()) {
    const std::optional<size_t> numbers = Numbers(request);
    bytes += kRequestBytes + (numbers ? kNumber * *numbers : request.SpaceUsedLong());
  }
  return bytes;
}

void NativeStream::OnReadDone(bool ok) {
  if (!ok) return ReadDone(false);
  parsed_ = std::make_unique<v1::ClientMessage>();
  grpc::ProtoBufferReader reader(coming_);
  if (!reader.status().ok() || !parsed_->ParseFromZeroCopyStream(&reader)) parsed_ = nullptr;
  if (parsed_ == nullptr || !uploads_.MayWait(*parsed_)) return ReadDone(true);
  // A slow disk must not hold up the thread that has all calls.
  disk_->Run([self = std::static_pointer_cast<NativeStream>(Self())] { self->ReadDone(true); },
             context().owner);
}

absl::StatusOr<NativeStream::Decoded> NativeStream::Decode(
    std::unique_ptr<grpc::ByteBuffer> message) {
  if (parsed_ == nullptr) return InvalidArgument("what came is no fairway.v1.ClientMessage");
  Decoded out;
  out.item.message = std::move(parsed_);
  out.sent = message->Length();
  out.item.bytes = out.bytes = MemoryOf(*out.item.message, out.sent);
  FAIRWAY_ASSIGN_OR_RETURN(out.item.uploaded, uploads_.Take(*out.item.message));
  // The message remembers this size: the loop has no time to walk through long requests.
  (void)out.item.message->ByteSizeLong();
  out.item.brief = out.item.message->requests_size() <= kBriefRequests &&
                   std::ranges::all_of(out.item.message->requests(), IsBrief);
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
      v1::Request& request = *batch.message->mutable_requests(next_request_);
      session_->Handle(request);
      if (IsBrief(request)) request.clear_request();
    }
    DropBatch(/*handled=*/true);
  }
  return session_ == nullptr || session_->MayRead() ? Going::kOn : Going::kLater;
}

void NativeStream::DropBatch(bool handled) {
  ClientBatch over = std::move(batches_.front());
  batches_.pop_front();
  next_request_ = 0;
  const size_t bytes = over.bytes;
  const bool brief = handled && over.brief;
  GiveUp(std::move(over), bytes, brief);
}

void NativeStream::FailSession(const absl::Status& status) {
  if (session_ != nullptr) return session_->Refuse(status);
  if (!closed_) End(status);
}

void NativeStream::CloseSession() {
  closed_ = true;
  while (!batches_.empty()) DropBatch(/*handled=*/false);
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
