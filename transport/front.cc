// SPDX-License-Identifier: Apache-2.0
#include "transport/front.h"

#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/host.h"
#include "identity/plain_text.h"
#include "transport/connect.h"
#include "transport/sockets.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// "[::1]:4711" of gRPC's "ipv6:%5B::1%5D:4711".
std::string PlainName(std::string_view peer) {
  if (peer.starts_with("ipv4:") || peer.starts_with("ipv6:")) peer.remove_prefix(5);
  std::string out(peer);
  for (const auto& [from, to] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    if (const size_t at = out.find(from); at != std::string::npos) out.replace(at, 3, to);
  }
  return out;
}

// Connections that were taken and on which no call was let in. Thread-safe.
class Quiet {
 public:
  explicit Quiet(const ProvenNetworks* proven) : counted_(most_, proven) {}
  void Add(const std::string& peer, int fd) {
    const std::lock_guard lock(mutex_);
    Forget(peer);
    if (counted_.size() >= most_) ForgetEnded();
    const uint64_t cookie = CookieOf(fd);
    const uint64_t number = counted_.Add(peer, [this, peer, fd, cookie] {
      refusals_.Log(peer, fmt::format("on over {} connections no call was let in", most_));
      all_.erase(peer);
      EndSocket(fd, cookie);
    });
    all_[peer] = {fd, cookie, number};
  }
  struct One {
    int fd = -1;
    uint64_t cookie = 0;
    uint64_t number = 0;  // in counted_
  };
  // nullopt: it is not there.
  std::optional<One> Find(const std::string& peer) {
    const std::lock_guard lock(mutex_);
    const auto one = all_.find(peer);
    return one == all_.end() ? std::nullopt : std::optional(one->second);
  }
  void Remove(const std::string& peer) {
    const std::lock_guard lock(mutex_);
    Forget(peer);
  }

 private:
  static constexpr std::chrono::milliseconds kLookEvery{100};

  // Whoever took them does not say when they end. So they are looked at now and then.
  void ForgetEnded() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kLookEvery) return;
    looked_ = now;
    std::erase_if(all_, [this](const auto& entry) {
      if (CookieOf(entry.second.fd) == entry.second.cookie) return false;
      counted_.Remove(entry.second.number);
      return true;
    });
  }
  void Forget(const std::string& peer) {
    const auto one = all_.find(peer);
    if (one == all_.end()) return;
    counted_.Remove(one->second.number);
    all_.erase(one);
  }

  std::mutex mutex_;
  std::map<std::string, One> all_;  // by peer
  const size_t most_ = MostOfOpenFiles(Front::kQuiet, 8);
  Strangers counted_;
  Refusals refusals_;
  std::chrono::steady_clock::time_point looked_;
};

class ThreadFront final : public Front {
 public:
  ThreadFront(std::unique_ptr<boost::asio::io_context> io, tcp::acceptor acceptor, bool plain)
      : io_(std::move(io)),
        acceptor_(std::move(acceptor)),
        again_(*io_),
        look_(*io_),
        port_(acceptor_.local_endpoint().port()),
        plain_(plain) {}
  ~ThreadFront() override { ThreadFront::Stop(); }
  int port() const override { return port_; }
  void Stop() override {
    io_->stop();
    if (!thread_.joinable()) return;
    thread_.join();
    waiting_.EndAll();
    error_code ignored;
    acceptor_.close(ignored);
  }
  void Start(Take take) override {
    take_ = std::move(take);
    Accept();
    Look();
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "fairway-front");
      io_->run();
    });
  }
  absl::StatusOr<std::shared_ptr<Inflow>> LetIn(std::string_view peer, int64_t token) override {
    const std::string name = PlainName(peer);
    const std::lock_guard lock(letting_in_);
    if (auto known = inflows_.Find(name)) return known;
    const auto quiet = quiet_.Find(name);
    if (!quiet.has_value()) return nullptr;
    const std::string by = fmt::format("token {}", token);
    FAIRWAY_ASSIGN_OR_RETURN(
        auto inflow,
        inflows_.Add(name,
                     token != 0 ? Inflows::Whose{by, by}
                                : Inflows::Whose{name, "address " + NetworkOfPeer(name)},
                     quiet->fd, quiet->cookie, std::chrono::steady_clock::now()));
    quiet_.Remove(name);
    proven_.Add(name);
    return inflow;
  }

 private:
  // A connection on which nothing has come yet.
  struct Waiting {
    Waiting(StreamSocket from, boost::asio::io_context& io)
        : socket(std::move(from)), peer(PeerName(socket)), timer(io) {}
    void Close() {
      timer.cancel();
      error_code ignored;
      socket.close(ignored);
    }
    StreamSocket socket;
    const std::string peer;
    boost::asio::steady_timer timer;
    uint64_t number = 0;  // in waiting_
  };

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == boost::asio::error::operation_aborted) return;
      if (!error) Accepted(std::make_shared<Waiting>(StreamSocket(std::move(socket)), *io_));
      if (!error || error == boost::asio::error::connection_aborted) return Accept();
      // Probably out of descriptors: other connections must close first.
      again_.expires_after(std::chrono::milliseconds(100));
      again_.async_wait([this](const error_code&) { Accept(); });
    });
  }

  void Look() {
    look_.expires_after(inflows_.Look(std::chrono::steady_clock::now()));
    look_.async_wait([this](const error_code& error) {
      if (!error) Look();
    });
  }

  void Accepted(const std::shared_ptr<Waiting>& one) {
    if (plain_) {
      const absl::Status user = CheckPlainPeer(one->socket.native_handle());
      if (!user.ok()) return refusals_.Log(one->peer, Text(user));
    }
    one->number = waiting_.Add(one->peer, [this, one] {
      one->Close();
      if (!io_->stopped())
        refusals_.Log(one->peer, fmt::format("over {} connections say nothing", most_waiting_));
    });
    one->timer.expires_after(kPatience);
    one->timer.async_wait([this, one](const error_code& error) {
      if (!error) waiting_.Remove(one->number);
      if (!error) one->Close();
    });
    one->socket.async_wait(StreamSocket::wait_read, [this, one](const error_code& error) {
      waiting_.Remove(one->number);
      one->timer.cancel();
      if (!error) Spoke(*one);
    });
  }

  void Spoke(Waiting& one) {
    if (!plain_ && !pace_.Take(one.peer, std::chrono::steady_clock::now())) {
      return refusals_.Log(
          one.peer, fmt::format("its network begins over {} handshakes a second", Pace::kASecond));
    }
    error_code error;
    one.socket.native_non_blocking(true, error);
    if (error) return;
    const int fd = one.socket.release(error);
    if (error) return;
    inflows_.Forget(one.peer);  // one of that name, before
    quiet_.Add(one.peer, fd);
    take_(fd);
  }

  // Declared first, so destroyed last: after the sockets that use it.
  const std::unique_ptr<boost::asio::io_context> io_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer again_;
  boost::asio::steady_timer look_;
  const int port_;
  const bool plain_;
  Take take_;
  Refusals refusals_;
  ProvenNetworks proven_;  // those of connections on which a call was let in
  const size_t most_waiting_ = MostOfOpenFiles(Strangers::kMost, 16);
  Strangers waiting_{most_waiting_, &proven_};
  Pace pace_{&proven_};
  Quiet quiet_{&proven_};
  std::mutex letting_in_;  // one connection at a time goes from quiet_ to inflows_
  Inflows inflows_{{.connections = MostOfOpenFiles(kLetIn, 2)}, MovedBy, EndSocket};
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
