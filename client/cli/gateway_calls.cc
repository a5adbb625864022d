// SPDX-License-Identifier: Apache-2.0
#include "client/cli/gateway_calls.h"

#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

namespace fairway {
namespace {

using grpc::ByteBuffer;

// What gRPC sets by itself on the way to the controller.
bool OfTheConnection(const std::string& key) {
  return key.starts_with(":") || key.starts_with("grpc-") || key == "user-agent" || key == "te" ||
         key == "content-type";
}

// One call: a server's end towards the client, and a client's end towards the controller. The
// client's end is finished by the last act of the other, and deletes both.
class Call {
 public:
  Call(grpc::GenericCallbackServerContext* context, grpc::GenericStub* controller, bool has_token)
      : up_(this), down_(this) {
    for (const auto& [key, value] : context->client_metadata()) {
      const std::string name(key.data(), key.size());
      if (has_token && name == "authorization") continue;
      if (!OfTheConnection(name)) context_.AddMetadata(name, {value.data(), value.size()});
    }
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
      down_.StartWrite(&request_);
    } else {
      down_.StartWritesDone();
    }
  }
  void OnRequested(bool ok) {
    const std::lock_guard lock(mu_);
    if (ok && !finished_) up_.StartRead(&request_);
  }
  void OnAnswer(bool ok) {
    if (ok) return up_.StartWrite(&answer_);
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
  ByteBuffer request_, answer_;
  std::mutex mu_;
  bool ended_ = false;     // nothing more is sent to the controller
  bool finished_ = false;  // the client has its status, or will
};

}  // namespace

class GatewayCalls::Service final : public grpc::CallbackGenericService {
 public:
  Service(std::shared_ptr<grpc::Channel> controller, bool has_token)
      : controller_(std::move(controller)), has_token_(has_token) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return (new Call(context, &controller_, has_token_))->reactor();
  }

 private:
  grpc::GenericStub controller_;
  const bool has_token_;
};

GatewayCalls::GatewayCalls(std::shared_ptr<grpc::Channel> controller, bool has_token)
    : service_(std::make_unique<Service>(std::move(controller), has_token)) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
}

GatewayCalls::~GatewayCalls() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void GatewayCalls::Serve(int fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd); }

}  // namespace fairway
