// SPDX-License-Identifier: Apache-2.0
#include "transport/channel.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <spdlog/spdlog.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>

#include "identity/plain_text.h"
#include "transport/connect.h"
#include "transport/lent_handshake.h"
#include "transport/sockets.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

using boost::system::error_code;

// What a stream takes from its socket at a time. Those of strangers have short requests.
constexpr size_t kTaken = 64 << 10, kTakenOfAnybody = 16 << 10;
constexpr char kSilent[] = "silent";  // kClosedInHandshake of an end that had said nothing

// One handshake. Its handlers keep it alive.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Channel>)>;
  Handshake(StreamSocket socket, const TlsUse& use, TlsSide side, Done done)
      : use_(use),
        stream_(std::make_shared<TlsStream>(std::move(socket), use.identity->Context().get(), side,
                                            use.anybody ? kTakenOfAnybody : kTaken)),
        done_(std::move(done)) {
    if (!use.anybody) return;
    SSL_set_verify(stream_->native_handle(), SSL_VERIFY_NONE, nullptr);
    SSL_set_min_proto_version(stream_->native_handle(), TLS1_2_VERSION);
  }

  // On the loop of the socket, or on another one.
  void Start(boost::asio::io_context& thread, std::chrono::milliseconds timeout) {
    error_code error;
    const int fd = stream_->socket().release(error);
    const auto loop = stream_->socket().get_executor();
    if (error) {
      return boost::asio::post(loop,
                               [self = shared_from_this(), error] { self->Fail(error.message()); });
    }
    const auto lent = std::make_shared<LentHandshake>(
        thread, stream_, fd,
        // The loop waits for it.
        [self = shared_from_this(), timeout,
         work = boost::asio::make_work_guard(loop)](LentHandshake::Outcome outcome) mutable {
          boost::asio::post(work.get_executor(), [self = std::move(self), timeout, outcome] {
            self->Returned(outcome, timeout);
          });
        });
    lent_ = lent;
    lent->Start(timeout);
  }
  void Start(std::chrono::milliseconds timeout) {
    auto& loop =
        boost::asio::query(stream_->socket().get_executor(), boost::asio::execution::context);
    Start(static_cast<boost::asio::io_context&>(loop), timeout);
  }

  // Ends it without a word.
  void Drop() {
    done_ = nullptr;
    if (const auto lent = lent_.lock(); lent != nullptr) return lent->Drop();
    error_code ignored;
    stream_->socket().close(ignored);
  }

 private:
  // The socket is this loop's again.
  void Returned(const LentHandshake::Outcome& outcome, std::chrono::milliseconds timeout) {
    int family = AF_UNIX;
    socklen_t size = sizeof family;
    ::getsockopt(outcome.fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
    error_code error;
    stream_->socket().assign(boost::asio::generic::stream_protocol(family, 0), outcome.fd, error);
    if (error) ::close(outcome.fd);
    if (outcome.error == boost::asio::error::timed_out)
      return Fail(fmt::format("no TLS handshake within {} ms", timeout.count()));
    Shaken(outcome.error ? outcome.error : error);
  }

  void Shaken(const error_code& error) {
    if (done_ == nullptr) return;
    if (error) {
      return Fail(HandshakeFault(stream_->native_handle(), TextOf(error)),
                  absl::StatusCode::kUnavailable, IsClosing(error), HeardNothing());
    }
    if (use_.anybody) return std::exchange(done_, nullptr)(Channel(std::move(stream_), {}));
    auto peer = PeerOf(stream_->native_handle());
    if (!peer.ok()) return Fail(fmt::format("the peer's certificate: {}", Text(peer.status())));
    if (use_.peer && peer->role != *use_.peer) {
      return Fail(fmt::format("it is the {}, and a {} was expected", Described(*peer),
                              *use_.peer == Role::kController ? "controller" : "worker"),
                  absl::StatusCode::kPermissionDenied);
    }
    Revocations& revocations = use_.identity->revocations();
    const CertificateHash hash = HashOfPeer(stream_->native_handle());
    const int fd = stream_->socket().native_handle();
    // It stands before it is checked: so a revocation meanwhile is missed by neither.
    auto stands =
        revocations.Stand(*peer, hash, [fd, cookie = CookieOf(fd)] { EndSocket(fd, cookie); });
    const absl::Status counts = revocations.Check(*peer, hash);
    if (!counts.ok()) return Fail(Text(counts), counts.code());
    std::exchange(done_, nullptr)(Channel(std::move(stream_), *std::move(peer), std::move(stands)));
  }

  bool HeardNothing() const { return BIO_number_read(SSL_get_rbio(stream_->native_handle())) == 0; }

  static std::string TextOf(const error_code& error) {
    if (IsClosing(error))
      return "the other end closed the connection during the TLS handshake: it speaks no TLS, or "
             "does not believe this one (its log says why)";
    return error.message();
  }

  void Fail(const std::string& why, absl::StatusCode code = absl::StatusCode::kUnavailable,
            bool closed = false, bool silent = false) {
    if (done_ == nullptr) return;
    Done done = std::exchange(done_, nullptr);
    error_code ignored;
    stream_->socket().close(ignored);
    absl::Status status = Error(code, "{}", why);
    if (closed) status.SetPayload(kClosedInHandshake, absl::Cord(silent ? kSilent : ""));
    done(std::move(status));
  }

  const TlsUse use_;
  std::shared_ptr<TlsStream> stream_;
  std::weak_ptr<LentHandshake> lent_;  // while `stream_` is lent; it has this
  Done done_;
};

