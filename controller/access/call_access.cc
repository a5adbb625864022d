// SPDX-License-Identifier: Apache-2.0
#include "controller/access/call_access.h"

#include <chrono>
#include <mutex>
#include <optional>

#include <grpcpp/grpcpp.h>

namespace fairway {
namespace {

constexpr std::chrono::milliseconds kEndAfter{1000};
constexpr std::chrono::milliseconds kCancelAfter{3000};

// "ipv4:127.0.0.1:4711" -> "127.0.0.1", "ipv6:%5B::1%5D:4711" -> "::1".
std::string HostOfPeer(const std::string& peer) {
  std::string host = peer.substr(0, peer.rfind(':'));
  for (const std::string_view kind : {"ipv4:", "ipv6:"}) {
    if (host.starts_with(kind)) host.erase(0, kind.size());
  }
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    if (const size_t at = host.find(bracket); at != std::string::npos)
      host.erase(at, bracket.size());
  }
  return host;
}

class RefusedCall final : public RpcCall {
 public:
  void OnDone() override { delete this; }
};

class Held final : public HeldCall,
                   public OpenCall,
                   public Inflow::Call,
                   public std::enable_shared_from_this<Held> {
 public:
  // `inflow` may be nullptr.
  Held(EventLoop* loop, Gate* gate, int64_t token, grpc::ServerContextBase* context,
       std::shared_ptr<Inflow> inflow)
      : loop_(loop), gate_(gate), token_(token), inflow_(std::move(inflow)), context_(context) {}
  // Called once, before all else.
  void Begin() {
    if (inflow_ != nullptr) inflow_->Begin(shared_from_this());
  }

  void Watch(std::weak_ptr<OpenStream> stream) override {
    {
      const std::lock_guard lock(mu_);
      stream_ = std::move(stream);
    }
    if (gate_ == nullptr) return;
    const absl::Status kept = gate_->Keep(token_, weak_from_this());
    if (!kept.ok()) TokenEnded(kept);
  }

  void Took(size_t bytes) override {
    if (inflow_ != nullptr) inflow_->Took(bytes);
  }

  void Done() override {
    {
      const std::lock_guard lock(mu_);
      context_ = nullptr;
    }
    if (inflow_ != nullptr) inflow_->End(this);
    if (gate_ != nullptr) gate_->Forget(token_, this);
  }

  void Over(const absl::Status& why) override {
    if (const auto stream = Stream()) return stream->End(why);
    loop_->Post("too much comes", [self = shared_from_this()] { self->Cancel(); });
  }

  void TokenEnded(const absl::Status& why) override {
    const std::shared_ptr<OpenStream> stream = Stream();
    if (stream == nullptr)
      return loop_->Post("token ended", [self = shared_from_this()] { self->Cancel(); });
    stream->Fail(why);
    loop_->PostAfter(kEndAfter, "token ended", [weak = std::weak_ptr(stream), why] {
      if (const auto open = weak.lock()) open->End(why);
    });
    loop_->PostAfter(kCancelAfter, "token ended", [self = shared_from_this()] { self->Cancel(); });
  }

 private:
  std::shared_ptr<OpenStream> Stream() {
    const std::lock_guard lock(mu_);
    return stream_.lock();
  }
  void Cancel() {
    const std::lock_guard lock(mu_);
    if (context_ != nullptr) context_->TryCancel();
  }

  EventLoop* const loop_;
  Gate* const gate_;
  const int64_t token_;
  const std::shared_ptr<Inflow> inflow_;
  std::mutex mu_;
  grpc::ServerContextBase* context_;  // guarded by mu_; nullptr after Done
  std::weak_ptr<OpenStream> stream_;  // guarded by mu_
};

}  // namespace

Verdict CallAccess::Judge(const grpc::ServerContextBase& context, std::string_view rpc) const {
  Verdict verdict = AskGate(context, rpc);
  if (verdict.status.ok() && let_in_)
    verdict.status = let_in_(context.peer(), verdict.caller.token).status();
  return verdict;
}

Verdict CallAccess::AskGate(const grpc::ServerContextBase& context, std::string_view rpc) const {
  if (gate_ == nullptr) return {};
  const std::optional<Verb> verb = VerbOf(rpc);
  if (!verb.has_value()) {
    return {.status = Error(absl::StatusCode::kPermissionDenied, "nobody may call {}", rpc)};
  }
  const auto& metadata = context.client_metadata();
  std::string_view authorization;
  if (const auto it = metadata.find("authorization"); it != metadata.end())
    authorization = {it->second.data(), it->second.size()};
  const std::string host = HostOfPeer(context.peer());
  return gate_->Judge({.verb = *verb,
                       .whose = *verb == Verb::kUseSession ? Whose::kOwn : Whose::kNone,
                       .authorization = authorization,
                       .host = host});
}

void CallAccess::Record(const Caller& caller, Verb verb, const std::string& object,
                        const absl::Status& status) const {
  if (gate_ != nullptr) gate_->Record(caller, verb, object, status);
}

std::string CallAccess::OwnerOf(const Caller& caller,
                                const grpc::ServerContextBase& context) const {
  return fmt::format("{} {}", caller.tenant, HostOfPeer(context.peer()));
}

RpcCall* CallAccess::Refuse(const Verdict& refused) const {
  auto* const call = new RefusedCall;
  if (refused.delay == std::chrono::milliseconds(0)) {
    call->Finish(refused.status);
  } else {
    loop_->PostAfter(refused.delay, "wrong token",
                     [call, status = refused.status] { call->Finish(status); });
  }
  return call;
}

absl::Status CallAccess::Check(const Caller& caller) const {
  return gate_ == nullptr ? absl::OkStatus() : gate_->Check(caller.token);
}

std::shared_ptr<HeldCall> CallAccess::Hold(const Caller& caller,
                                           grpc::ServerContextBase* context) const {
  std::shared_ptr<Inflow> inflow;
  if (let_in_) inflow = let_in_(context->peer(), caller.token).value_or(nullptr);
  auto held = std::make_shared<Held>(loop_, gate_, caller.token, context, std::move(inflow));
  held->Begin();
  return held;
}

}  // namespace fairway
