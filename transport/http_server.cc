// SPDX-License-Identifier: Apache-2.0
#include "transport/http_server.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/host.h"
#include "identity/plain_text.h"
#include "transport/connect.h"
#include "transport/grpc_health.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr auto kIdle = std::chrono::seconds(30);
constexpr auto kRequest = std::chrono::seconds(5);
constexpr auto kLinger = std::chrono::seconds(2);
constexpr size_t kMaxConnections = 64;
constexpr size_t kMaxHeader = 16 << 10;
constexpr size_t kGrpcTurn = 4 << 10;  // of HTTP/2, read in one turn of the loop

// A channel as Beast wants a stream.
class Stream {
 public:
  using executor_type = StreamSocket::executor_type;
  explicit Stream(Channel channel) : channel_(std::move(channel)) {}
  executor_type get_executor() { return channel_.socket().get_executor(); }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    channel_.ReadSome(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    channel_.WriteSome(buffers, std::forward<Handler>(handler));
  }
  Channel& channel() { return channel_; }

 private:
  Channel channel_;
};

std::string LocalAddress(StreamSocket& socket) {
  beast::error_code error;
  const auto here = socket.local_endpoint(error);
  tcp::endpoint endpoint;
  if (error || here.size() > endpoint.capacity()) return "";
  std::memcpy(endpoint.data(), here.data(), here.size());
  return endpoint.address().to_string();
}

