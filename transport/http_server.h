// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server in the event loop, for health checks, metrics and status pages. GET and
// HEAD only. It answers grpc.health.v1.Health/Check, too (transport/grpc_health.h).
#ifndef FAIRWAY_TRANSPORT_HTTP_SERVER_H_
#define FAIRWAY_TRANSPORT_HTTP_SERVER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "async/event_loop.h"
#include "base/status.h"
#include "identity/tls_identity.h"

namespace fairway {

// Views into what the client sent. A header that it did not send is empty.
struct HttpRequest {
  std::string_view path;           // without its query, e.g. "/healthz"
  std::string_view host;           // Host
  std::string_view origin;         // Origin
  std::string_view site;           // Sec-Fetch-Site
  std::string_view authorization;  // Authorization
  std::string_view peer;           // "127.0.0.1:4711"
  std::string_view address;        // this host's, at which it came in: "10.0.0.7"
  bool secure = false;             // by TLS
  // Why the peer may not speak plain text with this process (CheckPlainPeer). Empty: it may, or
  // speaks TLS.
  std::string_view not_ours;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::chrono::milliseconds delay{0};  // how long it waits before it is sent
};

// Loop-confined. A client has 5 s for a request, from the connection or its first byte on, and may
// be silent for 30 s between two. At most 64 connections are open at one time; a further one ends
// the oldest one of the network that has most (transport/strangers.h).
class HttpServer {
 public:
  // Runs in the loop, so it must be quick. A Check of gRPC is asked as "/readyz", without headers:
  // 200 is SERVING.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // ALREADY_EXISTS: the port is taken. `port` 0: any free port. `tls`: what it shows its clients;
  // nullptr: no TLS. FAILED_PRECONDITION: then other hosts may not reach `host`.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(
      EventLoop& loop, const std::string& host, int port, Handler handler,
      std::shared_ptr<TlsIdentity> tls = nullptr);
  virtual ~HttpServer() = default;  // closes all connections
  virtual int port() const = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_HTTP_SERVER_H_
