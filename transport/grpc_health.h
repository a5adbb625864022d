// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1.Health/Check at a port of HTTP, so that probes of both kinds have one address. The
// library of gRPC would want a port and threads of its own.
#ifndef FAIRWAY_TRANSPORT_GRPC_HEALTH_H_
#define FAIRWAY_TRANSPORT_GRPC_HEALTH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace fairway {

// The HTTP/2 of one connection: bytes in, bytes out; no socket and no clock. Not thread-safe.
//
// Nobody is asked who it is, so no message is read: whichever service a client asks for, it hears
// of the process. Every other method is UNIMPLEMENTED, also Watch: whoever watches stays. A client
// may have kMostCalls at a time, and send kMostBytes before the first answer and between two.
class GrpcHealth {
 public:
  // Whether the process is ready. Each call asks.
  using Ready = std::function<bool()>;

  // How HTTP/2 begins, and no request of HTTP/1.
  static constexpr std::string_view kBegin = "PRI * HTTP/2.0\r\n";
  static constexpr size_t kMostBytes = 16 << 10;
  static constexpr uint32_t kMostCalls = 8;

  explicit GrpcHealth(Ready ready);
  ~GrpcHealth();
  GrpcHealth(const GrpcHealth&) = delete;
  GrpcHealth& operator=(const GrpcHealth&) = delete;

  // Takes what has come. INVALID_ARGUMENT: it is no HTTP/2. RESOURCE_EXHAUSTED: it is too much.
  // Then what Send has is the last.
  absl::Status Take(std::string_view bytes);
  // The client is told that no further call is taken.
  void End();
  // What is to be sent now; empty: nothing.
  std::string Send();
  // How many calls were answered.
  size_t answered() const;
  // Nothing more comes from either side.
  bool over() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_GRPC_HEALTH_H_
