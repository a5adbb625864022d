// SPDX-License-Identifier: Apache-2.0
// The methods of a service, whose calls the gate lets in before anything of them is read.
#ifndef FAIRWAY_CONTROLLER_ACCESS_GATED_METHODS_H_
#define FAIRWAY_CONTROLLER_ACCESS_GATED_METHODS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "controller/access/call_access.h"

namespace fairway {

// A call that the gate has let in.
struct AdmittedCall {
  const CallAccess* access;  // outlives the call
  Caller caller;
  std::shared_ptr<HeldCall> held;
  std::string owner;                       // CallAccess::OwnerOf
  const grpc::ServerContextBase* context;  // until OnDone

  // A call that ends with `why`, instead of one that serves the client.
  RpcCall* Refuse(const absl::Status& why) const {
    held->Done();
    return access->Refuse({.status = why});
  }
};

// One whose client sends one message. It lives until OnDone, which comes after Finish or Answer at
// the earliest.
template <typename Request_>
class OneMessageCall : public RpcCall {
 public:
  using Request = Request_;

  explicit OneMessageCall(AdmittedCall admitted) : admitted_(std::move(admitted)) {}
  const Caller& caller() const { return admitted_.caller; }
  const std::string& owner() const { return admitted_.owner; }
  const Request& request() const { return request_; }

  // Reads the message. Called once.
  void Start() {
    admitted_.held->Watch();
    StartRead(&request_, kMostBytes);
  }
  void OnReadDone(bool ok) final {
    admitted_.held->Took(came());
    if (came() > kMostBytes) {
      return End(Error(absl::StatusCode::kResourceExhausted,
                       "the call's message has {} bytes, and may have {}", came(), kMostBytes));
    }
    if (!ok) return End(absl::InvalidArgumentError("the call has no message that can be read"));
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
  virtual void End(const absl::Status& status) { Finish(status); }
  HeldCall& held() { return *admitted_.held; }

 private:
  // gRPC has it whole before its size is known. But it may wait for long then, with many others.
  // In memory it takes some times as much.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  const AdmittedCall admitted_;
  Request request_;
};

// One that has one answer.
template <typename Request, typename Response>
class UnaryCall final : public OneMessageCall<Request> {
 public:
  using Run = std::function<void(UnaryCall* call)>;

  UnaryCall(AdmittedCall admitted, Run run)
      : OneMessageCall<Request>(std::move(admitted)), run_(std::move(run)) {}
  Response& response() { return response_; }
  // Ends the call, with the response if `status` is OK. Called once, on any thread.
  void Answer(const absl::Status& status) {
    if (!status.ok()) return this->Finish(status);
    this->StartWriteAndFinish(response_, status);
  }

 private:
  void Begin() override {
    this->held().Done();  // it is answered also if its token is revoked now, perhaps by itself
    run_(this);
  }

  const Run run_;
  Response response_;
};

// The methods of a service, which ask the gate first.
class GatedMethods {
 public:
  explicit GatedMethods(CallAccess access) : access_(std::move(access)) {}
  const CallAccess& access() const { return access_; }
  // Those added so far. They work as long as this does.
  const RpcMethods& all() const { return methods_; }

  // `make` makes the call of `rpc` (as CallAccess::Judge names it), whose messages it reads itself.
  void Add(const std::string& rpc, std::function<RpcCall*(AdmittedCall)> make);
  // The same for an OneMessageCall, which is then started.
  template <typename Call>
  void AddOneMessage(const std::string& rpc, std::function<Call*(AdmittedCall)> make) {
    Add(rpc, [make = std::move(make)](AdmittedCall admitted) {
      Call* const call = make(std::move(admitted));
      call->Start();
      return call;
    });
  }
  template <typename Request, typename Response>
  void AddUnary(const std::string& rpc, typename UnaryCall<Request, Response>::Run run) {
    using Call = UnaryCall<Request, Response>;
    AddOneMessage<Call>(rpc, [run = std::move(run)](AdmittedCall admitted) {
      return new Call(std::move(admitted), run);
    });
  }

 private:
  const CallAccess access_;
  RpcMethods methods_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ACCESS_GATED_METHODS_H_
