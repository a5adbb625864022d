// SPDX-License-Identifier: Apache-2.0
#include "controller/callbacks/grpc_service.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "controller/access/gated_methods.h"
#include "controller/callbacks/callback_stream.h"
#include "controller/sessions/open_streams.h"
#include "fairway/v1/callbacks.pb.h"

namespace fairway {
namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("the controller is shutting down"); }

class GrpcCallbackStream final : public RpcCall, public CallbackStream {
 public:
  using CallbackStream::CallbackStream;

  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { TransportDone(); }

 private:
  void StartReading(In* into) override { StartRead(into); }
  void StartWriting(const Out* message, bool more) override { StartWrite(*message, more); }
  void FinishStream(const absl::Status& status) override { Finish(status); }
};

// The open streams, by number. Thread-safe.
class StreamTable {
 public:
  void Add(uint64_t id, const std::shared_ptr<CallbackStream>& stream) {
    const std::lock_guard lock(mu_);
    streams_[id] = stream;
  }
  void Remove(uint64_t id) {
    const std::lock_guard lock(mu_);
    streams_.erase(id);
  }
  std::shared_ptr<CallbackStream> Find(uint64_t id) {
    const std::lock_guard lock(mu_);
    const auto it = streams_.find(id);
    return it == streams_.end() ? nullptr : it->second.lock();
  }

 private:
  std::mutex mu_;
  std::map<uint64_t, std::weak_ptr<CallbackStream>> streams_;
};

}  // namespace

class CallbackGrpcService::Impl final : public CallbackActions {
 public:
  Impl(EventLoop* loop, CallbackLimits limits, Executors executors, CallAccess access)
      : methods_(access), loop_(loop), executors_(std::move(executors)), router_(limits, this) {
    methods_.Add("fairway.v1.Callbacks.Serve",
                 [this](const AdmittedCall& admitted) { return Serve(admitted); });
  }

  RpcCall* Serve(const AdmittedCall& admitted) {
    const std::shared_ptr<HeldCall>& held = admitted.held;
    const uint64_t id = next_stream_++;
    auto stream = std::make_shared<GrpcCallbackStream>(
        id, &router_,
        CallbackStream::Context{loop_, pool_, id,
                                [streams = streams_, table = table_, id, held] {
                                  held->Done();
                                  streams->Remove(id);
                                  table->Remove(id);
                                },
                                "fairway.v1.CallbackClientMessage", nullptr, nullptr,
                                [held](size_t bytes) { held->Took(bytes); }},
        admitted.caller.tenant);
    table_->Add(id, stream);
    if (streams_->Add(id, admitted.context->peer(), stream)) {
      stream->Start();
      held->Watch(stream);
    } else {
      stream->Refuse(ShuttingDown());
    }
    return stream.get();
  }

  // CallbackActions
  void Answer(ExecutorId executor, CallbackAnswer answer) override {
    executors_.answer(executor, std::move(answer));
  }
  void FetchArguments(ExecutorId executor, const CallbackCall& call) override {
    executors_.fetch_arguments(executor, call);
  }
  absl::Status SendCall(uint64_t stream, uint64_t number, const CallbackCall& call,
                        const CallbackCaller& caller) override {
    const auto to = table_->Find(stream);
    if (to == nullptr)
      return absl::UnavailableError("the client's stream for callbacks has just ended");
    return to->Call(number, call, caller);
  }
  void SendCancel(uint64_t stream, uint64_t number, const std::string& reason) override {
    if (const auto to = table_->Find(stream)) to->Cancel(number, reason);
  }
  void EndStream(uint64_t stream, const absl::Status& status) override {
    if (const auto to = table_->Find(stream)) to->Fail(status);
  }

  CallbackRouter& router() { return router_; }
  const RpcMethods& methods() const { return methods_.all(); }
  void Shutdown(std::chrono::milliseconds grace) { streams_->EndAll(ShuttingDown(), grace); }
  size_t num_streams() const { return streams_->size(); }

 private:
  GatedMethods methods_;
  EventLoop* const loop_;
  const Executors executors_;
  CallbackRouter router_;
  const std::shared_ptr<BlockingPool> pool_ = std::make_shared<BlockingPool>("callbacks", 1);
  const std::shared_ptr<OpenStreams> streams_ = std::make_shared<OpenStreams>();
  const std::shared_ptr<StreamTable> table_ = std::make_shared<StreamTable>();
  std::atomic<uint64_t> next_stream_{1};
};

CallbackGrpcService::CallbackGrpcService(EventLoop* loop, CallbackLimits limits,
                                         Executors executors, CallAccess access)
    : impl_(std::make_unique<Impl>(loop, limits, std::move(executors), access)) {}
CallbackGrpcService::~CallbackGrpcService() = default;

CallbackRouter& CallbackGrpcService::router() { return impl_->router(); }
const RpcMethods& CallbackGrpcService::methods() const { return impl_->methods(); }
void CallbackGrpcService::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }
size_t CallbackGrpcService::num_streams() const { return impl_->num_streams(); }

}  // namespace fairway
