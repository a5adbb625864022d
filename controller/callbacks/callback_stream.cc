// SPDX-License-Identifier: Apache-2.0
#include "controller/callbacks/callback_stream.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "wire/limits.h"

namespace fairway {
namespace {

constexpr size_t kMessageOverhead = 512;
constexpr size_t kChunkBytes = size_t{1} << 20;
// The bytes that are handled before others have their turn in the loop. Each message counts as its
// bytes and kBytesOfAMessage.
constexpr size_t kBytesOfATurn = size_t{4} << 20;
constexpr size_t kBytesOfAMessage = size_t{4} << 10;

void Put(const CallbackArray& array, bool with_bytes, v1::CallbackArray* out) {
  out->set_dtype(static_cast<int32_t>(array.dtype));
  out->mutable_dims()->Assign(array.shape.dims.begin(), array.shape.dims.end());
  out->set_size(ByteSize(array.dtype, array.shape).value_or(0));
  if (array.bytes != nullptr && with_bytes) out->set_data(array.bytes->data(), array.bytes->size());
}

std::string Describe(const v1::CallbackArray& array) {
  const std::optional<DType> dtype = DTypeFromNumber(array.dtype());
  if (!dtype.has_value())
    return fmt::format("an array of element type {}, which does not exist", array.dtype());
  if (array.dims_size() > kMaxRank)
    return fmt::format("an array of {} dimensions", array.dims_size());
  return ToString(*dtype, Shape{{array.dims().begin(), array.dims().end()}});
}

// Its cost depends on the size of `wanted` only, not on what came.
absl::Status CheckResult(int index, const v1::CallbackArray& came, const CallbackArray& wanted) {
  const std::vector<int64_t>& dims = wanted.shape.dims;
  if (came.dtype() != static_cast<int32_t>(wanted.dtype) ||
      !std::equal(came.dims().begin(), came.dims().end(), dims.begin(), dims.end()))
    return InvalidArgument("the function returned {} as result {}, the program expects {}",
                           Describe(came), index, ToString(wanted.dtype, wanted.shape));
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(wanted.dtype, wanted.shape));
  const auto bytes = static_cast<int64_t>(came.data().size());
  if (bytes != size && !(bytes == 0 && came.size() == size))
    return InvalidArgument("the function returned {} bytes as result {}, {} has {}", bytes, index,
                           ToString(wanted.dtype, wanted.shape), size);
  return absl::OkStatus();
}

absl::Status ErrorOf(const v1::CallbackReturn& message) {
  const bool known =
      message.code() > 0 && message.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return Error(known ? static_cast<absl::StatusCode>(message.code()) : absl::StatusCode::kUnknown,
               "{}", ValidUtf8(message.text()));
}

}  // namespace

absl::StatusOr<CallbackStream::Decoded> CallbackStream::Decode(std::unique_ptr<In> message) {
  const size_t bytes = message->ByteSizeLong();
  return Decoded{std::move(message), bytes, bytes};
}

CallbackStream::Going CallbackStream::HandleAll(std::vector<std::unique_ptr<In>> items) {
  if (closed_) return Going::kEnded;
  for (auto& item : items) unhandled_.push_back(std::move(item));
  for (size_t handled = 0; !unhandled_.empty(); unhandled_.pop_front()) {
    if (handled >= kBytesOfATurn) return Going::kSoon;
    handled += kBytesOfAMessage + unhandled_.front()->ByteSizeLong();
    if (absl::Status status = Handle(*unhandled_.front()); !status.ok()) {
      CloseWith(status);
      return Going::kEnded;
    }
  }
  return Going::kOn;
}

absl::Status CallbackStream::Handle(const In& message) {
  if (message.has_open() == open_)
    return InvalidArgument("Open is the first message of the stream, and only the first");
  if (!open_) {
    FAIRWAY_RETURN_IF_ERROR(router_->StreamOpened(id_, {message.open().channel(), tenant_}));
    open_ = true;
    auto opened = std::make_unique<Out>();
    opened->mutable_opened()->set_limit_ms(router_->limits().call_ms);
    Queue(std::move(opened));
    return absl::OkStatus();
  }
  if (message.has_return_()) return OnReturn(message.return_());
  if (message.has_chunk()) return OnChunk(message.chunk());
  return InvalidArgument("a message without content");
}

absl::Status CallbackStream::OnReturn(const v1::CallbackReturn& message) {
  const uint64_t call = message.call();
  returning_.erase(call);
  // Results for a call that has ended are not checked. The router says whether it ever existed.
  const std::vector<CallbackArray>* const wanted = router_->Wanted(id_, call);
  if (wanted == nullptr)
    return router_->Returned(id_, call, absl::CancelledError("the call has ended"), {});
  if (message.code() != 0) return EndCall(call, ErrorOf(message), {});
  absl::StatusOr<Returning> returning = Expect(message, *wanted);
  if (!returning.ok()) return EndCall(call, returning.status(), {});
  returning_[call] = *std::move(returning);
  return FinishIfAllCame(call);
}

