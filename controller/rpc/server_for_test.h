// SPDX-License-Identifier: Apache-2.0
// Serves methods at a port of this host, for tests.
#ifndef FAIRWAY_CONTROLLER_RPC_SERVER_FOR_TEST_H_
#define FAIRWAY_CONTROLLER_RPC_SERVER_FOR_TEST_H_

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "controller/rpc/rpc_server.h"

namespace fairway {

class ServerForTest {
 public:
  explicit ServerForTest(RpcMethods methods, int max_message = 512 << 20)
      : rpcs_(std::move(methods)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(max_message);
    rpcs_.AddTo(&builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) std::abort();
    rpcs_.Start();
  }
  ~ServerForTest() { Shutdown({}); }

  int port() const { return port_; }
  // Cancels the calls that have not ended after `grace`, and waits until they have.
  void Shutdown(std::chrono::milliseconds grace) {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    rpcs_.Stop();
    server_->Wait();
    server_ = nullptr;
  }

 private:
  RpcServer rpcs_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_RPC_SERVER_FOR_TEST_H_
