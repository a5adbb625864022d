// SPDX-License-Identifier: Apache-2.0
#include "transport/data_plane.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/host.h"
#include "transport/data_client.h"
#include "transport/data_server.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using data::ClientStream;
using data::PendingPull;
using data::ServerStream;

constexpr std::chrono::seconds kConnectTimeout{5};
// A peer that closes the connection in the handshake may have no room, or too many handshakes a
// second of this network; one that closes it before it has said anything may have made room for
// another. It is dialed again: about 5 s of waiting in all, each time for twice as long. In the
// second case the pulls are asked again, if it was first dialed no longer than this ago. One that
// it had read before is answered again, or with an error.
constexpr std::chrono::seconds kAskAgainWithin{10};
constexpr int kDialAgain = 6;
constexpr std::chrono::milliseconds kFirstWait{40};
constexpr size_t kKeptBlocks = size_t{256} << 20;  // bytes
// Answers up to this size are read in the loop. To hand them over from another thread would cost
// more than to receive them.
constexpr int64_t kMostInLoop = 64 << 10;

using OnPull = std::function<void(PullRequest, DataPlane::Answer)>;

// State that the loop's side shares with its late handlers. `closed` belongs to the loop.
struct LoopSide {
  EventLoop& loop;
  OnPull on_pull;
  bool closed = false;
  OnPull on_round;  // used only by the I/O thread, as on_push is
  OnPush on_push;
  std::function<void(PullRequest)> on_taken_back;
};

// The bytes pulled from each endpoint. Thread-safe.
class PulledCounters {
 public:
  std::shared_ptr<std::atomic<uint64_t>> Of(const std::string& endpoint) {
    std::lock_guard lock(mutex_);
    auto& counter = counters_[endpoint];
    if (counter == nullptr) counter = std::make_shared<std::atomic<uint64_t>>(0);
    return counter;
  }
  std::vector<std::pair<std::string, uint64_t>> All() const {
    std::lock_guard lock(mutex_);
    std::vector<std::pair<std::string, uint64_t>> out;
    for (const auto& [endpoint, bytes] : counters_) out.emplace_back(endpoint, bytes->load());
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<std::atomic<uint64_t>>> counters_;
};

// The connections that a plane makes, all on the thread of `io`, which also calls it.
class PeerStreams : public std::enable_shared_from_this<PeerStreams> {
 public:
  PeerStreams(boost::asio::io_context& io, Incarnation incarnation, TlsUse tls,
              std::shared_ptr<BlockPool> blocks, std::shared_ptr<PulledCounters> pulled)
      : io_(io),
        tls_(std::move(tls)),
        random_(static_cast<uint32_t>(incarnation.value)),
        blocks_(std::move(blocks)),
        pulled_(std::move(pulled)) {}

  void Pull(const std::string& endpoint, PendingPull pull) {
    Send({endpoint, false}, &ClientStream::Pull, &Peer::pulls, std::move(pull));
  }
  void TakeBack(const std::string& endpoint, TransferId transfer) {
    const auto peer = peers_.find({endpoint, false});
    if (peer == peers_.end()) return;
    if (peer->second.stream != nullptr) return peer->second.stream->TakeBack(transfer);
    auto& pulls = peer->second.pulls;
    const auto taken = std::stable_partition(pulls.begin(), pulls.end(), [&](const PendingPull& p) {
      return p.request.request.transfer != transfer;
    });
    std::vector<PendingPull> ended(std::make_move_iterator(taken),
                                   std::make_move_iterator(pulls.end()));
    pulls.erase(taken, pulls.end());
    for (PendingPull& pull : ended) pull.done(absl::CancelledError("it was taken back"));
  }
  // Pushes have a connection of their own: one that finds no room holds up nothing else.
  void Push(const std::string& endpoint, data::PendingPush push) {
    Send({endpoint, true}, &ClientStream::Push, &Peer::pushes, std::move(push));
  }
  // Ends all connections, and runs no handler of a pull any more.
  void CloseNow() {
    closed_ = true;
    for (auto& [key, peer] : std::exchange(peers_, {})) {
      if (peer.stream != nullptr) peer.stream->CloseNow();
    }
  }

 private:
  // A connection to a peer. Exists while it is connected or being connected.
  struct Peer {
    std::shared_ptr<ClientStream> stream;   // nullptr: not connected yet
    std::vector<PendingPull> pulls;         // that wait for the stream
    std::vector<data::PendingPush> pushes;  // the same
    int dialed = 0;                         // how often in vain
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  using PeerKey = std::pair<std::string, bool>;  // endpoint; whether it is for pushes