// Shared by the connections; outlives the server while one of their handlers runs.
struct Shared {
  HttpServer::Handler handler;  // empty once the server is gone
  Strangers open{MostOfOpenFiles(kMaxConnections, 16)};
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Channel channel, std::shared_ptr<Shared> shared)
      : peer_(PeerName(channel.socket())),
        address_(LocalAddress(channel.socket())),
        secure_(channel.secure()),
        not_ours_(channel.secure() ? "" : Text(CheckPlainPeer(channel.socket().native_handle()))),
        timer_(channel.socket().get_executor()),
        stream_(std::move(channel)),
        shared_(std::move(shared)),
        place_(shared_->open.Add(peer_, [this] { Close(); })) {}
  ~Connection() { shared_->open.Remove(place_); }

  // `patience`: until the first byte of the next request.
  void Read(std::chrono::seconds patience) {
    parser_.emplace();
    parser_->header_limit(kMaxHeader);
    parser_->body_limit(0);
    Within(patience);
    buffer_.size() > 0 ? ReadRequest() : ReadMore(&Connection::Begin);
  }

  void Close() {
    timer_.cancel();
    beast::error_code ignored;
    stream_.channel().socket().close(ignored);
  }

 private:
  void ReadMore(void (Connection::*then)()) {
    stream_.async_read_some(buffer_.prepare(kGrpcTurn), [self = shared_from_this(), then](
                                                            beast::error_code error, size_t count) {
      if (error) return self->Close();
      self->buffer_.commit(count);
      ((*self).*then)();
    });
  }
  std::string_view Came() const {
    const auto data = buffer_.data();
    return {static_cast<const char*>(data.data()), data.size()};
  }

  // Something of a request has come: of HTTP/1, or of gRPC, which has HTTP/2.
  void Begin() {
    const std::string_view came = Came().substr(0, GrpcHealth::kBegin.size());
    if (!GrpcHealth::kBegin.starts_with(came)) return ReadRequest();
    if (came.size() < GrpcHealth::kBegin.size()) return ReadMore(&Connection::Begin);
    grpc_.emplace([self = weak_from_this()] {
      const auto connection = self.lock();
      return connection != nullptr && connection->Ready();
    });
    TakeGrpc();
  }
  bool Ready() const {
    return shared_->handler && shared_->handler(Asked("/readyz")).status == 200;
  }

  void TakeGrpc() {
    if (ending_) return Close();
    const size_t answered = grpc_->answered();
    const bool well = grpc_->Take(Came()).ok();
    buffer_.consume(buffer_.size());
    if (grpc_->answered() > answered) Within(kIdle);
    SendGrpc(/*last=*/!well);
  }
  void SendGrpc(bool last) {
    out_ = grpc_->Send();
    last = last || grpc_->over();
    if (out_.empty()) return last ? End() : ReadMore(&Connection::TakeGrpc);
    asio::async_write(stream_, asio::buffer(out_),
                      [self = shared_from_this(), last](beast::error_code error, size_t) {
                        if (error) return self->Close();
                        self->out_.clear();
                        last ? self->End() : self->ReadMore(&Connection::TakeGrpc);
                      });
  }

  void ReadRequest() {
    Within(kRequest);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       if (error == http::error::body_limit || error == http::error::header_limit) {
                         self->Answer({.status = 413, .body = "request too large\n"}, false, true);
                       } else if (!error) {
                         self->OnRequest();
                       } else {
                         self->Close();
                       }
                     });
  }

  // Ends the connection after that time.
  void Within(std::chrono::seconds time) {
    timer_.expires_after(time);
    timer_.async_wait([weak = weak_from_this()](beast::error_code error) {
      const auto self = weak.lock();
      if (!error && self != nullptr) self->TimeIsUp();
    });
  }
  // A client of gRPC for which nobody waits any longer is told so. Of a call that comes meanwhile
  // it then knows that nobody has seen it.
  void TimeIsUp() {
    if (!grpc_.has_value() || ending_ || !out_.empty()) return Close();
    ending_ = true;
    grpc_->End();
    out_ = grpc_->Send();
    Within(kLinger);
    asio::async_write(stream_, asio::buffer(out_),
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (error) self->Close();
                      });
  }

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
    HttpRequest asked = Asked(target.substr(0, target.find('?')));
    asked.host = view(request[http::field::host]);
    asked.origin = view(request[http::field::origin]);
    asked.site = view(request["Sec-Fetch-Site"]);
    asked.authorization = view(request[http::field::authorization]);
    Later(shared_->handler(asked), head, last);
  }

  // Without headers.
  HttpRequest Asked(std::string_view path) const {
    HttpRequest out;
    out.path = path;
    out.peer = peer_;
    out.address = address_;
    out.secure = secure_;
    out.not_ours = not_ours_;
    return out;
  }

  void Later(HttpAnswer answer, bool head, bool last) {
    if (answer.delay.count() == 0) return Answer(std::move(answer), head, last);
    timer_.expires_after(answer.delay);
    timer_.async_wait([self = shared_from_this(), answer = std::move(answer), head,
                       last](beast::error_code error) mutable {
      if (!error) self->Answer(std::move(answer), head, last);
    });
  }

  void Answer(HttpAnswer answer, bool head, bool last) {
    auto response = std::make_shared<http::response<http::string_body>>();
    response->version(11);
    response->result(static_cast<unsigned>(answer.status));
    response->set(http::field::server, "fairway");
    response->set(http::field::content_type, answer.content_type);
    response->set(http::field::cache_control, "no-store");
    if (answer.status == 401) response->set(http::field::www_authenticate, "Bearer");
    response->set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
    response->set("X-Content-Type-Options", "nosniff");
    response->set("Referrer-Policy", "no-referrer");
    response->keep_alive(!last);
    const size_t size = answer.body.size();
    if (!head) response->body() = std::move(answer.body);
    response->content_length(size);
    Within(kIdle);
    const auto done = [self = shared_from_this(), response, last](beast::error_code error, size_t) {
      if (error) return self->Close();
      if (last) return self->End();
      self->Read(kIdle);
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
  void End() {
    ending_ = true;
    Within(kLinger);
    stream_.channel().EndWriting([self = shared_from_this()] {
      beast::error_code ignored;
      self->stream_.channel().socket().shutdown(tcp::socket::shutdown_send, ignored);
    });
    Drain();
  }
  void Drain() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kMaxHeader),
                            [self = shared_from_this()](beast::error_code error, size_t) {
                              error ? self->Close() : self->Drain();
                            });
  }

  const std::string peer_;
  const std::string address_;
  const bool secure_;
  const std::string not_ours_;
  asio::steady_timer timer_;
  Stream stream_;
  const std::shared_ptr<Shared> shared_;
  const uint64_t place_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<GrpcHealth> grpc_;
  std::string out_;      // of it, being written
  bool ending_ = false;  // the client has been told so
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(EventLoop& loop, tcp::acceptor acceptor, Handler handler, TlsUse tls)
      : loop_(loop),
        acceptor_(std::make_shared<tcp::acceptor>(std::move(acceptor))),
        shared_(std::make_shared<Shared>()),
        handshakes_(std::move(tls)) {
    shared_->handler = std::move(handler);
    Accept();
  }
  ~BeastServer() override {
    beast::error_code ignored;
    acceptor_->close(ignored);
    shared_->handler = nullptr;
    shared_->open.EndAll();
  }
  int port() const override { return acceptor_->local_endpoint().port(); }

 private:
  void Accept() {
    acceptor_->async_accept(
        [this, acceptor = acceptor_](beast::error_code error, tcp::socket socket) {
          if (error == asio::error::operation_aborted || !acceptor->is_open())
            return;  // `this` is gone
          if (!error) {
            handshakes_.Start(Neutral(std::move(socket)), [shared = shared_](Channel channel) {
              std::make_shared<Connection>(std::move(channel), shared)->Read(kRequest);
            });
          }
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
  Handshakes handshakes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(EventLoop& loop,
                                                               const std::string& host, int port,
                                                               Handler handler,
                                                               std::shared_ptr<TlsIdentity> tls) {
  TlsUse use{std::move(tls), std::nullopt, /*anybody=*/true};
  FAIRWAY_ASSIGN_OR_RETURN(auto acceptor,
                           fairway::Listen(loop.io_context(), HostPort(host, port), use));
  return std::make_unique<BeastServer>(loop, std::move(acceptor), std::move(handler),
                                       std::move(use));
}

}  // namespace fairway
