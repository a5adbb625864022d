// SPDX-License-Identifier: Apache-2.0
#include "transport/channel.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <map>

#include <spdlog/spdlog.h>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/steady_timer.hpp>

#include "transport/connect.h"

namespace fairway {
namespace {

using boost::system::error_code;

// One handshake. Its handlers keep it alive.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Channel>)>;
  Handshake(StreamSocket socket, const std::shared_ptr<ssl_ctx_st>& context,
            std::optional<Role> peer, Done done)
      : timer_(socket.get_executor()), wanted_(peer), done_(std::move(done)) {
    SSL_CTX_up_ref(context.get());
    boost::asio::ssl::context owned(context.get());
    stream_ = std::make_unique<TlsStream>(std::move(socket), owned);
  }

  void Start(TlsSide side, std::chrono::milliseconds timeout) {
    timer_.expires_after(timeout);
    timer_.async_wait([self = shared_from_this(), timeout](const error_code& error) {
      if (!error) self->Fail(fmt::format("no TLS handshake within {} ms", timeout.count()));
    });
    stream_->async_handshake(side == TlsSide::kClient ? TlsStream::client : TlsStream::server,
                             [self = shared_from_this()](const error_code& error) {
                               self->timer_.cancel();
                               self->Shaken(error);
                             });
  }

  // Ends it without a word.
  void Drop() {
    done_ = nullptr;
    timer_.cancel();
    error_code ignored;
    stream_->next_layer().close(ignored);
  }

 private:
  void Shaken(const error_code& error) {
    if (done_ == nullptr) return;
    if (error) return Fail(HandshakeFault(stream_->native_handle(), TextOf(error)));
    auto peer = PeerOf(stream_->native_handle());
    if (!peer.ok()) return Fail(fmt::format("the peer's certificate: {}", Text(peer.status())));
    if (wanted_ && peer->role != *wanted_) {
      return Fail(fmt::format("it is the {}, and a {} was expected", Described(*peer),
                              *wanted_ == Role::kController ? "controller" : "worker"),
                  absl::StatusCode::kPermissionDenied);
    }
    std::exchange(done_, nullptr)(Channel(std::move(stream_), *std::move(peer)));
  }

  static std::string TextOf(const error_code& error) {
    if (error == boost::asio::error::eof || error == boost::asio::ssl::error::stream_truncated)
      return "the other end closed the connection during the TLS handshake: it speaks no TLS, or "
             "does not believe this one (its log says why)";
    return error.message();
  }

  void Fail(const std::string& why, absl::StatusCode code = absl::StatusCode::kUnavailable) {
    if (done_ == nullptr) return;
    Done done = std::exchange(done_, nullptr);
    error_code ignored;
    stream_->next_layer().close(ignored);
    done(Error(code, "{}", why));
  }

  boost::asio::steady_timer timer_;
  const std::optional<Role> wanted_;
  std::unique_ptr<TlsStream> stream_;
  Done done_;
};

}  // namespace

// Those of one port. Shared with the handlers of its handshakes.
struct Handshakes::State {
  struct UnderWay {
    std::string address;
    std::weak_ptr<Handshake> handshake;
  };

  explicit State(TlsUse how) : use(std::move(how)) {}

  // Ends the oldest of the address that has most.
  void EndOne() {
    std::map<std::string, size_t> counts;
    for (const auto& [_, one] : under_way) ++counts[one.address];
    const auto most =
        std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    const auto oldest = std::ranges::find_if(
        under_way, [&](const auto& entry) { return entry.second.address == most->first; });
    const auto handshake = oldest->second.handshake.lock();
    const std::string address = oldest->second.address;
    under_way.erase(oldest);
    if (handshake != nullptr) handshake->Drop();
    Refused(address, fmt::format("over {} handshakes are under way", kMost));
  }

  void Refused(const std::string& peer, const std::string& why) {
    const auto now = std::chrono::steady_clock::now();
    if (now - said < std::chrono::seconds(1)) {
      ++unsaid;
      return;
    }
    said = now;
    const size_t others = std::exchange(unsaid, 0);
    spdlog::warn("a connection of {} is refused: {}{}", peer, why,
                 others == 0 ? "" : fmt::format(" ({} more were since the last line)", others));
  }

  const TlsUse use;
  uint64_t next = 0;
  std::map<uint64_t, UnderWay> under_way;  // by age
  std::chrono::steady_clock::time_point said;
  size_t unsaid = 0;
};

Handshakes::Handshakes(TlsUse use) : state_(std::make_shared<State>(std::move(use))) {}

Handshakes::~Handshakes() {
  for (const auto& [_, one] : std::exchange(state_->under_way, {})) {
    if (const auto handshake = one.handshake.lock()) handshake->Drop();
  }
}

size_t Handshakes::under_way() const { return state_->under_way.size(); }

void Handshakes::Start(StreamSocket socket, absl::AnyInvocable<void(Channel)> done) {
  if (state_->use.identity == nullptr) return done(Channel(std::move(socket)));
  if (state_->under_way.size() >= kMost) state_->EndOne();
  const std::string peer = PeerName(socket);
  const uint64_t number = state_->next++;
  const auto handshake = std::make_shared<Handshake>(
      std::move(socket), state_->use.identity->Context(), state_->use.peer,
      [state = state_, peer, number,
       done = std::move(done)](absl::StatusOr<Channel> channel) mutable {
        state->under_way.erase(number);
        if (channel.ok()) return done(*std::move(channel));
        state->Refused(peer, Text(channel.status()));
      });
  state_->under_way[number] = {peer.substr(0, peer.rfind(':')), handshake};
  handshake->Start(TlsSide::kServer, kTimeout);
}

void Secure(StreamSocket socket, const TlsUse& use, TlsSide side, std::chrono::milliseconds timeout,
            absl::AnyInvocable<void(absl::StatusOr<Channel>)> done) {
  std::make_shared<Handshake>(std::move(socket), use.identity->Context(), use.peer, std::move(done))
      ->Start(side, timeout);
}

}  // namespace fairway
