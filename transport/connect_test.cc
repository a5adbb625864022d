// SPDX-License-Identifier: Apache-2.0
#include "transport/connect.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <optional>

#include <gtest/gtest.h>

namespace fairway {
namespace {

int Option(StreamSocket& socket, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  (void)getsockopt(socket.native_handle(), level, option, &value, &size);
  return value;
}

TEST(Connect, BothEndsFindOutThatTheOtherHostIsGone) {
  boost::asio::io_context io(1);
  auto acceptor = Listen(io, "127.0.0.1:0", {});
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  std::optional<StreamSocket> ends[2];
  acceptor->async_accept(
      [&](const boost::system::error_code& error, boost::asio::ip::tcp::socket socket) {
        if (!error) ends[0] = Neutral(std::move(socket));
      });
  ConnectSocket(io, fmt::format("127.0.0.1:{}", acceptor->local_endpoint().port()),
                std::chrono::seconds(120), TlsUse{}, [&](absl::StatusOr<Channel> channel) {
                  if (channel.ok()) ends[1] = std::move(channel->socket());
                });
  io.run();
  for (auto& end : ends) {
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(Option(*end, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(Option(*end, IPPROTO_TCP, TCP_KEEPIDLE), 10);
    // The kernel does not probe while bytes wait for their acknowledgement.
    EXPECT_EQ(Option(*end, IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
  }
}

}  // namespace
}  // namespace fairway
