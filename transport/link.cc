// SPDX-License-Identifier: Apache-2.0
#include "transport/link.h"

#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <utility>

#include <spdlog/spdlog.h>

#include "async/timed.h"
#include "base/crc32c.h"
#include "transport/frame_stream.h"

namespace fairway {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// Runs a callback that may destroy or replace itself: moves it out for the call.
template <typename F, typename... Args>
void CallMovedOut(const std::weak_ptr<void>& owner_alive, F& slot, Args&&... args) {
  F f = std::move(slot);
  slot = nullptr;
  if (f) f(std::forward<Args>(args)...);
  if (!owner_alive.expired() && !slot) slot = std::move(f);
}

// The stream of one link. It outlives the link while reads and writes are pending.
class LinkStream final : public FrameStream {
 public:
  LinkStream(EventLoop& loop, Channel channel) : FrameStream(std::move(channel)), loop_(loop) {}

  void set_owner(Link* owner, std::weak_ptr<void> alive) {
    owner_ = owner;
    alive_ = std::move(alive);
  }
  void Detach() {
    owner_ = nullptr;
    CloseNow();
  }
  void Send(Frame frame) {
    FAIRWAY_ASSERT_IN_LOOP(loop_);
    if (closed() || ending_) return;
    queued_ += kFrameHeaderBytes + frame.bytes();
    out_.push_back(std::move(frame));
    Kick();
  }
  void End() {
    ending_ = true;
    FinishAndClose();
  }
  size_t queued() const { return queued_ + batch_bytes(); }
  void set_max_payload(size_t bytes) { max_payload_ = bytes; }

 protected:
  bool NextFrame(OutFrame& out) override {
    if (out_.empty()) return false;
    Frame& frame = out_.front();
    queued_ -= kFrameHeaderBytes + frame.bytes();
    out.header = {.type = frame.type, .flags = frame.flags, .id = frame.id, .offset = frame.offset};
    out.crc = frame.crc;
    if (SharedTail& tail = frame.tail; tail.size() > 0) {
      out.crc = std::nullopt;
      if (tail.crc) out.crc = CombineCrc32c(Crc32c(frame.payload), *tail.crc, tail.size());
      out.view = *tail.bytes;
      out.owner = std::move(tail.bytes);
    }
    out.own = std::move(frame.payload);
    out_.pop_front();
    return true;
  }

  size_t MaxPayload(uint8_t) const override { return max_payload_; }

  std::span<char> Destination(const FrameHeader& header, size_t done) override {
    // Grows as bytes arrive: the length in a header alone must cost no memory. Once many have
    // arrived, the rest gets addresses at once, and memory a piece at a time: growing further would
    // copy and clear hundreds of MiB in one go.
    if (done >= payload_.size()) {
      const size_t size = payload_.size();
      if (size >= kManyBytes) payload_.reserve(header.length);
      const size_t more = size >= kManyBytes ? kFirstPiece : std::max(kFirstPiece, size);
      payload_.resize(std::min<size_t>(header.length, size + more));
    }
    return {payload_.data() + done, payload_.size() - done};
  }

  void OnFrame(const FrameHeader& header) override {
    Frame frame{header.type, header.flags, header.id, header.offset, std::move(payload_)};
    payload_.clear();
    if (owner_ == nullptr || ending_) return;
    RunTimed("link frame", [&] { CallMovedOut(alive_, owner_->on_frame, std::move(frame)); });
  }

  void OnStreamClosed(absl::Status status) override {
    out_.clear();
    queued_ = 0;
    if (owner_ == nullptr) return;
    RunTimed("link closed", [&] { CallMovedOut(alive_, owner_->on_closed, std::move(status)); });
  }

 private:
  static constexpr size_t kFirstPiece = 1 << 20;
  static constexpr size_t kManyBytes = 8 << 20;

  EventLoop& loop_;
  Link* owner_ = nullptr;
  std::weak_ptr<void> alive_;
  bool ending_ = false;
  std::deque<Frame> out_;
  size_t queued_ = 0;
  size_t max_payload_ = kMaxFrameBytes;
  std::string payload_;
};

// A link over a socket.
class SocketLink final : public Link {
 public:
  SocketLink(EventLoop& loop, Channel channel)
      : stream_(std::make_shared<LinkStream>(loop, std::move(channel))) {
    stream_->set_owner(this, alive_);
    stream_->Start();
  }
  ~SocketLink() override { stream_->Detach(); }
  void Send(Frame frame) override { stream_->Send(std::move(frame)); }
  size_t queued_bytes() const override { return stream_->queued(); }
  void Close() override { stream_->End(); }
  std::string peer() const override { return stream_->peer(); }
  std::optional<Subject> subject() const override { return stream_->subject(); }
  CertificateHash certificate() const override { return stream_->certificate(); }
  void WatchHost() override { stream_->WatchHost(kHostSilence); }
  void LimitFrames(size_t bytes) override { stream_->set_max_payload(bytes); }

