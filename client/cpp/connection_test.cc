// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace fairway::client {
namespace {

// The kernel's time for what is sent and not acknowledged, of the socket that is connected to
// `port`: gRPC's timeout of keepalive pings. -1: no such socket.
int UserTimeoutMs(in_port_t port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sin_port != port)
      continue;
    int value = -1;
    size = sizeof(value);
    ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size);
    return value;
  }
  return -1;
}

// That the pings themselves end a session takes minutes; without them this would be 0.
TEST(ConnectionTest, WaitsTwoMinutesForAControllerThatIsSilent) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::thread opener([&] {
    const std::string target = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    EXPECT_FALSE(Connection::Open(target, {}).ok());
  });
  const int accepted = ::accept(listener, nullptr, nullptr);
  EXPECT_EQ(UserTimeoutMs(address.sin_port), 120 * 1000);
  ::close(listener);
  ::close(accepted);
  opener.join();
}

TEST(ConnectTest, AnAddressThatIsNoneIsInvalid) {
  const Status status = Connect("http://127.0.0.1:1").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("expected host:port"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace fairway::client
