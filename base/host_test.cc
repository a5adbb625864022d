// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

// As client/python/tests/test_connection.py.
TEST(HostTest, AControllersAddressHasTheFormsOfThePythonPackage) {
  const auto address = [](const std::string& text) {
    return ControllerAddress(text).value_or("none");
  };
  EXPECT_EQ(address("host:1234"), "host:1234");
  EXPECT_EQ(address("grpc://host:1234"), "host:1234");
  EXPECT_EQ(address("grpc://host:1234/"), "host:1234");
  EXPECT_EQ(address(" 10.0.0.1:7 "), "10.0.0.1:7");
  EXPECT_EQ(address("host"), "host:29000");
  EXPECT_EQ(address("[::1]:29001"), "[::1]:29001");
  EXPECT_EQ(address("[::1]"), "[::1]:29000");
}

TEST(HostTest, ABadAddressIsNamedInTheError) {
  for (const char* text : {"", ":1", "host:", "host:x", "host:0", "host:65536", "a/b",
                           "http://host:1", "::1", "[::1", "[::1]x:1"}) {
    const absl::Status status = ControllerAddress(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(Text(status), testing::StartsWith(fmt::format("'{}' is no address", text)));
  }
}

}  // namespace
}  // namespace fairway
