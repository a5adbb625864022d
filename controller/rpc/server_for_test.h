// SPDX-License-Identifier: Apache-2.0
// Serves methods at a port of this host, for tests.
#ifndef FAIRWAY_CONTROLLER_RPC_SERVER_FOR_TEST_H_
#define FAIRWAY_CONTROLLER_RPC_SERVER_FOR_TEST_H_

#include <chrono>
#include <memory>

#include "controller/rpc/rpc_server.h"

namespace grpc {
class Server;
}

namespace fairway {

class ServerForTest {
 public:
  explicit ServerForTest(RpcMethods methods, int max_message = 512 << 20);
  ~ServerForTest();

  int port() const { return port_; }
  // Cancels the calls that have not ended after `grace`, and waits until they have.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  RpcServer rpcs_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_RPC_SERVER_FOR_TEST_H_
