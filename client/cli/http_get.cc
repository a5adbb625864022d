// SPDX-License-Identifier: Apache-2.0
#include "client/cli/http_get.h"

#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/host.h"
#include "identity/tls_identity.h"

namespace fairway {
namespace {

namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr uint64_t kLongestAnswer = uint64_t{16} << 20;

absl::Status Unavailable(std::string_view what, const error_code& error) {
  return Error(absl::StatusCode::kUnavailable, "{}: {}", what, error.message());
}

template <typename Stream>
absl::StatusOr<std::string> Ask(Stream& stream, const HttpPlace& place, const std::string& path) {
  http::request<http::empty_body> request(http::verb::get, path, 11);
  request.set(http::field::host, HostPort(place.host, place.port));
  request.set(http::field::connection, "close");
  if (!place.token.empty()) request.set(http::field::authorization, "Bearer " + place.token);
  error_code error;
  http::write(stream, request, error);
  if (error) return Unavailable("asking for " + path, error);
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kLongestAnswer);
  http::read(stream, buffer, parser, error);
  if (error) return Unavailable("reading the answer to " + path, error);
  std::string& body = parser.get().body();
  if (parser.get().result() == http::status::ok) return std::move(body);
  return Error(absl::StatusCode::kUnavailable, "HTTP {}: {}", parser.get().result_int(),
               body.substr(0, body.find('\n')));
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const HttpPlace& place, const std::string& path) {
  const std::string where = fmt::format("connecting to {}", HostPort(place.host, place.port));
  boost::asio::io_context io;
  tcp::socket socket(io);
  error_code error;
  const auto found = tcp::resolver(io).resolve(place.host, std::to_string(place.port), error);
  if (!error) boost::asio::connect(socket, found, error);
  if (error) return Unavailable(where, error);
  if (place.authorities.empty()) return Ask(socket, place, path);
  FAIRWAY_ASSIGN_OR_RETURN(const auto believed, ClientContext(place.authorities));
  SSL_CTX_up_ref(believed.get());
  boost::asio::ssl::context context(believed.get());  // which owns that reference
  boost::asio::ssl::stream<tcp::socket&> stream(socket, context);
  stream.handshake(boost::asio::ssl::stream_base::client, error);
  if (error) return Unavailable(where, error);
  const auto peer = PeerOf(stream.native_handle());
  if (!peer.ok()) return Annotate(peer.status(), where);
  if (peer->role != Role::kController)
    return Error(absl::StatusCode::kUnavailable, "{}: it is {}", where, Described(*peer));
  return Ask(stream, place, path);
}

}  // namespace fairway
