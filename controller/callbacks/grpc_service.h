// SPDX-License-Identifier: Apache-2.0
// The gRPC shell of fairway.v1.Callbacks: gRPC's threads gather and send messages; everything else
// is posted to the event loop, where the router decides.
#ifndef FAIRWAY_CONTROLLER_CALLBACKS_GRPC_SERVICE_H_
#define FAIRWAY_CONTROLLER_CALLBACKS_GRPC_SERVICE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "async/event_loop.h"
#include "controller/access/call_access.h"
#include "controller/callbacks/router.h"

namespace fairway {

// Thread-safe, except `router` and what it calls, which belong to the loop. `loop` must outlive the
// service; the server must be shut down before the service is destroyed.
class CallbackGrpcService {
 public:
  // As in CallbackActions.
  struct Executors {
    std::function<void(ExecutorId, CallbackAnswer)> answer;
    std::function<void(ExecutorId, const CallbackCall&)> fetch_arguments;
  };
  CallbackGrpcService(EventLoop* loop, CallbackLimits limits, Executors executors,
                      CallAccess access = {});
  ~CallbackGrpcService();
  CallbackGrpcService(const CallbackGrpcService&) = delete;
  CallbackGrpcService& operator=(const CallbackGrpcService&) = delete;

  CallbackRouter& router();
  // They work as long as this does.
  const RpcMethods& methods() const;
  // Ends all streams and refuses new ones. Blocks. Not called in the loop, which must be running.
  void Shutdown(std::chrono::milliseconds grace);
  size_t num_streams() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CALLBACKS_GRPC_SERVICE_H_