// Somebody looked whether the port is open, as kubelets do every few seconds: no word for the log.
bool IsLook(const absl::Status& status) {
  return status.GetPayload(kClosedInHandshake) == absl::Cord(kSilent);
}

}  // namespace

bool IsClosing(const error_code& error) {
  return error == boost::asio::error::eof || error == boost::asio::error::connection_reset ||
         error == boost::asio::error::broken_pipe ||
         error == boost::asio::ssl::error::stream_truncated;
}

// Those of one port. Shared with the handlers of its handshakes.
struct Handshakes::State {
  State(TlsUse how, Clock when) : use(std::move(how)), clock(std::move(when)) {}

  const TlsUse use;
  const Clock clock;
  ProvenNetworks proven;
  Strangers strangers{Strangers::Most(), &proven};
  Refusals refusals;
  Pace pace{&proven};
  HandshakeThread thread;
  bool closed = false;  // those under way end without a word
};

Handshakes::Handshakes(TlsUse use, Clock clock)
    : state_(std::make_shared<State>(std::move(use), std::move(clock))) {}

Handshakes::~Handshakes() {
  state_->closed = true;
  state_->strangers.EndAll();
  state_->thread.Stop();
}

size_t Handshakes::under_way() const { return state_->strangers.size(); }

void Handshakes::Start(StreamSocket socket, absl::AnyInvocable<void(Channel)> done) {
  const std::string peer = PeerName(socket);
  if (state_->use.identity == nullptr) {
    const absl::Status user =
        state_->use.anybody ? absl::OkStatus() : CheckPlainPeer(socket.native_handle());
    if (!user.ok()) return state_->refusals.Log(peer, Text(user));
    return done(Channel(std::move(socket)));
  }
  if (!state_->pace.Take(peer, state_->clock())) {
    return state_->refusals.Log(
        peer, fmt::format("its network begins over {} handshakes a second", Pace::kASecond));
  }
  const auto number = std::make_shared<uint64_t>(0);
  const auto handshake =
      std::make_shared<Handshake>(std::move(socket), state_->use, TlsSide::kServer,
                                  [state = state_, peer, number, done = std::move(done)](
                                      absl::StatusOr<Channel> channel) mutable {
                                    state->strangers.Remove(*number);
                                    if (channel.ok()) {
                                      const bool known = channel->peer().has_value();
                                      if (known) state->proven.Add(peer);
                                      if (known) state->pace.GiveBack(peer, state->clock());
                                      return done(*std::move(channel));
                                    }
                                    if (IsLook(channel.status())) return;
                                    state->refusals.Log(peer, Text(channel.status()));
                                  });
  *number = state_->strangers.Add(
      peer, [state = state_.get(), peer, weak = std::weak_ptr<Handshake>(handshake)] {
        if (const auto late = weak.lock(); late != nullptr) late->Drop();
        if (state->closed) return;
        state->refusals.Log(
            peer, fmt::format("over {} handshakes are under way", state->strangers.most()));
      });
  handshake->Start(state_->thread.io(), kTimeout);
}

void Secure(StreamSocket socket, const TlsUse& use, TlsSide side, std::chrono::milliseconds timeout,
            absl::AnyInvocable<void(absl::StatusOr<Channel>)> done) {
  std::make_shared<Handshake>(std::move(socket), use, side, std::move(done))->Start(timeout);
}

}  // namespace fairway
