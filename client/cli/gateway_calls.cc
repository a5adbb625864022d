// SPDX-License-Identifier: Apache-2.0
#include "client/cli/gateway_calls.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include "client/cli/fetches_ahead.h"
#include "ifrt/service.pb.h"

namespace fairway {
namespace {

namespace proxy = xla::ifrt::proxy;
using grpc::ByteBuffer;

// A request that fetches is smaller: one of 32 dimensions has some 400 bytes.
constexpr size_t kSmall = 1024;

// What the client may send ahead on a call, in this process of its own.
constexpr int kLookaheadBytes = 4 << 20;
constexpr int kFrameBytes = 1 << 20;  // of HTTP/2: fewer frames take less time

template <class Message>
std::optional<Message> Parsed(const ByteBuffer& buffer) {
  grpc::Slice slice;
  Message out;
  if (!buffer.DumpToSingleSlice(&slice).ok() ||
      !out.ParseFromArray(slice.begin(), static_cast<int>(slice.size())))
    return std::nullopt;
  return out;
}

// What gRPC sets by itself on the way to the controller.
bool OfTheConnection(const std::string& key) {
  return key.starts_with(":") || key.starts_with("grpc-") || key == "user-agent" || key == "te" ||
         key == "content-type";
}

// What the client added to its call, without what the gateway adds itself.
CallMetadata MetadataOf(const grpc::GenericCallbackServerContext& context, bool has_token) {
  CallMetadata out;
  for (const auto& [key, value] : context.client_metadata()) {
    const std::string name(key.data(), key.size());
    if (has_token && name == "authorization") continue;
    if (!OfTheConnection(name)) out.emplace_back(name, std::string(value.data(), value.size()));
  }
  return out;
}

// The fetches on a session's stream of jaxlib: reads what passes, and changes nothing.
class StreamReader {
 public:
  StreamReader(FetchesAhead* fetches, CallMetadata metadata)
      : fetches_(fetches), metadata_(std::move(metadata)) {}
  ~StreamReader() {
    if (session_ != 0) fetches_->EndSession(session_);
  }

  // Before the request is sent, and when it has been.
  void OnRequest(const ByteBuffer& request) {
    if (session_ == 0 || request.Length() > kSmall) return;
    const auto parsed = Parsed<proxy::IfrtRequest>(request);
    if (parsed.has_value() && parsed->has_copy_to_host_buffer_request())
      fetched_ = parsed->copy_to_host_buffer_request().host_buffer_handle();
  }
  void OnRequested() {
    if (fetched_.has_value()) fetches_->Begin(session_, *fetched_, metadata_);
    fetched_.reset();
  }
  void OnAnswer(const ByteBuffer& answer) {
    if (session_ != 0) return;
    const auto parsed = Parsed<proxy::IfrtResponse>(answer);
    if (parsed.has_value() && parsed->has_init_response())
      session_ = parsed->init_response().session_id();
  }

 private:
  FetchesAhead* const fetches_;
  const CallMetadata metadata_;
  std::atomic<uint64_t> session_ = 0;  // 0: the controller has not said it yet
  std::optional<uint64_t> fetched_;    // by the request that is being sent
};

// One call: a server's end towards the client, and a client's end towards the controller. The
// client's end is finished by the last act of the other, and deletes both.
class Call {
 public:
  Call(grpc::GenericCallbackServerContext* context, grpc::GenericStub* controller, bool has_token,
       FetchesAhead* fetches)
      : up_(this), down_(this) {
    CallMetadata metadata = MetadataOf(*context, has_token);
    for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
    if (context->method() == kSessionMethod) reader_.emplace(fetches, std::move(metadata));
    context_.set_deadline(context->deadline());
    controller->PrepareBidiStreamingCall(&context_, context->method(), {}, &down_);
    down_.AddHold();  // so that it is not done before `ended_` is set
    down_.StartRead(&answer_);
    down_.StartCall();
    up_.StartRead(&request_);
  }
  grpc::ServerGenericBidiReactor* reactor() { return &up_; }

