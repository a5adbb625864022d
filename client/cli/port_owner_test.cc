// SPDX-License-Identifier: Apache-2.0
#include "client/cli/port_owner.h"

#include <unistd.h>

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace fairway {
namespace {

using boost::asio::ip::tcp;

TEST(FindPortOwner, NamesTheProcessThatListensThere) {
  boost::asio::io_context io;
  tcp::acceptor taken(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  const int port = taken.local_endpoint().port();
  for (const char* const host : {"127.0.0.1", "0.0.0.0", "::"}) {
    const auto found = FindPortOwner(host, port);
    ASSERT_TRUE(found.ok() && found->has_value()) << host;
    EXPECT_EQ((*found)->pid, ::getpid());
    EXPECT_EQ((*found)->program, "cli_test");
  }
  EXPECT_FALSE(FindPortOwner("127.0.0.2", port)->has_value());
  taken.close();
  EXPECT_FALSE(FindPortOwner("127.0.0.1", port)->has_value());
}

TEST(FindPortOwner, TakesAddressesOnly) { EXPECT_FALSE(FindPortOwner("localhost", 1).ok()); }

}  // namespace
}  // namespace fairway
