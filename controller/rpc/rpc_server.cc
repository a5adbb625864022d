// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/rpc_server.h"

#include <pthread.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "controller/rpc/rpc_transport.h"

namespace fairway {
namespace {

// "/fairway.v1.Admin/GetStatus" -> "fairway.v1.Admin.GetStatus".
std::string NameOf(const std::string& path) {
  std::string name = path.substr(path.starts_with('/') ? 1 : 0);
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

class Unimplemented final : public RpcCall {
 public:
  void OnDone() override { delete this; }
};

}  // namespace

struct RpcServer::Queue {
  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::ServerCompletionQueue> events;  // nullptr: before AddTo, and after Stop
};

RpcServer::RpcServer(RpcMethods methods)
    : methods_(std::move(methods)), pool_("rpc-parse", 2), queue_(std::make_unique<Queue>()) {}

RpcServer::~RpcServer() {
  if (queue_->events == nullptr) return;
  queue_->events->Shutdown();  // gRPC wants it empty
  void* tag = nullptr;
  bool ok = false;
  while (queue_->events->Next(&tag, &ok)) {
  }
}

void RpcServer::AddTo(grpc::ServerBuilder* builder) {
  builder->RegisterAsyncGenericService(&queue_->service);
  queue_->events = builder->AddCompletionQueue();
}

void RpcServer::Start() {
  for (int i = 0; i < kAwaited; ++i) Await();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "fairway-rpc");
    Run();
  });
}

void RpcServer::Stop() {
  {
    std::unique_lock lock(mu_);
    none_.wait(lock, [this] { return calls_ == 0; });
  }
  queue_->events->Shutdown();
  thread_.join();
  queue_->events = nullptr;
}

void RpcServer::Await() {
  auto* const transport = new RpcTransport(this);  // the queue has it
  transport->context.AsyncNotifyWhenDone(&transport->done);
  queue_->service.RequestCall(&transport->context, &transport->stream, queue_->events.get(),
                              queue_->events.get(), &transport->came);
}

void RpcServer::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->events->Next(&tag, &ok)) Handle(*static_cast<RpcTag*>(tag), ok);
}

void RpcServer::Handle(const RpcTag& tag, bool ok) {
  RpcTransport* const transport = tag.transport;
  switch (tag.kind) {
    case RpcTag::Kind::kCall: {
      std::unique_ptr<RpcTransport> own(transport);
      if (!ok) return;  // the server shuts down
      Await();
      return Begin(std::move(own));
    }
    case RpcTag::Kind::kDone:
      return transport->call->CancelledOrDone();
    case RpcTag::Kind::kRead:
      if (!ok || transport->incoming.Length() <= kLongMessage)
        return transport->call->ReadEnded(ok);
      return pool_.Run([call = transport->call] { call->ReadEnded(true); }, transport->connection);
    case RpcTag::Kind::kWrite:
      return transport->call->WriteEnded(ok);
    case RpcTag::Kind::kFinish:
      return transport->call->Ended();
  }
}

void RpcServer::Begin(std::unique_ptr<RpcTransport> transport) {
  {
    const std::lock_guard lock(mu_);
    ++calls_;
  }
  // Two of the same hash have their turns together, which harms neither.
  transport->connection = std::hash<std::string>()(transport->context.peer()) | 1;
  RpcCall* const call = Make(transport.get());
  call->Bind(std::move(transport));
}

RpcCall* RpcServer::Make(RpcTransport* transport) const {
  grpc::GenericServerContext* const context = &transport->context;
  const auto method = methods_.find(NameOf(context->method()));
  if (method != methods_.end()) return method->second(context);
  auto* const call = new Unimplemented;
  call->Finish(absl::UnimplementedError("there is no method " + context->method()));
  return call;
}

void RpcServer::CallEnded() {
  const std::lock_guard lock(mu_);
  if (--calls_ == 0) none_.notify_all();
}

}  // namespace fairway
