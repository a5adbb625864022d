// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/rpc_call.h"

#include <utility>

#include "controller/rpc/rpc_server.h"
#include "controller/rpc/rpc_transport.h"

namespace fairway {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(static_cast<int>(status.code())), Text(status)};
}

}  // namespace

RpcCall::RpcCall() = default;
RpcCall::~RpcCall() = default;

void RpcCall::Read() {
  const std::lock_guard lock(mu_);
  if (transport_ == nullptr) {
    early_.read = true;
  } else {
    BeginRead();
  }
}

void RpcCall::Write(const grpc::ByteBuffer& bytes, bool more) {
  const std::lock_guard lock(mu_);
  if (transport_ == nullptr) {
    early_.write = bytes;
  } else {
    BeginWrite(bytes, more);
  }
}

void RpcCall::WriteLast(const grpc::ByteBuffer& bytes, const absl::Status& status) {
  const std::lock_guard lock(mu_);
  if (transport_ == nullptr) {
    early_.write = bytes;
    early_.end = status;
  } else {
    BeginFinish(&bytes, status);
  }
}

void RpcCall::Finish(const absl::Status& status) {
  const std::lock_guard lock(mu_);
  if (transport_ == nullptr) {
    early_.end = status;
  } else {
    BeginFinish(nullptr, status);
  }
}

void RpcCall::BeginRead() {
  ++at_work_;
  transport_->stream.Read(&transport_->incoming, &transport_->read);
}

void RpcCall::BeginWrite(const grpc::ByteBuffer& bytes, bool more) {
  ++at_work_;
  grpc::WriteOptions options;
  if (more) options.set_buffer_hint();
  transport_->stream.Write(bytes, options, &transport_->write);
}

void RpcCall::BeginFinish(const grpc::ByteBuffer* last, const absl::Status& status) {
  ++at_work_;
  finished_ = true;
  if (last == nullptr) {
    transport_->stream.Finish(ToGrpc(status), &transport_->finish);
  } else {
    transport_->stream.WriteAndFinish(*last, {}, ToGrpc(status), &transport_->finish);
  }
}

void RpcCall::Bind(std::unique_ptr<RpcTransport> transport) {
  const std::lock_guard lock(mu_);
  transport_ = std::move(transport);
  transport_->call = this;
  at_work_ = 1;  // gRPC says when it is done
  const Early early = std::exchange(early_, {});
  if (early.read) BeginRead();
  if (early.end.has_value()) {
    BeginFinish(early.write.has_value() ? &*early.write : nullptr, *early.end);
  } else if (early.write.has_value()) {
    BeginWrite(*early.write, false);
  }
}

void RpcCall::ReadEnded(bool ok) {
  grpc::ByteBuffer bytes;
  bytes.Swap(&transport_->incoming);
  OnReadDone(ok && Take(&bytes));
  Ended();
}

void RpcCall::WriteEnded(bool ok) {
  OnWriteDone(ok);
  Ended();
}

void RpcCall::CancelledOrDone() {
  if (transport_->context.IsCancelled()) OnCancel();
  Ended();
}

void RpcCall::Ended() {
  std::unique_ptr<RpcTransport> transport;
  {
    const std::lock_guard lock(mu_);
    if (--at_work_ > 0 || !finished_) return;
    transport = std::move(transport_);
  }
  OnDone();  // `this` may be gone then
  RpcServer* const server = transport->server;
  transport = nullptr;
  server->CallEnded();
}

}  // namespace fairway
