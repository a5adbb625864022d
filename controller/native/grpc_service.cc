// SPDX-License-Identifier: Apache-2.0
#include "controller/native/grpc_service.h"

#include <atomic>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "controller/access/gated_methods.h"
#include "controller/native/native_stream.h"

namespace fairway {
namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("the controller is shutting down"); }

}  // namespace

class NativeGrpcService::Impl {
 public:
  Impl(EventLoop* loop, NativeDoor* door, NativeGrpcOptions options)
      : methods_(options.access),
        loop_(loop),
        door_(door),
        options_(std::move(options)),
        pool_(std::make_shared<BlockingPool>("native-pool", 2)),
        streams_(std::make_shared<OpenStreams>()) {
    methods_.Add("fairway.v1.Client.Session",
                 [this](const AdmittedCall& admitted) { return Session(admitted); });
  }

  const RpcMethods& methods() const { return methods_.all(); }
  void Shutdown(std::chrono::milliseconds grace) { streams_->EndAll(ShuttingDown(), grace); }
  size_t num_streams() const { return streams_->size(); }

 private:
  RpcCall* Session(const AdmittedCall& admitted) {
    const std::shared_ptr<HeldCall>& held = admitted.held;
    const uint64_t id = next_stream_++;
    auto stream = std::make_shared<NativeStream>(
        door_, options_.spool.Share(), disk_,
        NativeStream::Context{loop_, pool_, id,
                              [streams = streams_, id, held] {
                                held->Done();
                                streams->Remove(id);
                              },
                              "fairway.v1.ClientMessage", garbage_, options_.messages,
                              [held](size_t bytes) { held->Took(bytes); }},
        admitted.caller.tenant);
    if (streams_->Add(id, admitted.context->peer(), stream)) {
      stream->Start();
      held->Watch(stream);
    } else {
      stream->Refuse(ShuttingDown());
    }
    return stream.get();
  }

  GatedMethods methods_;
  EventLoop* const loop_;
  NativeDoor* const door_;
  const NativeGrpcOptions options_;
  const std::shared_ptr<BlockingPool> pool_;
  const std::shared_ptr<BlockingPool> garbage_ =
      std::make_shared<BlockingPool>("native-garbage", 1);
  const std::shared_ptr<BlockingPool> disk_ = std::make_shared<BlockingPool>("native-spool", 2);
  const std::shared_ptr<OpenStreams> streams_;
  std::atomic<uint64_t> next_stream_{1};
};

NativeGrpcService::NativeGrpcService(EventLoop* loop, NativeDoor* door, NativeGrpcOptions options)
    : impl_(std::make_unique<Impl>(loop, door, std::move(options))) {}
NativeGrpcService::~NativeGrpcService() = default;

const RpcMethods& NativeGrpcService::methods() const { return impl_->methods(); }

void NativeGrpcService::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }
size_t NativeGrpcService::num_streams() const { return impl_->num_streams(); }

}  // namespace fairway