 private:
  // The client's end.
  class Up final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Up(Call* call) : call_(call) {}
    void OnReadDone(bool ok) override { call_->OnRequest(ok); }
    void OnWriteDone(bool ok) override { call_->OnAnswered(ok); }
    void OnCancel() override { call_->context_.TryCancel(); }
    void OnDone() override { delete call_; }

   private:
    Call* const call_;
  };
  // The controller's end.
  class Down final : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
   public:
    explicit Down(Call* call) : call_(call) {}
    void OnReadDone(bool ok) override { call_->OnAnswer(ok); }
    void OnWriteDone(bool ok) override { call_->OnRequested(ok); }
    void OnDone(const grpc::Status& status) override { call_->OnEnd(status); }

   private:
    Call* const call_;
  };

  void OnRequest(bool ok) {
    const std::lock_guard lock(mu_);
    if (ended_) return;
    if (ok) {
      if (reader_.has_value()) reader_->OnRequest(request_);
      down_.StartWrite(&request_);
    } else {
      down_.StartWritesDone();
    }
  }
  void OnRequested(bool ok) {
    const std::lock_guard lock(mu_);
    if (!ok || finished_) return;
    if (reader_.has_value()) reader_->OnRequested();
    up_.StartRead(&request_);
  }
  void OnAnswer(bool ok) {
    if (ok) {
      if (reader_.has_value()) reader_->OnAnswer(answer_);
      return up_.StartWrite(&answer_);
    }
    const std::lock_guard lock(mu_);
    ended_ = true;
    down_.RemoveHold();
  }
  void OnAnswered(bool ok) {
    if (ok) return down_.StartRead(&answer_);
    // The client is gone: nothing more is read for it.
    context_.TryCancel();
    const std::lock_guard lock(mu_);
    ended_ = true;
    down_.RemoveHold();
  }
  void OnEnd(const grpc::Status& status) {
    {
      const std::lock_guard lock(mu_);
      finished_ = true;
    }
    up_.Finish(status);
  }

  grpc::ClientContext context_;
  Up up_;
  Down down_;
  std::optional<StreamReader> reader_;  // of a session of jaxlib
  ByteBuffer request_, answer_;
  std::mutex mu_;
  bool ended_ = false;     // nothing more is sent to the controller
  bool finished_ = false;  // the client has its status, or will
};

// A client's call that looks a buffer up. Its messages come from a look-up that was begun ahead, or
// from one that begins now.
class LookupCall final : public grpc::ServerGenericBidiReactor {
 public:
  LookupCall(grpc::GenericCallbackServerContext* context, grpc::GenericStub* controller,
             OpenCalls* calls, bool has_token, FetchesAhead* fetches)
      : controller_(controller),
        calls_(calls),
        fetches_(fetches),
        metadata_(MetadataOf(*context, has_token)) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    const auto parsed = ok ? Parsed<proxy::GrpcHostBufferLookupRequest>(request_) : std::nullopt;
    std::shared_ptr<BufferLookup> ahead;
    if (parsed.has_value()) ahead = fetches_->Take(parsed->session_id(), parsed->handle());
    may_be_early_ = ahead != nullptr;
    if (ahead == nullptr && ok)
      ahead = BufferLookup::Start(*controller_, *calls_, metadata_, request_, /*early=*/false);
    if (ahead == nullptr) return Finish(grpc::Status::CANCELLED);
    Read(std::move(ahead));
  }
  void OnWriteDone(bool ok) override {
    may_be_early_ = false;
    const std::shared_ptr<BufferLookup> lookup = Current();
    if (!ok) lookup->Cancel();
    Next(*lookup);
  }
  void OnCancel() override {
    const std::lock_guard lock(mu_);
    cancelled_ = true;
    if (lookup_ != nullptr) lookup_->Cancel();
  }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<BufferLookup> Current() {
    const std::lock_guard lock(mu_);
    return lookup_;
  }
  void Read(std::shared_ptr<BufferLookup> lookup) {
    {
      const std::lock_guard lock(mu_);
      lookup_ = lookup;
      if (cancelled_) lookup_->Cancel();
    }
    Next(*lookup);
  }
  void Next(BufferLookup& lookup) {
    lookup.Next([this](std::optional<ByteBuffer> message, const grpc::Status& end) {
      if (message.has_value()) {
        answer_ = *std::move(message);
        return StartWrite(&answer_);
      }
      if (may_be_early_ && end.error_code() == grpc::StatusCode::NOT_FOUND) {
        may_be_early_ = false;  // it overtook the request that makes the buffer
        return Read(
            BufferLookup::Start(*controller_, *calls_, metadata_, request_, /*early=*/false));
      }
      Finish(end);
    });
  }

  grpc::GenericStub* const controller_;
  OpenCalls* const calls_;
  FetchesAhead* const fetches_;
  const CallMetadata metadata_;
  ByteBuffer request_, answer_;
  bool may_be_early_ = false;
  std::mutex mu_;
  std::shared_ptr<BufferLookup> lookup_;
  bool cancelled_ = false;
};