  template <typename T>
  void Send(PeerKey key, void (ClientStream::*send)(T), std::vector<T> Peer::*waiting, T what) {
    const auto [entry, fresh] = peers_.try_emplace(std::move(key));
    Peer& peer = entry->second;
    if (peer.stream != nullptr) return (*peer.stream.*send)(std::move(what));
    (peer.*waiting).push_back(std::move(what));
    if (fresh) Dial(entry->first);
  }

  void Dial(const PeerKey& key) {
    ConnectSocket(io_, key.first, kConnectTimeout, tls_,
                  [self = shared_from_this(), key](absl::StatusOr<Channel> channel) {
                    if (!self->closed_) self->Connected(key, std::move(channel));
                  });
  }
  // Waits once to twice as long as the number says, so that those who were refused together do not
  // come together.
  void DialLater(const PeerKey& key, int dialed) {
    const auto least = kFirstWait * (1 << dialed);
    std::uniform_int_distribution<int64_t> more(0, least.count());
    const auto timer = std::make_shared<boost::asio::steady_timer>(
        io_, least + std::chrono::milliseconds(more(random_)));
    timer->async_wait([self = shared_from_this(), key, timer](const error_code&) {
      if (!self->closed_) self->Dial(key);
    });
  }

  void Connected(const PeerKey& key, absl::StatusOr<Channel> channel) {
    Peer& peer = peers_.at(key);
    const bool closed = channel.status().GetPayload(kClosedInHandshake).has_value();
    if (closed && peer.dialed < kDialAgain) return DialLater(key, peer.dialed++);
    auto pulls = std::exchange(peer.pulls, {});
    auto pushes = std::exchange(peer.pushes, {});
    if (!channel.ok()) {
      peers_.erase(key);
      absl::Status status = channel.status();
      status.ErasePayload(kClosedInHandshake);
      for (PendingPull& pull : pulls) pull.done(status);
      return;
    }
    peer.stream = std::make_shared<ClientStream>(
        *std::move(channel), key.first, pulled_->Of(key.first), blocks_,
        [self = weak_from_this(), key](auto unheard, auto& why) {
          if (const auto alive = self.lock()) alive->Ended(key, std::move(unheard), why);
        });
    peer.stream->Start();
    for (PendingPull& pull : pulls) peer.stream->Pull(std::move(pull));
    for (data::PendingPush& push : pushes) peer.stream->Push(std::move(push));
  }

  // `key` is a copy, since the stream ends that has the other.
  void Ended(const PeerKey key, std::vector<PendingPull> unheard, const absl::Status& why) {
    Peer& peer = peers_.at(key);
    const auto stood = std::chrono::steady_clock::now() - peer.since;
    if (!unheard.empty() && peer.dialed < kDialAgain && stood < kAskAgainWithin) {
      peer.stream = nullptr;
      peer.pulls = std::move(unheard);
      return DialLater(key, peer.dialed++);
    }
    peers_.erase(key);
    for (PendingPull& pull : unheard) pull.done(why);
  }

  boost::asio::io_context& io_;
  const TlsUse tls_;
  std::minstd_rand random_;
  std::map<PeerKey, Peer> peers_;
  const std::shared_ptr<BlockPool> blocks_;
  const std::shared_ptr<PulledCounters> pulled_;
  bool closed_ = false;
};

// The connections that others make, and those for gangs and for answers that the loop does not
// read. Everything but Post runs on the I/O thread.
class IoSide : public std::enable_shared_from_this<IoSide> {
 public:
  IoSide(std::shared_ptr<LoopSide> loop_side, Incarnation incarnation, const PortKey& key,
         Spool spool, const TlsUse& tls)
      : loop_side_(std::move(loop_side)),
        incarnation_(incarnation),
        key_(key),
        handshakes_(tls),
        acceptor_(io_),
        blocks_(BlockPool::Make(kKeptBlocks, std::move(spool))),
        streams_(std::make_shared<PeerStreams>(io_, incarnation, tls, blocks_, pulled_)) {}
  ~IoSide() { streams_->CloseNow(); }

  boost::asio::io_context& io() { return io_; }
  void set_acceptor(tcp::acceptor acceptor) { acceptor_ = std::move(acceptor); }
  void Run() { io_.run(); }
  void Stop() { io_.stop(); }

