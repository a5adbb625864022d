// SPDX-License-Identifier: Apache-2.0
#include "wire/link_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fairway/v1/link.pb.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

TEST(LinkProtocolTest, TakesTheHighestVersionThatBothSpeak) {
  const auto agreed = [](uint32_t oldest, uint32_t newest) {
    return AgreeOnLinkProtocol(oldest, newest, "worker w0").value_or(0);
  };
  EXPECT_EQ(agreed(kLinkProtocol - 1, kLinkProtocol), kLinkProtocol);
  EXPECT_EQ(agreed(kLinkProtocol, kLinkProtocol + 1), kLinkProtocol);
  EXPECT_EQ(agreed(kLinkProtocol - 2, kLinkProtocol - 1), kLinkProtocol - 1);
  EXPECT_EQ(agreed(1, UINT32_MAX), kLinkProtocol);
  // Who says one number speaks that one.
  EXPECT_EQ(agreed(kLinkProtocol, 0), kLinkProtocol);
  EXPECT_EQ(agreed(kLinkProtocol - 1, 0), kLinkProtocol - 1);
}

TEST(LinkProtocolTest, RefusesWithTheVersionsOfBothAndTheCure) {
  const auto refused = [](uint32_t oldest, uint32_t newest) {
    return Text(AgreeOnLinkProtocol(oldest, newest, "worker w0").status());
  };
  EXPECT_THAT(
      refused(kLinkProtocol - 3, kLinkProtocol - 2),
      HasSubstr("this controller speaks link protocols 13 to 14, worker w0 speaks 11 to 12: "
                "upgrade the worker to the controller's version (docs/upgrade.md)"));
  EXPECT_THAT(refused(kLinkProtocol - 2, 0), HasSubstr("worker w0 speaks 12: upgrade the worker"));
  EXPECT_THAT(
      refused(kLinkProtocol + 1, kLinkProtocol + 2),
      HasSubstr("worker w0 speaks 15 to 16: upgrade the controller first, then the workers"));
  EXPECT_THAT(refused(0, 0), HasSubstr("worker w0 speaks 0: upgrade the worker"));
}

TEST(LinkProtocolTest, AWorkerSpeaksWhatTheControllerTook) {
  EXPECT_EQ(*TakenLinkProtocol(0), 13);
  EXPECT_EQ(*TakenLinkProtocol(kLinkProtocol), kLinkProtocol);
  EXPECT_THAT(Text(TakenLinkProtocol(kLinkProtocol + 1).status()),
              HasSubstr("took link protocol 15, this worker offered 13 to 14"));
  EXPECT_FALSE(TakenLinkProtocol(kOldestLinkProtocol - 1).ok());
}

TEST(LinkProtocolTest, AControllerThatKnowsOneNumberFindsTheOldestThere) {
  v1::RegisterWorker hello;
  SayLinkProtocols(&hello);
  EXPECT_EQ(hello.protocol(), kOldestLinkProtocol);
  EXPECT_EQ(hello.newest_protocol(), kLinkProtocol);
}

}  // namespace
}  // namespace fairway
