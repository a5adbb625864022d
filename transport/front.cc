// SPDX-License-Identifier: Apache-2.0
#include "transport/front.h"

#include <pthread.h>

#include <chrono>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/host.h"
#include "identity/plain_text.h"
#include "transport/connect.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

class ThreadFront final : public Front {
 public:
  ThreadFront(std::unique_ptr<boost::asio::io_context> io, tcp::acceptor acceptor, bool plain)
      : io_(std::move(io)), acceptor_(std::move(acceptor)), again_(*io_), plain_(plain) {}
  ~ThreadFront() override {
    io_->stop();
    if (thread_.joinable()) thread_.join();
  }
  int port() const override { return acceptor_.local_endpoint().port(); }
  void Start(Take take) override {
    take_ = std::move(take);
    Accept();
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "fairway-front");
      io_->run();
    });
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == boost::asio::error::operation_aborted) return;
      if (!error) Accepted(std::move(socket));
      if (!error || error == boost::asio::error::connection_aborted) return Accept();
      // Probably out of descriptors: other connections must close first.
      again_.expires_after(std::chrono::milliseconds(100));
      again_.async_wait([this](const error_code&) { Accept(); });
    });
  }

  void Accepted(tcp::socket socket) {
    StreamSocket neutral(std::move(socket));
    const std::string peer = PeerName(neutral);
    if (plain_) {
      const absl::Status user = CheckPlainPeer(neutral.native_handle());
      if (!user.ok()) return refusals_.Log(peer, Text(user));
    }
    error_code error;
    neutral.native_non_blocking(true, error);
    if (!error) take_(neutral.release(error));
  }

  // Declared first, so destroyed last: after the sockets that use it.
  const std::unique_ptr<boost::asio::io_context> io_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer again_;
  const bool plain_;
  Take take_;
  Refusals refusals_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Front>> Front::Listen(const std::string& host, int port,
                                                     const TlsUse& tls) {
  auto io = std::make_unique<boost::asio::io_context>(1);
  FAIRWAY_ASSIGN_OR_RETURN(auto acceptor, fairway::Listen(*io, HostPort(host, port), tls));
  return std::make_unique<ThreadFront>(std::move(io), std::move(acceptor), tls.identity == nullptr);
}

}  // namespace fairway
