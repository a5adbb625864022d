// SPDX-License-Identifier: Apache-2.0
#include "identity/tls_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include <fmt/ranges.h>

#include "base/host.h"
#include "identity/openssl.h"
#include "identity/tls_identity.h"

namespace fairway {
namespace {

using Deadline = std::chrono::steady_clock::time_point;
using ConnectionPtr = std::unique_ptr<SSL, OpenSslDeleter<SSL_free>>;

// What gRPC's clients ask for.
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

// Whether it has happened by then.
bool Await(int fd, short what, Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  pollfd waited{fd, what, 0};
  return left.count() > 0 && ::poll(&waited, 1, static_cast<int>(left.count())) == 1;
}

// A socket without waiting, connected to the first address of the host that takes it; -1: none.
int Connected(const std::string& host, int port, Deadline deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return -1;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    socklen_t size = sizeof error;
    if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0 ||
        (errno == EINPROGRESS && Await(fd, POLLOUT, deadline) &&
         ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0))
      return fd;
    ::close(fd);
  }
  return -1;
}

// Sends what `from` holds. False: the peer is gone, or silent. No signal tells of it, since the
// process is anybody's.
bool Flush(BIO* from, int fd, Deadline deadline) {
  char* bytes = nullptr;
  auto left = static_cast<size_t>(BIO_get_mem_data(from, &bytes));
  while (left > 0) {
    const ssize_t sent = ::send(fd, bytes, left, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN && Await(fd, POLLOUT, deadline)) continue;
    if (sent <= 0) return false;
    bytes += sent;
    left -= static_cast<size_t>(sent);
  }
  BIO_reset(from);
  return true;
}

// Shakes hands. Returns the library's error; empty: done, or the peer was silent or has hung up.
std::string Shake(SSL* connection, int fd, Deadline deadline) {
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  BIO_set_mem_eof_return(in, -1);
  SSL_set_bio(connection, in, out);  // which owns them now
  ERR_clear_error();
  for (char bytes[4096];;) {
    const int result = SSL_connect(connection);
    const int why = result == 1 ? SSL_ERROR_NONE : SSL_get_error(connection, result);
    const std::string error = why == SSL_ERROR_SSL ? TakeOpenSslError() : "";
    if (!Flush(out, fd, deadline) || why != SSL_ERROR_WANT_READ) return error;
    if (!Await(fd, POLLIN, deadline)) return "";
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0) return "";
    BIO_write(in, bytes, static_cast<int>(got));
  }
}

absl::Status Verdict(SSL* connection, const std::string& error, bool with_authorities) {
  constexpr auto kCode = absl::StatusCode::kUnavailable;
  if (!error.empty() && with_authorities) {
    const std::string text = HandshakeFault(connection, error);
    if (!text.starts_with(kNoTls)) return Error(kCode, "{}", text);
    return Error(kCode,
                 "the server there does not speak TLS, and this client does: give the controller "
                 "its certificate (`fairway init`), or leave out --tls-ca");
  }
  if (SSL_is_init_finished(connection) == 0) return absl::OkStatus();
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(connection, &protocol, &size);
  if (size == 0) {
    return Error(kCode,
                 "the server there speaks TLS, but no gRPC: give the controller's clients' port "
                 "(its --port, 29000 by default)");
  }
  if (!with_authorities) {
    return Error(kCode,
                 "the server there speaks TLS, and this client does not: give it the cluster's CA "
                 "(--tls-ca FILE or FAIRWAY_TLS_CA; ConnectOptions::tls_ca in the SDK)");
  }
  const auto peer = PeerOf(connection);
  if (!peer.ok()) return Error(kCode, "its certificate is refused: {}", Text(peer.status()));
  if (peer->role != Role::kController)
    return Error(kCode, "the server there is {}, not the controller", Described(*peer));
  return absl::OkStatus();
}

// A connection that has ended, whose peer has shown what it has; nothing of that is believed.
// UNAVAILABLE: nobody speaks TLS there.
absl::StatusOr<ConnectionPtr> ShakeUnverified(const std::string& address,
                                              std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  FAIRWAY_ASSIGN_OR_RETURN(const auto place, SplitHostPort(address));
  FAIRWAY_ASSIGN_OR_RETURN(const auto context, ClientContext(""));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const int fd = Connected(place.first, place.second, deadline);
  if (fd < 0) return Error(absl::StatusCode::kUnavailable, "no controller answers at {}", address);
  ConnectionPtr connection(SSL_new(context.get()));
  SSL_set_alpn_protos(connection.get(), kHttp2, sizeof kHttp2);
  Shake(connection.get(), fd, deadline);
  ERR_clear_error();
  ::close(fd);
  if (SSL_is_init_finished(connection.get()) == 0)
    return Error(absl::StatusCode::kUnavailable, "the server at {} does not speak TLS", address);
  return connection;
}

}  // namespace

absl::Status ProbeController(const std::string& address, const std::string& authorities,
                             std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto place = SplitHostPort(address);
  if (!place.ok()) return absl::OkStatus();
  FAIRWAY_ASSIGN_OR_RETURN(const auto context, ClientContext(authorities));
  if (authorities.empty()) SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const int fd = Connected(place->first, place->second, deadline);
  if (fd < 0) return absl::OkStatus();
  const ConnectionPtr connection(SSL_new(context.get()));
  SSL_set_alpn_protos(connection.get(), kHttp2, sizeof kHttp2);
  const std::string error = Shake(connection.get(), fd, deadline);
  absl::Status verdict = Verdict(connection.get(), error, !authorities.empty());
  ERR_clear_error();
  ::close(fd);
  return verdict;
}

absl::StatusOr<std::string> FetchCertificate(const std::string& address,
                                             std::chrono::milliseconds timeout) {
  FAIRWAY_ASSIGN_OR_RETURN(const ConnectionPtr connection, ShakeUnverified(address, timeout));
  const BioPtr out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), SSL_get0_peer_certificate(connection.get()));
  return PemOf(out.get());
}

absl::StatusOr<std::string> FetchAuthorities(const std::string& address,
                                             const std::vector<std::string>& hashes,
                                             std::chrono::milliseconds timeout) {
  FAIRWAY_ASSIGN_OR_RETURN(const ConnectionPtr connection, ShakeUnverified(address, timeout));
  const STACK_OF(X509)* const shown = SSL_get_peer_cert_chain(connection.get());
  const BioPtr out(BIO_new(BIO_s_mem()));
  for (int i = 0; i < sk_X509_num(shown); ++i) {
    X509* const certificate = sk_X509_value(shown, i);
    if (X509_check_ca(certificate) == 1 &&
        std::ranges::find(hashes, HashText(certificate)) != hashes.end())
      PEM_write_bio_X509(out.get(), certificate);
  }
  std::string found = PemOf(out.get());
  if (!found.empty()) return found;
  return Error(absl::StatusCode::kPermissionDenied,
               "the server at {} shows no CA with the hash {}: it is of another cluster, or it is "
               "somebody who pretends to be this one",
               address, fmt::join(hashes, " or "));
}

}  // namespace fairway
