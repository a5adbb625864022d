// SPDX-License-Identifier: Apache-2.0
#include "controller/callbacks/callback_stream.h"

#include <optional>
#include <utility>

#include "base/utf8.h"

namespace fairway {
namespace {

constexpr size_t kMessageOverhead = 512;
constexpr int kMaxRank = 64;

void Put(const CallbackArray& array, v1::CallbackArray* out) {
  out->set_dtype(static_cast<int32_t>(array.dtype));
  out->mutable_dims()->Assign(array.shape.dims.begin(), array.shape.dims.end());
  out->set_size(ByteSize(array.dtype, array.shape).value_or(0));
  if (array.bytes != nullptr) out->set_data(array.bytes->data(), array.bytes->size());
}

absl::StatusOr<CallbackArray> ArrayFromProto(const v1::CallbackArray& in) {
  const std::optional<DType> dtype = DTypeFromNumber(in.dtype());
  if (!dtype.has_value())
    return InvalidArgument("an array of element type {}, which is none", in.dtype());
  if (in.dims_size() > kMaxRank) return InvalidArgument("an array of {} dimensions", in.dims_size());
  CallbackArray out{*dtype, Shape{{in.dims().begin(), in.dims().end()}}, Blob::Copy(in.data())};
  FAIRWAY_RETURN_IF_ERROR(ByteSize(out.dtype, out.shape).status());
  if (out.bytes == nullptr)
    return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes",
                 in.data().size());
  return out;
}

}  // namespace

void CallbackStream::FinishStream(const absl::Status& status) {
  Finish({static_cast<grpc::StatusCode>(static_cast<int>(status.code())), Text(status)});
}

absl::StatusOr<CallbackStream::Decoded> CallbackStream::Decode(std::unique_ptr<In> message) {
  const size_t bytes = message->ByteSizeLong();
  return Decoded{std::move(message), bytes};
}

CallbackStream::Going CallbackStream::HandleAll(std::vector<std::unique_ptr<In>> items) {
  if (closed_) return Going::kEnded;
  for (const auto& item : items) {
    if (absl::Status status = Handle(*item); !status.ok()) {
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
    FAIRWAY_RETURN_IF_ERROR(router_->StreamOpened(id_, message.open().channel()));
    open_ = true;
    auto opened = std::make_unique<Out>();
    opened->mutable_opened()->set_limit_ms(router_->limits().call_ms);
    Queue(std::move(opened));
    return absl::OkStatus();
  }
  if (message.has_return_()) return OnReturn(message.return_());
  if (message.has_chunk())
    return InvalidArgument("bytes of results in chunks, which this controller does not take");
  return InvalidArgument("a message without content");
}

absl::Status CallbackStream::OnReturn(const v1::CallbackReturn& message) {
  std::vector<CallbackArray> results;
  absl::Status status;
  if (message.code() != 0) {
    const bool known =
        message.code() > 0 && message.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
    status = Error(known ? static_cast<absl::StatusCode>(message.code())
                         : absl::StatusCode::kUnknown,
                   "{}", ValidUtf8(message.text()));
  }
  for (int i = 0; i < message.results_size() && status.ok(); ++i) {
    absl::StatusOr<CallbackArray> array = ArrayFromProto(message.results(i));
    if (array.ok()) {
      results.push_back(*std::move(array));
    } else {
      status = Annotate(array.status(), fmt::format("result {} of the function", i));
    }
  }
  return router_->Returned(id_, message.call(), std::move(status), std::move(results));
}

void CallbackStream::CloseWith(const absl::Status& status) {
  CloseSession();
  End(status);
}

void CallbackStream::CloseSession() {
  if (std::exchange(closed_, true)) return;
  router_->StreamClosed(id_);
}

void CallbackStream::Queue(std::unique_ptr<Out> message) {
  SessionStream::Send([&] {
    const size_t bytes = message->ByteSizeLong() + kMessageOverhead;
    outbox_.push_back({std::move(message), bytes});
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
  for (const CallbackArray& array : call.arguments) Put(array, to.add_arguments());
  for (const CallbackArray& array : call.results) Put(array, to.add_results());
  Queue(std::move(message));
  return absl::OkStatus();
}

void CallbackStream::Cancel(uint64_t number, const std::string& reason) {
  auto message = std::make_unique<Out>();
  message->mutable_cancel()->set_call(number);
  message->mutable_cancel()->set_reason(reason);
  Queue(std::move(message));
}

CallbackStream::Outgoing CallbackStream::Next() {
  if (outbox_.empty()) return {};
  Unsent next = std::move(outbox_.front());
  outbox_.pop_front();
  return {std::move(next.message), next.bytes};
}

}  // namespace fairway
