// SPDX-License-Identifier: Apache-2.0
// A port whose connections another library serves, as gRPC: who may come in, before it knows of
// them. By itself it would accept whoever connects, as many as there are descriptors.
#ifndef FAIRWAY_TRANSPORT_FRONT_H_
#define FAIRWAY_TRANSPORT_FRONT_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/tls.h"

namespace fairway {

// Has a thread of its own.
class Front {
 public:
  // Takes a connected socket, which does not block. Called on the front's thread.
  using Take = std::function<void(int fd)>;

  // Errors as of transport/connect.h's Listen. Without an identity only peers of this user are let
  // in (CheckPlainPeer). `port` 0: any free port.
  static absl::StatusOr<std::unique_ptr<Front>> Listen(const std::string& host, int port,
                                                       const TlsUse& tls);
  virtual ~Front() = default;  // accepts no more; those that were taken go on
  virtual int port() const = 0;
  // From now on connections are taken. Called once.
  virtual void Start(Take take) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_FRONT_H_
