// SPDX-License-Identifier: Apache-2.0
// The controller's gRPC server: the given methods, grpc.health.v1 and reflection. With an identity
// it speaks TLS only, 1.2 or newer, and has no reflection.
#ifndef FAIRWAY_CONTROLLER_DAEMON_GRPC_SERVER_H_
#define FAIRWAY_CONTROLLER_DAEMON_GRPC_SERVER_H_

#include <chrono>
#include <memory>

#include "base/status.h"
#include "controller/rpc/rpc_call.h"
#include "identity/tls_identity.h"
#include "transport/front.h"

namespace fairway {

class GrpcServer {
 public:
  // Serves the connections of `front`, which has not started; whoever judges calls tells it of
  // those that are let in. What `methods` are of must outlive the server.
  // `tls`: what it shows its clients; nullptr: no TLS.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      std::shared_ptr<Front> front, RpcMethods methods, std::shared_ptr<TlsIdentity> tls = nullptr);
  virtual ~GrpcServer() = default;
  virtual int port() const = 0;
  // Sets the answer of grpc.health.v1 for the whole server. Thread-safe.
  virtual void SetServing(bool serving) = 0;
  // Refuses new calls, cancels those that have not ended after `grace`, and waits. Blocks. Not
  // called in the loop, which must be running.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_GRPC_SERVER_H_
