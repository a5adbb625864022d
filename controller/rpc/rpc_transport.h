// SPDX-License-Identifier: Apache-2.0
// gRPC's part of a call. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_RPC_RPC_TRANSPORT_H_
#define FAIRWAY_CONTROLLER_RPC_RPC_TRANSPORT_H_

#include <cstdint>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "controller/rpc/rpc_call.h"

namespace fairway {

class RpcServer;

// What comes out of the server's queue.
struct RpcTag {
  enum class Kind : uint8_t { kCall, kDone, kRead, kWrite, kFinish };
  RpcTransport* transport;
  Kind kind;
};

struct RpcTransport {
  explicit RpcTransport(RpcServer* server) : server(server) {}

  RpcServer* const server;  // outlives it
  uint64_t connection = 0;  // by which the call came: it owns the call's work in the pool
  RpcCall* call = nullptr;  // once it was made
  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream{&context};
  grpc::ByteBuffer incoming;  // the bytes of the message that is being read
  RpcTag came{this, RpcTag::Kind::kCall}, done{this, RpcTag::Kind::kDone},
      read{this, RpcTag::Kind::kRead}, write{this, RpcTag::Kind::kWrite},
      finish{this, RpcTag::Kind::kFinish};
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_RPC_RPC_TRANSPORT_H_
