// SPDX-License-Identifier: Apache-2.0
// Serves methods by one completion queue and one thread. gRPC's callback API has several threads
// that wake each other for nearly each message (docs/design/0072-who-polls-for-rpcs.md).
#ifndef FAIRWAY_CONTROLLER_RPC_RPC_SERVER_H_
#define FAIRWAY_CONTROLLER_RPC_RPC_SERVER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "async/blocking_pool.h"
#include "controller/rpc/rpc_call.h"

namespace grpc {
class ServerBuilder;
}

namespace fairway {

struct RpcTag;

class RpcServer {
 public:
  // Whoever calls another method hears UNIMPLEMENTED.
  explicit RpcServer(RpcMethods methods);
  // After Stop, or without Start.
  ~RpcServer();

  // Called once, before the builder builds.
  void AddTo(grpc::ServerBuilder* builder);
  // Called once, after the builder has started the server.
  void Start();
  // Waits for all calls to end, and ends the thread. Called once, after grpc::Server::Shutdown.
  void Stop();

 private:
  friend class RpcCall;
  struct Queue;  // gRPC's

  // Messages of more bytes than this are parsed by the pool: nobody else waits for them.
  static constexpr size_t kLongMessage = size_t{64} << 10;
  static constexpr int kAwaited = 8;  // calls that gRPC may give out before it is asked for more

  void Await();
  void Run();
  void Handle(const RpcTag& tag, bool ok);
  void Begin(std::unique_ptr<RpcTransport> transport);
  RpcCall* Make(RpcTransport* transport) const;
  void CallEnded();

  const RpcMethods methods_;
  BlockingPool pool_;
  const std::unique_ptr<Queue> queue_;
  std::thread thread_;

  std::mutex mu_;
  std::condition_variable none_;
  size_t calls_ = 0;  // guarded by mu_: those begun, and not ended
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_RPC_RPC_SERVER_H_
