// SPDX-License-Identifier: Apache-2.0
// The gRPC shell of the IFRT front door: xla.ifrt.proxy.GrpcIfrtService.
//
// gRPC's threads gather and send bytes; everything else is posted to the event loop.
#ifndef FAIRWAY_CONTROLLER_IFRT_GRPC_SERVICE_H_
#define FAIRWAY_CONTROLLER_IFRT_GRPC_SERVICE_H_

#include <memory>

#include "async/event_loop.h"
#include "controller/access/call_access.h"
#include "controller/ifrt/door.h"
#include "controller/sessions/open_streams.h"
#include "transport/block_pool.h"

namespace fairway {

struct IfrtGrpcOptions {
  // For uploads. Beyond the budget they go to unlinked files in the directory.
  Spool spool{std::make_shared<MemoryBudget>(int64_t{768} << 20), "/tmp"};
  int copy_threads = 2;
  // For the messages of all streams, on their way in and out.
  std::shared_ptr<MemoryBudget> messages = std::make_shared<MemoryBudget>(kMessageBytes);
  CallAccess access{};
};

// Thread-safe. `loop` and `door` must outlive the service; the server must be shut down before the
// service is destroyed.
class IfrtGrpcService {
 public:
  IfrtGrpcService(EventLoop* loop, IfrtDoor* door, IfrtGrpcOptions options = {});
  ~IfrtGrpcService();
  IfrtGrpcService(const IfrtGrpcService&) = delete;
  IfrtGrpcService& operator=(const IfrtGrpcService&) = delete;

  // They work as long as this does.
  const RpcMethods& methods() const;

  // Answers waiting and new requests with UNAVAILABLE. Ends the streams with it once their clients
  // have left, or after `grace`: jaxlib's client reports a stream that ends under it as CANCELLED,
  // but an answer with the answer's error. Refuses new streams. Blocks. Not called in the loop,
  // which must be running.
  void Shutdown(std::chrono::milliseconds grace);

  size_t num_streams() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_GRPC_SERVICE_H_