  // Thread-safe. Runs `f` on the I/O thread; drops it if the thread has ended.
  template <typename F>
  void Post(F f) {
    boost::asio::post(io_, std::move(f));
  }

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == boost::asio::error::operation_aborted) return;
      if (!error) {
        handshakes_.Start(Neutral(std::move(socket)),
                          [this](Channel channel) { Accepted(std::move(channel)); });
      }
      if (!error || error == boost::asio::error::connection_aborted) return Accept();
      // Probably out of descriptors: other connections must close first.
      again_.expires_after(std::chrono::milliseconds(100));
      again_.async_wait([this](const error_code&) { Accept(); });
    });
  }

  void RetryPushes() {
    for (const auto& [_, server] : std::map(servers_)) server->RetryPush();
  }

  PeerStreams& streams() { return *streams_; }
  const std::shared_ptr<BlockPool>& blocks() const { return blocks_; }
  const std::shared_ptr<PulledCounters>& pulled() const { return pulled_; }
  uint64_t ServedBytes() const { return served_->load(); }

 private:
  void Accepted(Channel channel) {
    const auto stranger = std::make_shared<uint64_t>(0);
    auto stream = std::make_shared<ServerStream>(
        std::move(channel), incarnation_, key_,
        [this](std::shared_ptr<ServerStream> from, uint64_t id, PullRequest request) {
          Asked(std::move(from), id, request);
        },
        [this, stranger](ServerStream* ended) {
          strangers_.Remove(*stranger);
          servers_.erase(ended);
        },
        served_, loop_side_->on_push,
        [side = loop_side_](PullRequest request) {
          if (request.round != 0 || !side->on_taken_back) return;
          side->loop.Post("pull taken back", [side, request] {
            if (!side->closed) side->on_taken_back(request);
          });
        });
    *stranger = strangers_.Add(stream->peer(), [this, ended = stream.get()] {
      refusals_.Log(ended->peer(),
                    fmt::format("over {} peers have asked for nothing yet", strangers_.most()));
      const auto closed = servers_.extract(ended);
      closed.mapped()->CloseNow();
    });
    stream->set_known([this, stranger] { strangers_.Remove(*stranger); });
    stream->set_refused([this, asks = stream.get()](const absl::Status& why) {
      refusals_.Log(asks->peer(), Text(why));
    });
    servers_[stream.get()] = stream;
    stream->Start();
  }

  void Asked(std::shared_ptr<ServerStream> stream, uint64_t id, PullRequest request);

  // Declared first, so destroyed last: after the sockets that use it.
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  const std::shared_ptr<LoopSide> loop_side_;
  const Incarnation incarnation_;
  const PortKey key_;
  Handshakes handshakes_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer again_{io_};
  std::map<ServerStream*, std::shared_ptr<ServerStream>> servers_;
  Strangers strangers_;  // those of servers_ that have asked for nothing
  Refusals refusals_;
  const std::shared_ptr<std::atomic<uint64_t>> served_ = std::make_shared<std::atomic<uint64_t>>(0);
  const std::shared_ptr<BlockPool> blocks_;
  const std::shared_ptr<PulledCounters> pulled_ = std::make_shared<PulledCounters>();
  const std::shared_ptr<PeerStreams> streams_;
};

// The right to answer one request. Answers UNAVAILABLE if it is dropped. Thread-safe.
class AnswerOnce {
 public:
  AnswerOnce(std::weak_ptr<IoSide> io, std::weak_ptr<ServerStream> stream, uint64_t id)
      : io_(std::move(io)), stream_(std::move(stream)), id_(id) {}
  AnswerOnce(AnswerOnce&&) = default;
  AnswerOnce& operator=(AnswerOnce&&) = delete;
  ~AnswerOnce() { (*this)(absl::UnavailableError("the source dropped the request")); }

  void operator()(absl::StatusOr<DataView> answer) {
    const auto io = std::exchange(io_, {}).lock();
    if (io == nullptr) return;
    io->Post([stream = std::move(stream_), id = id_, answer = std::move(answer)]() mutable {
      if (auto alive = stream.lock()) alive->Answer(id, std::move(answer));
    });
  }

 private:
  std::weak_ptr<IoSide> io_;
  std::weak_ptr<ServerStream> stream_;
  uint64_t id_;
};

void IoSide::Asked(std::shared_ptr<ServerStream> stream, uint64_t id, PullRequest request) {
  if (request.round != 0) {
    AnswerOnce answer(weak_from_this(), std::move(stream), id);
    if (loop_side_->on_round) loop_side_->on_round(request, std::move(answer));
    return;
  }
  loop_side_->loop.Post(
      "pull request",
      [side = loop_side_, request, answer = AnswerOnce(weak_from_this(), stream, id)]() mutable {
        if (!side->closed) side->on_pull(request, std::move(answer));
      });
}

// The data plane over TCP: the loop's side. IoSide has the connections.
class TcpDataPlane final : public DataPlane {
 public:
  // `in_loop`: small answers are read in the loop.
  TcpDataPlane(std::shared_ptr<LoopSide> loop_side, std::shared_ptr<IoSide> io,
               Incarnation incarnation, std::string endpoint, bool in_loop)
      : loop_side_(std::move(loop_side)),
        io_(std::move(io)),
        incarnation_(incarnation),
        endpoint_(std::move(endpoint)) {
    if (in_loop)
      in_loop_ = std::make_shared<PeerStreams>(loop_side_->loop.io_context(), incarnation, TlsUse(),
                                               io_->blocks(), io_->pulled());
    thread_ = std::thread([io = io_.get()] {
      pthread_setname_np(pthread_self(), "fairway-data");
      io->Run();
    });
  }
  ~TcpDataPlane() override {
    loop_side_->closed = true;
    if (in_loop_ != nullptr) in_loop_->CloseNow();
    io_->Stop();
    thread_.join();
  }

