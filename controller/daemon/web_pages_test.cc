// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/web_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What a client sent as Host, Origin and Sec-Fetch-Site, to 10.0.0.7.
HttpRequest Request(std::string_view host, std::string_view origin = "",
                    std::string_view site = "") {
  HttpRequest out;
  out.host = host;
  out.origin = origin;
  out.site = site;
  out.address = "10.0.0.7";
  return out;
}

TEST(WebPagesTest, WhatComesFromNoBrowserIsAnswered) {
  for (const char* host : {"", "127.0.0.1:29001", "127.9.9.9", "10.0.0.7", "[::1]:29001",
                           "[::ffff:10.0.0.7]:1", "[2001:DB8::1]", "203.0.113.5:29001",
                           "localhost:29001", "LOCALHOST", "head.example.com:29001"}) {
    EXPECT_THAT(
        RefusedPage(Request(host), {"node", "Head.Example.com", "203.0.113.5", "2001:db8:0::1"}),
        IsEmpty())
        << host;
  }
}

TEST(WebPagesTest, AnAddressAtWhichItDoesNotListenIsNoneOfIts) {
  for (const char* host : {"10.0.0.8", "203.0.113.5:29001", "[fe80::1]", "[::2]"})
    EXPECT_THAT(RefusedPage(Request(host), {"node"}), HasSubstr("--http-name=")) << host;
}

TEST(WebPagesTest, APersonAndThisHostsOwnPagesAreAnswered) {
  EXPECT_THAT(RefusedPage(Request("localhost:29001", "", "none"), {}), IsEmpty());
  HttpRequest own = Request("localhost:29001", "http://localhost:29001", "same-origin");
  EXPECT_THAT(RefusedPage(own, {}), IsEmpty());
  own.secure = true;
  EXPECT_THAT(RefusedPage(own, {}), HasSubstr("'http://localhost:29001'"));
  own.origin = "https://localhost:29001";
  EXPECT_THAT(RefusedPage(own, {}), IsEmpty());
}

TEST(WebPagesTest, PagesOfOthersAreRefused) {
  for (const char* site : {"cross-site", "same-site", "anything"})
    EXPECT_THAT(RefusedPage(Request("localhost:29001", "", site), {}), HasSubstr(site));
  for (const char* origin :
       {"http://evil.example", "http://localhost:8080", "https://localhost:29001", "null"})
    EXPECT_THAT(RefusedPage(Request("localhost:29001", origin), {}), HasSubstr(origin));
}

TEST(WebPagesTest, ANameThatWasMadeToPointHereIsRefusedAndTheCureIsNamed) {
  for (const char* host : {"evil.example:29001", "localhost.evil.example", "127.0.0.1.evil.example",
                           "node.evil.example", "1.2.3", "[evil", ":29001"}) {
    const std::string refusal = RefusedPage(Request(host), {"node"});
    EXPECT_THAT(refusal, HasSubstr("--http-name=")) << host;
    EXPECT_EQ(refusal.find('\n'), std::string::npos);
  }
  EXPECT_LT(RefusedPage(Request(std::string(5000, 'x')), {}).size(), 500U);
}

}  // namespace
}  // namespace fairway