// A client's call that deletes a buffer. If the buffer was looked up ahead, it is answered before
// the controller has heard of it.
class DeleteCall final : public grpc::ServerGenericBidiReactor {
 public:
  DeleteCall(grpc::GenericCallbackServerContext* context, grpc::GenericStub* controller,
             OpenCalls* calls, bool has_token, FetchesAhead* fetches)
      : controller_(controller),
        calls_(calls),
        fetches_(fetches),
        metadata_(MetadataOf(*context, has_token)) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    const auto parsed = Parsed<proxy::GrpcHostBufferDeleteRequest>(request_);
    const bool now = parsed.has_value() && fetches_->Delete(parsed->session_id(), parsed->handle());
    auto* const sent = new Sent{{*calls_, metadata_}, request_, {}};
    controller_->UnaryCall(&sent->call.context(), kDeleteMethod, {}, &sent->request, &sent->answer,
                           [this, now, sent](const grpc::Status& status) {
                             if (!now) Answer(sent->answer, status);
                             delete sent;
                           });
    if (now) {
      const grpc::Slice empty;
      Answer(ByteBuffer(&empty, 1), grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  struct Sent {
    OpenCall call;
    ByteBuffer request, answer;
  };
  void Answer(const ByteBuffer& answer, const grpc::Status& status) {
    if (!status.ok()) return Finish(status);
    answer_ = answer;
    StartWriteAndFinish(&answer_, {}, status);
  }

  grpc::GenericStub* const controller_;
  OpenCalls* const calls_;
  FetchesAhead* const fetches_;
  const CallMetadata metadata_;
  ByteBuffer request_, answer_;
};

}  // namespace

class GatewayCalls::Service final : public grpc::CallbackGenericService {
 public:
  Service(std::shared_ptr<grpc::Channel> controller, bool has_token)
      : controller_(std::move(controller)), has_token_(has_token) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() == kLookupMethod)
      return new LookupCall(context, &controller_, &calls_, has_token_, &fetches_);
    if (context->method() == kDeleteMethod)
      return new DeleteCall(context, &controller_, &calls_, has_token_, &fetches_);
    return (new Call(context, &controller_, has_token_, &fetches_))->reactor();
  }

 private:
  grpc::GenericStub controller_;
  OpenCalls calls_;
  FetchesAhead fetches_{&controller_, &calls_};
  const bool has_token_;
};

GatewayCalls::GatewayCalls(std::shared_ptr<grpc::Channel> controller, bool has_token)
    : service_(std::make_unique<Service>(std::move(controller), has_token)) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
}

GatewayCalls::~GatewayCalls() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void GatewayCalls::Serve(int fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd); }

}  // namespace fairway
