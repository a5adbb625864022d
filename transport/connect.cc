// SPDX-License-Identifier: Apache-2.0
#include "transport/connect.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/host.h"
#include "identity/plain_text.h"

namespace fairway {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// One attempt to connect. Its handlers keep it alive.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Channel>)>;
  Attempt(boost::asio::io_context& io, std::string host_port, TlsUse tls, Done done)
      : io_(io),
        resolver_(io),
        socket_(io),
        timer_(io),
        host_port_(std::move(host_port)),
        tls_(std::move(tls)),
        done_(std::move(done)) {}

  void Start(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    timer_.expires_after(timeout);
    timer_.async_wait([self = shared_from_this(), timeout](const error_code& error) {
      if (!error) self->Finish(fmt::format("no answer within {} ms", timeout.count()));
    });
    auto parts = SplitHostPort(host_port_);
    if (!parts.ok()) {
      boost::asio::post(
          io_, [self = shared_from_this(), why = Text(parts.status())] { self->Finish(why); });
      return;
    }
    error_code error;
    const auto address = boost::asio::ip::make_address(parts->first, error);
    if (!error) {
      endpoints_.emplace_back(address, static_cast<uint16_t>(parts->second));
      return Connect();
    }
    resolver_.async_resolve(
        parts->first, std::to_string(parts->second),
        [self = shared_from_this()](const error_code& failed, tcp::resolver::results_type found) {
          if (failed) return self->Finish(failed.message());
          for (const auto& entry : found) self->endpoints_.push_back(entry.endpoint());
          self->Connect();
        });
  }

 private:
  void Connect() {
    boost::asio::async_connect(
        socket_, endpoints_,
        [self = shared_from_this()](const error_code& error, const tcp::endpoint&) {
          self->Finish(error ? error.message() : std::string());
        });
  }

  // `why` empty: connected.
  void Finish(const std::string& why) {
    if (done_ == nullptr) return;
    auto done = std::move(done_);
    done_ = nullptr;
    timer_.cancel();
    resolver_.cancel();
    if (why.empty()) {
      if (tls_.identity == nullptr) return done(Channel(Neutral(std::move(socket_))));
      return Secure(Neutral(std::move(socket_)), tls_, TlsSide::kClient, timeout_,
                    [host_port = host_port_,
                     done = std::move(done)](absl::StatusOr<Channel> channel) mutable {
                      if (channel.ok()) return done(std::move(channel));
                      done(Annotate(channel.status(), "cannot connect to " + host_port));
                    });
    }
    error_code ignored;
    socket_.close(ignored);
    done(Error(absl::StatusCode::kUnavailable, "cannot connect to {}: {}", host_port_, why));
  }

  boost::asio::io_context& io_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  boost::asio::steady_timer timer_;
  const std::string host_port_;
  const TlsUse tls_;
  std::chrono::milliseconds timeout_{0};
  Done done_;
  std::vector<tcp::endpoint> endpoints_;
};

}  // namespace

void ConnectSocket(boost::asio::io_context& io, const std::string& host_port,
                   std::chrono::milliseconds timeout, const TlsUse& tls,
                   absl::AnyInvocable<void(absl::StatusOr<Channel>)> done) {
  std::make_shared<Attempt>(io, host_port, tls, std::move(done))->Start(timeout);
}

absl::StatusOr<tcp::acceptor> Listen(boost::asio::io_context& io, const std::string& host_port,
                                     const TlsUse& tls) {
  FAIRWAY_ASSIGN_OR_RETURN(const auto parts, SplitHostPort(host_port));
  const auto plain = [&]() -> absl::Status {
    return tls.identity != nullptr ? absl::OkStatus() : CheckPlainBind(parts.first);
  };
  if (absl::Status status = plain(); absl::IsFailedPrecondition(status))
    return Annotate(status, fmt::format("cannot listen at {}", host_port));
  error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(parts.first, std::to_string(parts.second), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Error(absl::StatusCode::kNotFound, "cannot listen at {}: {}", host_port,
                 error.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (error == boost::asio::error::address_in_use) {
    return Error(absl::StatusCode::kAlreadyExists, "cannot listen at {}: port {} is taken",
                 host_port, parts.second);
  }
  if (error)
    return Error(absl::StatusCode::kUnavailable, "cannot listen at {}: {}", host_port,
                 error.message());
  return acceptor;
}

StreamSocket Neutral(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  // Ends the connections of a silent host in about a minute, because whoever waits for its bytes
  // would wait for ever. The kernel probes idle connections. While sent bytes are not acknowledged
  // there are no probes; then TCP_USER_TIMEOUT counts, which also limits the probes. It also runs
  // while a live peer does not read, so it is no shorter.
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int option, int value) {
    (void)setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 10);          // seconds
  set(TCP_KEEPINTVL, 5);          // seconds
  set(TCP_USER_TIMEOUT, 60'000);  // milliseconds
  return StreamSocket(std::move(socket));
}

std::string PeerName(const StreamSocket& socket) {
  error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return "unknown";
  const int family = peer.protocol().family();
  if (family != AF_INET && family != AF_INET6) return "unix";
  tcp::endpoint endpoint;
  endpoint.resize(peer.size());
  std::memcpy(endpoint.data(), peer.data(), peer.size());
  boost::asio::ip::address address = endpoint.address();
  // A port of both families has its IPv4 peers in a form of IPv6; gRPC names them as here.
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
  const std::string host = address.to_string();
  return address.is_v6() ? fmt::format("[{}]:{}", host, endpoint.port())
                         : fmt::format("{}:{}", host, endpoint.port());
}

}  // namespace fairway
