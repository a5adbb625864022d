// SPDX-License-Identifier: Apache-2.0
// Calls whose client sends one message. gRPC would read it before it calls the method: as much as
// the server may receive, for each call that anybody begins. Here the gate is asked first.
#ifndef FAIRWAY_CONTROLLER_ACCESS_ONE_MESSAGE_H_
#define FAIRWAY_CONTROLLER_ACCESS_ONE_MESSAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "controller/access/call_access.h"

namespace grpc {
template <class Request, class Response>
class ServerBidiReactor;
namespace internal {
template <class Request, class Response>
class CallbackBidiHandler;
}  // namespace internal
}  // namespace grpc

namespace fairway {

// The place of a method in its service.
int MethodIndex(const std::string& rpc);

// A call that the gate has let in.
struct AdmittedCall {
  const CallAccess* access;  // outlives the call
  Caller caller;
  std::shared_ptr<HeldCall> held;
  std::string owner;                           // CallAccess::OwnerOf
  const grpc::CallbackServerContext* context;  // until OnDone
};

// The reactor of such a call. It lives until OnDone, which comes after Finish or Answer at the
// earliest.
template <typename Request_, typename Response_>
class OneMessageCall : public grpc::ServerBidiReactor<Request_, Response_> {
 public:
  using Request = Request_;
  using Response = Response_;

  explicit OneMessageCall(AdmittedCall admitted) : admitted_(std::move(admitted)) {}
  const Caller& caller() const { return admitted_.caller; }
  const std::string& owner() const { return admitted_.owner; }
  const Request& request() const { return request_; }

  // Reads the message. Called once.
  void Start() {
    admitted_.held->Watch();
    this->StartRead(&request_);
  }
  void OnReadDone(bool ok) final {
    if (!ok) return End(absl::InvalidArgumentError("the call has no message that can be read"));
    const size_t bytes = request_.ByteSizeLong();
    admitted_.held->Took(bytes);
    if (bytes > kMostBytes) {
      request_ = Request();
      return End(Error(absl::StatusCode::kResourceExhausted,
                       "the call's message has {} bytes, and may have {}", bytes, kMostBytes));
    }
    // The token may have been revoked while the message came.
    const absl::Status counts = admitted_.access->Check(caller());
    if (!counts.ok()) return End(counts);
    Begin();
  }
  void OnDone() override {
    admitted_.held->Done();
    delete this;
  }

 protected:
  // The message has come.
  virtual void Begin() = 0;
  // Ends the call, instead of Begin.
  virtual void End(const absl::Status& status) { this->Finish(StatusFor(this, status)); }
  HeldCall& held() { return *admitted_.held; }

 private:
  // gRPC has it whole before its size is known. But it may wait for long then, with many others.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  const AdmittedCall admitted_;
  Request request_;
};

// One that has one answer.
template <typename Request, typename Response>
class UnaryCall final : public OneMessageCall<Request, Response> {
 public:
  using Run = std::function<void(UnaryCall* call)>;

  UnaryCall(AdmittedCall admitted, Run run)
      : OneMessageCall<Request, Response>(std::move(admitted)), run_(std::move(run)) {}
  Response& response() { return response_; }
  // Ends the call, with the response if `status` is OK. Called once, on any thread.
  void Answer(const absl::Status& status) {
    if (!status.ok()) return this->Finish(StatusFor(this, status));
    this->StartWriteAndFinish(&response_, {}, StatusFor(this, status));
  }

 private:
  void Begin() override {
    this->held().Done();  // it is answered also if its token is revoked now, perhaps by itself
    run_(this);
  }

  const Run run_;
  Response response_;
};

// A generated service that has such methods.
template <typename Service>
class OneMessageService : public Service {
 protected:
  explicit OneMessageService(CallAccess access) : access_(std::move(access)) {}
  const CallAccess& access() const { return access_; }

  // `make` makes the call of `rpc` (as CallAccess::Judge names it), a OneMessageCall.
  template <typename Call>
  void Serve(const std::string& rpc, std::function<Call*(AdmittedCall)> make) {
    using Reactor = grpc::ServerBidiReactor<typename Call::Request, typename Call::Response>;
    auto begin = [this, rpc,
                  make = std::move(make)](grpc::CallbackServerContext* context) -> Reactor* {
      const Verdict verdict = access_.Judge(*context, rpc);
      if (!verdict.status.ok()) return access_.RefuseStream<Reactor>(verdict);
      Call* const call = make({.access = &access_,
                               .caller = verdict.caller,
                               .held = access_.Hold(verdict.caller, context),
                               .owner = access_.OwnerOf(verdict.caller, *context),
                               .context = context});
      call->Start();
      return call;
    };
    const int index = MethodIndex(rpc);
    // For gRPC it is a stream in both directions, of whose messages it reads none by itself.
    this->MarkMethodStreamed(index, nullptr);
    this->MarkMethodCallback(
        index,
        new grpc::internal::CallbackBidiHandler<typename Call::Request, typename Call::Response>(
            std::move(begin)));
  }
  template <typename Request, typename Response>
  void ServeUnary(const std::string& rpc, typename UnaryCall<Request, Response>::Run run) {
    using Call = UnaryCall<Request, Response>;
    Serve<Call>(rpc, [run = std::move(run)](AdmittedCall admitted) {
      return new Call(std::move(admitted), run);
    });
  }

 private:
  const CallAccess access_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ACCESS_ONE_MESSAGE_H_
