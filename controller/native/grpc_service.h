// SPDX-License-Identifier: Apache-2.0
// The gRPC shell of the native front door: fairway.v1.Client.
//
// gRPC's threads gather, parse and send bytes; everything else is posted to the event loop.
#ifndef FAIRWAY_CONTROLLER_NATIVE_GRPC_SERVICE_H_
#define FAIRWAY_CONTROLLER_NATIVE_GRPC_SERVICE_H_

#include <chrono>
#include <memory>

#include "async/event_loop.h"
#include "controller/access/call_access.h"
#include "controller/native/door.h"
#include "controller/sessions/open_streams.h"
#include "transport/block_pool.h"

namespace fairway {

struct NativeGrpcOptions {
  // For uploads. Beyond the budget they go to unlinked files in the directory.
  Spool spool{std::make_shared<MemoryBudget>(int64_t{768} << 20), "/tmp"};
  // For the messages of all streams, on their way in and out.
  std::shared_ptr<MemoryBudget> messages = std::make_shared<MemoryBudget>(kMessageBytes);
  CallAccess access{};
};

// Thread-safe. `loop` and `door` must outlive the service; the server must be shut down before the
// service is destroyed.
class NativeGrpcService {
 public:
  NativeGrpcService(EventLoop* loop, NativeDoor* door, NativeGrpcOptions options = {});
  ~NativeGrpcService();
  NativeGrpcService(const NativeGrpcService&) = delete;
  NativeGrpcService& operator=(const NativeGrpcService&) = delete;

  // They work as long as this does.
  const RpcMethods& methods() const;

  // As IfrtGrpcService::Shutdown. Blocks. Not called in the loop, which must be running.
  void Shutdown(std::chrono::milliseconds grace);

  size_t num_streams() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_GRPC_SERVICE_H_
