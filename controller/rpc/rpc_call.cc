// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/rpc_call.h"

#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "controller/rpc/rpc_server.h"
#include "controller/rpc/rpc_transport.h"

namespace fairway {
namespace {

using google::protobuf::MessageLite;

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(static_cast<int>(status.code())), Text(status)};
}

grpc::ByteBuffer BytesOf(const MessageLite& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  // Fails only for a message of over 2 GiB, which nothing makes.
  (void)grpc::GenericSerialize<grpc::ProtoBufferWriter, MessageLite>(message, &bytes, &own);
  return bytes;
}

}  // namespace

// What was begun before the transport was there.
struct RpcCall::Early {
  bool read = false;
  std::optional<grpc::ByteBuffer> write;
  std::optional<absl::Status> end;
};

RpcCall::RpcCall() : early_(std::make_unique<Early>()) {}
RpcCall::~RpcCall() = default;

void RpcCall::StartRead(MessageLite* into, size_t most) {
  Read({.message = into, .bytes = nullptr, .most = most});
}

void RpcCall::StartRead(grpc::ByteBuffer* into) {
  Read({.message = nullptr, .bytes = into, .most = kAnyLength});
}

void RpcCall::Read(const Into& into) {
  {
    const std::lock_guard lock(mu_);
    if (finished_) return;
    into_ = into;
    if (early_ != nullptr) {
      early_->read = true;
      return;
    }
    ++at_work_;
  }
  BeginRead();
}

void RpcCall::StartWrite(const MessageLite& message, bool more) {
  StartWrite(BytesOf(message), more);
}

void RpcCall::StartWrite(const grpc::ByteBuffer& bytes, bool more) {
  {
    const std::lock_guard lock(mu_);
    if (early_ != nullptr) {
      early_->write = bytes;
      return;
    }
    ++at_work_;
  }
  BeginWrite(bytes, more);
}

void RpcCall::StartWriteAndFinish(const MessageLite& message, const absl::Status& status) {
  StartWriteAndFinish(BytesOf(message), status);
}

void RpcCall::StartWriteAndFinish(const grpc::ByteBuffer& bytes, const absl::Status& status) {
  {
    const std::lock_guard lock(mu_);
    if (early_ != nullptr) {
      early_->write = bytes;
      early_->end = status;
      return;
    }
    ++at_work_;
    finished_ = true;
  }
  BeginFinish(&bytes, status);
}

void RpcCall::Finish(const absl::Status& status) {
  {
    const std::lock_guard lock(mu_);
    if (early_ != nullptr) {
      early_->end = status;
      return;
    }
    ++at_work_;
    finished_ = true;
  }
  BeginFinish(nullptr, status);
}

void RpcCall::BeginRead() { transport_->stream.Read(&transport_->incoming, &transport_->read); }

void RpcCall::BeginWrite(const grpc::ByteBuffer& bytes, bool more) {
  grpc::WriteOptions options;
  if (more) options.set_buffer_hint();
  transport_->stream.Write(bytes, options, &transport_->write);
}

void RpcCall::BeginFinish(const grpc::ByteBuffer* last, const absl::Status& status) {
  if (last == nullptr) {
    transport_->stream.Finish(ToGrpc(status), &transport_->finish);
  } else {
    transport_->stream.WriteAndFinish(*last, {}, ToGrpc(status), &transport_->finish);
  }
}

void RpcCall::Bind(std::unique_ptr<RpcTransport> transport) {
  std::unique_ptr<Early> early;
  {
    const std::lock_guard lock(mu_);
    transport_ = std::move(transport);
    transport_->call = this;
    early = std::move(early_);
    finished_ = early->end.has_value();
    at_work_ = 1 +  // gRPC says when it is done
               (early->read ? 1 : 0) + (finished_ || early->write.has_value() ? 1 : 0);
  }
  if (early->read) BeginRead();
  if (early->end.has_value()) {
    BeginFinish(early->write.has_value() ? &*early->write : nullptr, *early->end);
  } else if (early->write.has_value()) {
    BeginWrite(*early->write, false);
  }
}

bool RpcCall::Take(grpc::ByteBuffer* bytes) {
  came_ = bytes->Length();
  if (into_.bytes != nullptr) {
    into_.bytes->Swap(bytes);
    return true;
  }
  if (came_ > into_.most) return false;
  return grpc::GenericDeserialize<grpc::ProtoBufferReader, MessageLite>(bytes, into_.message).ok();
}

void RpcCall::ReadEnded(bool ok) {
  grpc::ByteBuffer bytes;
  bytes.Swap(&transport_->incoming);
  came_ = 0;
  ok = ok && Take(&bytes);
  bytes.Clear();
  OnReadDone(ok);
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
