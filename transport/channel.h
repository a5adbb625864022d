// SPDX-License-Identifier: Apache-2.0
// A connected stream socket, with TLS or without. Only .cc files and headers of this folder include
// it, because it includes Asio.
#ifndef FAIRWAY_TRANSPORT_CHANNEL_H_
#define FAIRWAY_TRANSPORT_CHANNEL_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/functional/any_invocable.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>

#include "base/status.h"
#include "transport/tls.h"
#include "transport/tls_stream.h"

namespace fairway {

using StreamSocket = boost::asio::generic::stream_protocol::socket;

// Lives on the thread of its io_context. At most one read and one write are under way at a time;
// whoever starts one keeps this object alive until its handler has run.
class Channel {
 public:
  // Without TLS.
  Channel(StreamSocket socket) : plain_(std::move(socket)) {}  // NOLINT: is one
  // `tls` has shaken hands with `peer`; nullopt: with anybody. `stands`: what Revocations::Stand
  // has returned for it.
  Channel(std::shared_ptr<TlsStream> tls, std::optional<Subject> peer,
          std::shared_ptr<void> stands = nullptr)
      : tls_(std::move(tls)),
        peer_(std::move(peer)),
        certificate_(peer_ ? HashOfPeer(tls_->native_handle()) : CertificateHash{}),
        stands_(std::move(stands)) {}

  template <typename Buffer, typename Handler>
  void ReadSome(const Buffer& buffer, Handler handler) {
    if (tls_ != nullptr) return tls_->ReadSome(FirstOf(buffer), std::move(handler));
    plain_->async_read_some(buffer, std::move(handler));
  }
  // Writes all of it.
  template <typename Buffers, typename Handler>
  void Write(const Buffers& buffers, Handler handler) {
    if (tls_ != nullptr) return tls_->Write(buffers, std::move(handler));
    // Without this Asio would give the kernel 64 KiB at a time.
    const auto most = [](const boost::system::error_code& error, size_t) {
      return error ? 0 : kMostAtOnce;
    };
    boost::asio::async_write(*plain_, buffers, most, std::move(handler));
  }
  // Writes some of it.
  template <typename Buffers, typename Handler>
  void WriteSome(const Buffers& buffers, Handler handler) {
    if (tls_ != nullptr) return tls_->Write(buffers, std::move(handler));
    plain_->async_write_some(buffers, std::move(handler));
  }
  // Tells the peer that nothing more comes; what it still sends can be read. No write is under way,
  // and none comes after it. `handler` runs when it is told, perhaps inside this call.
  template <typename Handler>
  void EndWriting(Handler handler) {
    if (tls_ == nullptr) return handler();
    tls_->EndWriting([handler = std::move(handler)](const boost::system::error_code&,
                                                    size_t) mutable { handler(); });
  }

  StreamSocket& socket() { return tls_ != nullptr ? tls_->socket() : *plain_; }
  bool secure() const { return tls_ != nullptr; }
  // Which daemon the peer is; nullopt: nobody knows, since it was not asked for a certificate.
  const std::optional<Subject>& peer() const { return peer_; }
  // That it has shown, if the peer is known.
  const CertificateHash& certificate() const { return certificate_; }

 private:
  static constexpr size_t kMostAtOnce = 1 << 20;

  template <typename Buffers>
  static boost::asio::mutable_buffer FirstOf(const Buffers& buffers) {
    auto part = boost::asio::buffer_sequence_begin(buffers);
    const auto end = boost::asio::buffer_sequence_end(buffers);
    while (part != end && boost::asio::mutable_buffer(*part).size() == 0) ++part;
    return part == end ? boost::asio::mutable_buffer() : boost::asio::mutable_buffer(*part);
  }

  std::shared_ptr<TlsStream> tls_;     // or
  std::optional<StreamSocket> plain_;  // this
  std::optional<Subject> peer_;
  CertificateHash certificate_{};
  std::shared_ptr<void>
      stands_;  // while it lives, the connection ends if `certificate_` is revoked
};

using TlsSide = TlsStream::Side;

// Whether the other end has closed the connection, with a word or without.
bool IsClosing(const boost::system::error_code& error);

// A payload of Secure's errors: the other end has closed the connection. It may have no room now.
inline constexpr char kClosedInHandshake[] = "fairway/closed-in-handshake";

// Shakes hands on a connected socket; `use` has an identity. `done` runs once, on the socket's
// executor, never inside this call. UNAVAILABLE: it has not ended within `timeout`, a side does not
// believe the other, or the other end closed the connection (kClosedInHandshake);
// PERMISSION_DENIED: the peer is somebody else than `use` wants. The text says what is wrong with
// whose certificate.
void Secure(StreamSocket socket, const TlsUse& use, TlsSide side, std::chrono::milliseconds timeout,
            absl::AnyInvocable<void(absl::StatusOr<Channel>)> done);

// The handshakes of one port that are under way, as many as Strangers says. Lives on one thread.
class Handshakes {
 public:
  static constexpr std::chrono::seconds kTimeout{5};

  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  // `clock`: by which their pace counts.
  explicit Handshakes(TlsUse use, Clock clock = std::chrono::steady_clock::now);
  ~Handshakes();  // ends those under way

  // `done` runs once the peer is known, and never if it is not: then the log says why, a line a
  // second at most. Without TLS it runs inside this call, if the peer is of this user
  // (CheckPlainPeer).
  void Start(StreamSocket socket, absl::AnyInvocable<void(Channel)> done);
  size_t under_way() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_CHANNEL_H_
