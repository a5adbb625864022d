// SPDX-License-Identifier: Apache-2.0
// Addresses and connecting, for links and the data plane. Only .cc files include it, because it
// includes Asio.
#ifndef FAIRWAY_TRANSPORT_CONNECT_H_
#define FAIRWAY_TRANSPORT_CONNECT_H_

#include <chrono>
#include <string>

#include <absl/functional/any_invocable.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/status.h"
#include "transport/channel.h"

namespace fairway {

// Connects, and shakes hands if `tls` says so; `done` runs on `io` once, never inside this call.
// UNAVAILABLE, or PERMISSION_DENIED as of Secure, names the address and the reason.
void ConnectSocket(boost::asio::io_context& io, const std::string& host_port,
                   std::chrono::milliseconds timeout, const TlsUse& tls,
                   absl::AnyInvocable<void(absl::StatusOr<Channel>)> done);

// Opens a listening socket (port 0: any free one). ALREADY_EXISTS names the port that is taken;
// INVALID_ARGUMENT and NOT_FOUND are about the address. FAILED_PRECONDITION: other hosts can reach
// it, and `tls` has no identity.
absl::StatusOr<boost::asio::ip::tcp::acceptor> Listen(boost::asio::io_context& io,
                                                      const std::string& host_port,
                                                      const TlsUse& tls);

// Turns off delays of small frames, and returns a socket of any family.
StreamSocket Neutral(boost::asio::ip::tcp::socket socket);

// "127.0.0.1:4711", or "unix".
std::string PeerName(const StreamSocket& socket);

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_CONNECT_H_
