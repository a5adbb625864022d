// SPDX-License-Identifier: Apache-2.0
// A port whose connections another library serves, as gRPC: who may come in, before it knows of
// them. By itself it would accept whoever connects, as many as there are descriptors.
#ifndef FAIRWAY_TRANSPORT_FRONT_H_
#define FAIRWAY_TRANSPORT_FRONT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/inflow.h"
#include "transport/tls.h"

namespace fairway {

// Has a thread of its own. A connection is taken once something has come on it, for which it has
// 5 s; as many wait for that as Strangers says. Of those that were taken and on which no call was
// let in yet there are kQuiet: for one more, one ends as Strangers says. Of the others there are
// kLetIn: for one more, one ends as Inflows says. Where this process may have few open files, these
// three are at most a sixteenth, an eighth and a half of them, so that its other ports have theirs.
// With TLS a network begins as many handshakes a second as Pace says.
class Front {
 public:
  static constexpr size_t kQuiet = 1024;
  static constexpr size_t kLetIn = 8192;
  static constexpr std::chrono::seconds kPatience{5};

  // Takes a connected socket, which does not block. Called on the front's thread.
  using Take = std::function<void(int fd)>;

  // Errors as of transport/connect.h's Listen. Without an identity only peers of this user are let
  // in (CheckPlainPeer). `port` 0: any free port.
  static absl::StatusOr<std::unique_ptr<Front>> Listen(const std::string& host, int port,
                                                       const TlsUse& tls);
  virtual ~Front() = default;
  virtual int port() const = 0;
  // From now on connections are taken. Called once.
  virtual void Start(Take take) = 0;
  // Takes no more connections; those that were taken go on.
  virtual void Stop() = 0;
  // A call was let in that came by the connection of `peer`, "127.0.0.1:4711" or as gRPC names it,
  // "ipv4:127.0.0.1:4711". `token`: by which; 0: nobody was asked for one. Returns what comes by
  // that connection; nullptr: there is none. RESOURCE_EXHAUSTED: whose call it is has too many
  // connections, and the call is refused. Thread-safe.
  virtual absl::StatusOr<std::shared_ptr<Inflow>> LetIn(std::string_view peer, int64_t token) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_FRONT_H_