absl::StatusOr<CallbackStream::Returning> CallbackStream::Expect(
    const v1::CallbackReturn& message, const std::vector<CallbackArray>& wanted) {
  if (static_cast<size_t>(message.results_size()) != wanted.size())
    return InvalidArgument("the function returned {} arrays, the program expects {}",
                           message.results_size(), wanted.size());
  for (int i = 0; i < message.results_size(); ++i)
    FAIRWAY_RETURN_IF_ERROR(CheckResult(i, message.results(i), wanted[i]));
  Returning out{wanted, std::vector<std::shared_ptr<Blob>>(wanted.size()), 0, 0};
  for (int i = 0; i < message.results_size(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(wanted[i].dtype, wanted[i].shape));
    const bool here = static_cast<int64_t>(message.results(i).data().size()) == size;
    if (here) {
      out.results[i].bytes = Blob::Copy(message.results(i).data());
    } else {
      out.filled[i] = Blob::Make(static_cast<size_t>(size));
    }
    if (out.results[i].bytes == nullptr && out.filled[i] == nullptr)
      return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes", size);
  }
  return out;
}

absl::Status CallbackStream::OnChunk(const v1::CallbackChunk& message) {
  if (message.data().size() > kChunkBytes)
    return InvalidArgument("a chunk of {} bytes; each may have {}", message.data().size(),
                           kChunkBytes);
  const auto it = returning_.find(message.call());
  if (it == returning_.end()) return absl::OkStatus();  // the call has failed
  Returning& returning = it->second;
  std::string_view data = message.data();
  while (!data.empty()) {
    while (returning.at < returning.filled.size() && returning.filled[returning.at] == nullptr)
      ++returning.at;
    if (returning.at == returning.filled.size())
      return InvalidArgument("more bytes of call {} than its results have", message.call());
    Blob& to = *returning.filled[returning.at];
    const size_t bytes = std::min(data.size(), to.size() - returning.offset);
    std::memcpy(to.data() + returning.offset, data.data(), bytes);
    data.remove_prefix(bytes);
    returning.offset += bytes;
    if (returning.offset < to.size()) break;
    returning.results[returning.at].bytes = std::move(returning.filled[returning.at]);
    returning.offset = 0;
  }
  return FinishIfAllCame(message.call());
}

absl::Status CallbackStream::FinishIfAllCame(uint64_t call) {
  const auto it = returning_.find(call);
  if (router_->Wanted(id_, call) == nullptr) {
    returning_.erase(it);
    return absl::OkStatus();
  }
  for (const auto& blob : it->second.filled) {
    if (blob != nullptr) return absl::OkStatus();
  }
  std::vector<CallbackArray> results = std::move(it->second.results);
  return EndCall(call, absl::OkStatus(), std::move(results));
}

absl::Status CallbackStream::EndCall(uint64_t call, absl::Status status,
                                     std::vector<CallbackArray> results) {
  Forget(call);
  return router_->Returned(id_, call, std::move(status), std::move(results));
}

void CallbackStream::CloseWith(const absl::Status& status) {
  CloseSession();
  End(status);
}

void CallbackStream::CloseSession() {
  if (std::exchange(closed_, true)) return;
  returning_.clear();
  unhandled_.clear();
  router_->StreamClosed(id_);
}

void CallbackStream::Queue(std::unique_ptr<Out> message) {
  SessionStream::Send([&] {
    const size_t bytes = message->ByteSizeLong() + kMessageOverhead;
    outbox_.push_back({std::move(message), 0, nullptr, 0, bytes});
    return bytes;
  });
}

absl::Status CallbackStream::Call(uint64_t number, const CallbackCall& call,
                                  const CallbackCaller& caller) {
  if (LeavesTooMuchUnread())
    return absl::ResourceExhaustedError("the client reads its stream for callbacks too slowly");
  auto message = std::make_unique<Out>();
  v1::CallbackCall& to = *message->mutable_call();
  to.set_call(number);
  to.set_function(call.function);
  to.set_device(caller.device);
  to.set_program(ValidUtf8(caller.program));
  const bool few = CallbackBytes(call.arguments).value_or(0) <= kInlineCallbackBytes;
  for (const CallbackArray& array : call.arguments) Put(array, few, to.add_arguments());
  for (const CallbackArray& array : call.results) Put(array, false, to.add_results());
  Queue(std::move(message));
  for (size_t i = 0; i < call.arguments.size() && !few; ++i) {
    const std::shared_ptr<const Blob>& bytes = call.arguments[i].bytes;
    if (bytes->size() == 0) continue;
    SessionStream::Send([&] {
      outbox_.push_back({nullptr, number, bytes, 0, 0});
      return bytes->size();
    });
  }
  return absl::OkStatus();
}

void CallbackStream::Forget(uint64_t call) {
  returning_.erase(call);
  SessionStream::Unsend([&] {
    size_t bytes = 0;
    std::erase_if(outbox_, [&](const Unsent& unsent) {
      if (unsent.chunks == nullptr || unsent.call != call) return false;
      bytes += unsent.chunks->size() - unsent.next;
      return true;
    });
    return bytes;
  });
}

void CallbackStream::Cancel(uint64_t number, const std::string& reason) {
  Forget(number);
  auto message = std::make_unique<Out>();
  message->mutable_cancel()->set_call(number);
  message->mutable_cancel()->set_reason(reason);
  Queue(std::move(message));
}

CallbackStream::Outgoing CallbackStream::Next() {
  if (outbox_.empty()) return {};
  Unsent& next = outbox_.front();
  if (next.message != nullptr) {
    Outgoing out{std::move(next.message), next.bytes};
    outbox_.pop_front();
    return out;
  }
  auto message = std::make_unique<Out>();
  const std::string_view piece = next.chunks->view().substr(next.next, kChunkBytes);
  message->mutable_chunk()->set_call(next.call);
  message->mutable_chunk()->set_data(piece.data(), piece.size());
  next.next += piece.size();
  if (next.next == next.chunks->size()) outbox_.pop_front();
  return {std::move(message), piece.size()};
}

}  // namespace fairway
