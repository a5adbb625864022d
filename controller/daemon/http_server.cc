// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/http_server.h"

#include <chrono>
#include <list>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "base/host.h"

namespace fairway {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr auto kIdle = std::chrono::seconds(30);
constexpr auto kLinger = std::chrono::seconds(2);
constexpr size_t kMaxConnections = 64;  // a further one ends the oldest one
constexpr size_t kMaxHeader = 16 << 10;

class Connection;

// Shared by the connections; outlives the server while one of their handlers runs.
struct Shared {
  HttpServer::Handler handler;  // empty once the server is gone
  std::list<Connection*> open;  // oldest first
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<Shared> shared)
      : stream_(std::move(socket)),
        shared_(std::move(shared)),
        place_(shared_->open.insert(shared_->open.end(), this)) {}
  ~Connection() { shared_->open.erase(place_); }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeader);
    parser_->body_limit(0);
    stream_.expires_after(kIdle);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       if (error == http::error::body_limit || error == http::error::header_limit) {
                         self->Answer({.status = 413, .body = "request too large\n"}, false, true);
                       } else if (!error) {
                         self->OnRequest();
                       }
                     });
  }

  void Close() {
    beast::error_code ignored;
    stream_.socket().close(ignored);
  }

 private:
  void OnRequest() {
    const auto& request = parser_->get();
    const bool head = request.method() == http::verb::head;
    const bool last = !request.keep_alive();
    if (request.method() != http::verb::get && !head) {
      return Answer({.status = 405, .body = "only GET and HEAD\n"}, false, last);
    }
    const auto view = [](auto text) { return std::string_view(text.data(), text.size()); };
    const std::string_view target = view(request.target());
    if (!shared_->handler) return;
    Answer(shared_->handler({.path = target.substr(0, target.find('?')),
                             .host = view(request[http::field::host]),
                             .origin = view(request[http::field::origin]),
                             .site = view(request["Sec-Fetch-Site"])}),
           head, last);
  }

  void Answer(HttpAnswer answer, bool head, bool last) {
    auto response = std::make_shared<http::response<http::string_body>>();
    response->version(11);
    response->result(static_cast<unsigned>(answer.status));
    response->set(http::field::server, "fairway");
    response->set(http::field::content_type, answer.content_type);
    response->set(http::field::cache_control, "no-store");
    response->keep_alive(!last);
    const size_t size = answer.body.size();
    if (!head) response->body() = std::move(answer.body);
    response->content_length(size);
    stream_.expires_after(kIdle);
    const auto done = [self = shared_from_this(), response, last](beast::error_code error, size_t) {
      if (error) return;
      if (last) {
        self->stream_.socket().shutdown(tcp::socket::shutdown_send, error);
        self->stream_.expires_after(kLinger);
        self->Drain();
      } else {
        self->Read();
      }
    };
    if (head) {
      // For a HEAD request the serializer must stop after the header.
      auto serializer = std::make_shared<http::response_serializer<http::string_body>>(*response);
      http::async_write_header(
          stream_, *serializer,
          [done, serializer](beast::error_code error, size_t n) { done(error, n); });
    } else {
      http::async_write(stream_, *response, done);
    }
  }

  // Reads what the client still sends: a close with unread bytes would discard the answer.
  void Drain() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kMaxHeader),
                            [self = shared_from_this()](beast::error_code error, size_t) {
                              if (!error) self->Drain();
                            });
  }

  beast::tcp_stream stream_;
  const std::shared_ptr<Shared> shared_;
  const std::list<Connection*>::iterator place_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(EventLoop& loop, tcp::acceptor acceptor, Handler handler)
      : loop_(loop),
        acceptor_(std::make_shared<tcp::acceptor>(std::move(acceptor))),
        shared_(std::make_shared<Shared>()) {
    shared_->handler = std::move(handler);
    Accept();
  }
  ~BeastServer() override {
    beast::error_code ignored;
    acceptor_->close(ignored);
    shared_->handler = nullptr;
    for (Connection* connection : shared_->open) connection->Close();
  }
  int port() const override { return acceptor_->local_endpoint().port(); }

 private:
  void Accept() {
    acceptor_->async_accept(
        [this, acceptor = acceptor_](beast::error_code error, tcp::socket socket) {
          if (error == asio::error::operation_aborted || !acceptor->is_open())
            return;  // `this` is gone
          if (!error) std::make_shared<Connection>(std::move(socket), shared_)->Read();
          // Otherwise silent clients would keep all others out.
          if (shared_->open.size() > kMaxConnections) shared_->open.front()->Close();
          if (!error || error == asio::error::connection_aborted) return Accept();
          // Most likely no descriptor is free: other connections must close first.
          loop_.PostAfter(std::chrono::milliseconds(100), "http accept again", [this, acceptor] {
            if (acceptor->is_open()) Accept();
          });
        });
  }

  EventLoop& loop_;
  const std::shared_ptr<tcp::acceptor> acceptor_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(EventLoop& loop,
                                                               const std::string& host, int port,
                                                               Handler handler) {
  beast::error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) return InvalidArgument("'{}' is not an IP address", host);
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
  tcp::acceptor acceptor(loop.io_context());
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return Error(absl::StatusCode::kAlreadyExists, "port {} is taken", port);
  }
  if (error)
    return Error(absl::StatusCode::kUnavailable, "cannot listen on {}: {}", HostPort(host, port),
                 error.message());
  return std::make_unique<BeastServer>(loop, std::move(acceptor), std::move(handler));
}

}  // namespace fairway
