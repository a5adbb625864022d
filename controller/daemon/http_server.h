// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server in the event loop, for health checks, metrics and status pages. GET and
// HEAD only.
#ifndef FAIRWAY_CONTROLLER_DAEMON_HTTP_SERVER_H_
#define FAIRWAY_CONTROLLER_DAEMON_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "async/event_loop.h"
#include "base/status.h"

namespace fairway {

// Views into what the client sent. A header that it did not send is empty.
struct HttpRequest {
  std::string_view path;    // without its query, e.g. "/healthz"
  std::string_view host;    // Host
  std::string_view origin;  // Origin
  std::string_view site;    // Sec-Fetch-Site
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Loop-confined. Connections that are idle for 30 s are closed. At most 64 are open at one time
// (more wait in the kernel's queue).
class HttpServer {
 public:
  // Runs in the loop, so it must be quick.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // ALREADY_EXISTS: the port is taken. `port` 0: any free port.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(EventLoop& loop,
                                                            const std::string& host, int port,
                                                            Handler handler);
  virtual ~HttpServer() = default;  // closes all connections
  virtual int port() const = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_HTTP_SERVER_H_