 private:
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::shared_ptr<LinkStream> stream_;
};

// Accepts until closed. Its pending accept keeps it alive.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(EventLoop& loop, tcp::acceptor acceptor,
           std::function<void(std::unique_ptr<Link>)> on_accept, const TlsUse& tls)
      : loop_(loop),
        acceptor_(std::move(acceptor)),
        on_accept_(std::move(on_accept)),
        handshakes_(std::in_place, tls) {
    error_code ignored;
    port_ = acceptor_.local_endpoint(ignored).port();
  }
  void Start() {
    acceptor_.async_accept([self = shared_from_this()](const error_code& error,
                                                       tcp::socket socket) {
      if (self->on_accept_ == nullptr || !self->acceptor_.is_open()) return;
      if (!error) {
        self->handshakes_->Start(
            Neutral(std::move(socket)), [weak = self->weak_from_this()](Channel channel) {
              const auto self = weak.lock();
              if (self == nullptr || !self->acceptor_.is_open()) return;
              RunTimed("link accept", [&] {
                self->on_accept_(std::make_unique<SocketLink>(self->loop_, std::move(channel)));
              });
            });
      }
      if (error && error != boost::asio::error::connection_aborted) {
        // Probably out of descriptors: other connections must close first.
        if (!std::exchange(self->resting_, true)) {
          spdlog::error(
              "port {} cannot accept a connection: {}; it keeps trying. If others do not close, "
              "raise "
              "this process's limit of open files (ulimit -n)",
              self->port_, error.message());
        }
        return self->loop_.PostAfter(std::chrono::milliseconds(100), "link accept again", [self] {
          if (self->acceptor_.is_open()) self->Start();
        });
      }
      self->resting_ = false;
      if (self->acceptor_.is_open()) self->Start();
    });
  }
  void Close() {
    error_code ignored;
    acceptor_.close(ignored);
    handshakes_.reset();
  }
  int port() const { return port_; }

 private:
  EventLoop& loop_;
  tcp::acceptor acceptor_;
  const std::function<void(std::unique_ptr<Link>)> on_accept_;
  std::optional<Handshakes> handshakes_;  // until closed
  int port_ = 0;
  bool resting_ = false;  // the log says that connections cannot be accepted
};

// A listening TCP port.
class TcpServer final : public LinkServer {
 public:
  explicit TcpServer(std::shared_ptr<Acceptor> acceptor) : acceptor_(std::move(acceptor)) {}
  ~TcpServer() override { acceptor_->Close(); }
  int port() const override { return acceptor_->port(); }

 private:
  const std::shared_ptr<Acceptor> acceptor_;
};

}  // namespace

void ConnectTcp(EventLoop& loop, const std::string& host_port, std::chrono::milliseconds timeout,
                absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<Link>>)> done,
                const TlsUse& tls) {
  ConnectSocket(
      loop.io_context(), host_port, timeout, tls,
      [&loop, done = std::move(done)](absl::StatusOr<Channel> channel) mutable {
        if (!channel.ok()) return done(channel.status());
        RunTimed("link connected", [&] {
          done(std::unique_ptr<Link>(std::make_unique<SocketLink>(loop, *std::move(channel))));
        });
      });
}

absl::StatusOr<std::unique_ptr<LinkServer>> ListenTcp(
    EventLoop& loop, const std::string& host_port,
    std::function<void(std::unique_ptr<Link>)> on_accept, const TlsUse& tls) {
  FAIRWAY_ASSIGN_OR_RETURN(auto socket, Listen(loop.io_context(), host_port, tls));
  auto acceptor = std::make_shared<Acceptor>(loop, std::move(socket), std::move(on_accept), tls);
  acceptor->Start();
  return std::make_unique<TcpServer>(std::move(acceptor));
}

std::unique_ptr<Link> AdoptSocket(EventLoop& loop, int fd) {
  int family = AF_UNIX;
  socklen_t size = sizeof family;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
  StreamSocket socket(loop.io_context());
  error_code ignored;  // a bad descriptor fails at the first read; then on_closed comes
  socket.assign(boost::asio::generic::stream_protocol(family, 0), fd, ignored);
  return std::make_unique<SocketLink>(loop, std::move(socket));
}

}  // namespace fairway
