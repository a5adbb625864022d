// SPDX-License-Identifier: Apache-2.0
#include "controller/native/grpc_service.h"

#include <atomic>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "controller/native/native_stream.h"
#include "fairway/v1/client.grpc.pb.h"

namespace fairway {
namespace {

constexpr int kMaxReceiveBytes = 512 << 20;

absl::Status ShuttingDown() { return absl::UnavailableError("the controller is shutting down"); }

}  // namespace

class NativeGrpcService::Impl final
    : public v1::Client::WithRawCallbackMethod_Session<v1::Client::Service> {
 public:
  Impl(EventLoop* loop, NativeDoor* door, NativeGrpcOptions options)
      : loop_(loop),
        door_(door),
        options_(std::move(options)),
        pool_(std::make_shared<BlockingPool>("native-pool", 2)),
        streams_(std::make_shared<OpenStreams>()) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override {
    const CallAccess& access = options_.access;
    const Verdict verdict = access.Judge(*context, "fairway.v1.Client.Session");
    if (!verdict.status.ok()) {
      return access.RefuseStream<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>(
          verdict);
    }
    const std::shared_ptr<HeldCall> held = access.Hold(verdict.caller, context);
    const uint64_t id = next_stream_++;
    auto stream = std::make_shared<NativeStream>(
        door_, options_.spool.Share(),
        NativeStream::Context{loop_, pool_, id,
                              [streams = streams_, id, held] {
                                held->Done();
                                streams->Remove(id);
                              },
                              "fairway.v1.ClientMessage", garbage_, options_.messages,
                              [held](size_t bytes) { held->Took(bytes); }},
        verdict.caller.tenant);
    if (streams_->Add(id, context->peer(), stream)) {
      stream->Start();
      held->Watch(stream);
    } else {
      stream->Refuse(ShuttingDown());
    }
    return stream.get();
  }

  void Shutdown(std::chrono::milliseconds grace) { streams_->EndAll(ShuttingDown(), grace); }
  size_t num_streams() const { return streams_->size(); }

 private:
  EventLoop* const loop_;
  NativeDoor* const door_;
  const NativeGrpcOptions options_;
  const std::shared_ptr<BlockingPool> pool_;
  const std::shared_ptr<BlockingPool> garbage_ =
      std::make_shared<BlockingPool>("native-garbage", 1);
  const std::shared_ptr<OpenStreams> streams_;
  std::atomic<uint64_t> next_stream_{1};
};

NativeGrpcService::NativeGrpcService(EventLoop* loop, NativeDoor* door, NativeGrpcOptions options)
    : impl_(std::make_unique<Impl>(loop, door, std::move(options))) {}
NativeGrpcService::~NativeGrpcService() = default;

void NativeGrpcService::Register(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder->RegisterService(impl_.get());
}

void NativeGrpcService::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }
size_t NativeGrpcService::num_streams() const { return impl_->num_streams(); }

}  // namespace fairway
