// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/web_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WebPagesTest, WhatComesFromNoBrowserIsAnswered) {
  for (const char* host : {"", "127.0.0.1:29001", "10.0.0.7", "[::1]:29001", "[fe80::1]",
                           "localhost:29001", "LOCALHOST", "head.example.com:29001"})
    EXPECT_THAT(RefusedPage({.host = host}, {"node", "Head.Example.com"}), IsEmpty()) << host;
}

TEST(WebPagesTest, APersonAndThisHostsOwnPagesAreAnswered) {
  EXPECT_THAT(RefusedPage({.host = "localhost:29001", .site = "none"}, {}), IsEmpty());
  EXPECT_THAT(
      RefusedPage(
          {.host = "localhost:29001", .origin = "http://localhost:29001", .site = "same-origin"},
          {}),
      IsEmpty());
}

TEST(WebPagesTest, PagesOfOthersAreRefused) {
  for (const char* site : {"cross-site", "same-site", "anything"})
    EXPECT_THAT(RefusedPage({.host = "localhost:29001", .site = site}, {}), HasSubstr(site));
  for (const char* origin :
       {"http://evil.example", "http://localhost:8080", "https://localhost:29001", "null"})
    EXPECT_THAT(RefusedPage({.host = "localhost:29001", .origin = origin}, {}), HasSubstr(origin));
}

TEST(WebPagesTest, ANameThatWasMadeToPointHereIsRefusedAndTheCureIsNamed) {
  for (const char* host : {"evil.example:29001", "localhost.evil.example", "127.0.0.1.evil.example",
                           "node.evil.example", "1.2.3", "[evil", ":29001"}) {
    const std::string refusal = RefusedPage({.host = host}, {"node"});
    EXPECT_THAT(refusal, HasSubstr("--http-name=")) << host;
    EXPECT_EQ(refusal.find('\n'), std::string::npos);
  }
  EXPECT_LT(RefusedPage({.host = std::string(5000, 'x')}, {}).size(), 500U);
}

}  // namespace
}  // namespace fairway
