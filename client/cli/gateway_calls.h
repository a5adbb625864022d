// SPDX-License-Identifier: Apache-2.0
// The calls of `fairway gateway`: each goes on to the controller as it is.
#ifndef FAIRWAY_CLIENT_CLI_GATEWAY_CALLS_H_
#define FAIRWAY_CLIENT_CLI_GATEWAY_CALLS_H_

#include <memory>

namespace grpc {
class Channel;
class Server;
}  // namespace grpc

namespace fairway {

// A gRPC server without a port: connections are given to it. Of every call, of any service, the
// messages, the client's metadata and the end are passed on by `controller`; one message of
// each direction is held at a time, so who reads slowly slows the other end down. jaxlib's fetches
// take one round trip to the controller instead of three (fetches_ahead.h). Thread-safe.
//
// `has_token`: the channel adds a token to each call, in the place of one that a client sends.
class GatewayCalls {
 public:
  explicit GatewayCalls(std::shared_ptr<grpc::Channel> controller, bool has_token = false);
  ~GatewayCalls();  // cancels the calls that have not ended

  // Serves a connected stream socket, and owns it.
  void Serve(int fd);

 private:
  class Service;
  const std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_GATEWAY_CALLS_H_