  std::string endpoint() const override { return endpoint_; }

  void Pull(const std::string& endpoint, Incarnation incarnation, PullRequest request,
            int64_t bytes, PullDone done) override {
    PendingPull pull;
    request.from = incarnation_;
    pull.request = {request, incarnation, bytes};
    if (request.round != 0) {
      pull.done = std::move(done);
      return Post(endpoint, std::move(pull));
    }
    pull.done = [side = loop_side_,
                 done = std::move(done)](absl::StatusOr<std::shared_ptr<Blob>> blob) mutable {
      EventLoop& loop = side->loop;
      loop.Post("pull done",
                [side = std::move(side), done = std::move(done), blob = std::move(blob)]() mutable {
                  if (!side->closed) done(std::move(blob));
                });
    };
    if (in_loop_ == nullptr || bytes > kMostInLoop) return Post(endpoint, std::move(pull));
    InLoop("pull", [endpoint, pull = std::move(pull)](PeerStreams& streams) mutable {
      streams.Pull(endpoint, std::move(pull));
    });
  }

  void TakeBack(const std::string& endpoint, TransferId transfer) override {
    io_->Post([io = io_.get(), endpoint, transfer] { io->streams().TakeBack(endpoint, transfer); });
    if (in_loop_ == nullptr) return;
    InLoop("take back",
           [endpoint, transfer](PeerStreams& streams) { streams.TakeBack(endpoint, transfer); });
  }

  void Push(const std::string& endpoint, Incarnation incarnation, const Ticket& ticket,
            PushName name, std::string_view bytes, std::shared_ptr<void> pending) override {
    name.from = incarnation_;
    data::PendingPush push{data::Encode(data::WirePush{name, incarnation, ticket}, bytes),
                           std::move(pending)};
    io_->Post([io = io_.get(), endpoint, push = std::move(push)]() mutable {
      io->streams().Push(endpoint, std::move(push));
    });
  }
  void RetryPushes() override {
    io_->Post([io = io_.get()] { io->RetryPushes(); });
  }

  std::vector<std::pair<std::string, uint64_t>> PulledBytes() const override {
    return io_->pulled()->All();
  }
  uint64_t ServedBytes() const override { return io_->ServedBytes(); }

 private:
  void Post(const std::string& endpoint, PendingPull pull) {
    io_->Post([io = io_.get(), endpoint, pull = std::move(pull)]() mutable {
      io->streams().Pull(endpoint, std::move(pull));
    });
  }
  template <typename F>
  void InLoop(std::string_view name, F f) {
    loop_side_->loop.Post(name,
                          [side = loop_side_, streams = in_loop_, f = std::move(f)]() mutable {
                            if (!side->closed) f(*streams);
                          });
  }

  const std::shared_ptr<LoopSide> loop_side_;
  const std::shared_ptr<IoSide> io_;
  const Incarnation incarnation_;
  const std::string endpoint_;
  std::shared_ptr<PeerStreams> in_loop_;  // belongs to the loop
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataPlane>> MakeTcpDataPlane(
    EventLoop& loop, const std::string& bind_host_port, const std::string& advertise_host,
    Incarnation incarnation, const PortKey& key,
    std::function<void(PullRequest request, DataPlane::Answer answer)> on_pull, Spool spool,
    std::function<void(PullRequest request, DataPlane::Answer answer)> on_round, OnPush on_push,
    std::function<void(PullRequest request)> on_taken_back, const TlsUse& tls) {
  auto loop_side =
      std::make_shared<LoopSide>(LoopSide{loop, std::move(on_pull), false, std::move(on_round),
                                          std::move(on_push), std::move(on_taken_back)});
  auto io = std::make_shared<IoSide>(loop_side, incarnation, key, std::move(spool), tls);
  FAIRWAY_ASSIGN_OR_RETURN(auto acceptor, Listen(io->io(), bind_host_port, tls));
  error_code error;
  const int port = acceptor.local_endpoint(error).port();
  io->set_acceptor(std::move(acceptor));
  io->Accept();
  return std::make_unique<TcpDataPlane>(std::move(loop_side), std::move(io), incarnation,
                                        advertise_host.starts_with('[')
                                            ? fmt::format("{}:{}", advertise_host, port)
                                            : HostPort(advertise_host, port),
                                        tls.identity == nullptr);
}

}  // namespace fairway
