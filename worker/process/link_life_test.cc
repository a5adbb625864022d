// SPDX-License-Identifier: Apache-2.0
#include "worker/process/link_life.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LinkLifeTest, PausesDoubleUntilARegistrationHolds) {
  LinkLife life;
  EXPECT_EQ(life.NextPause(), milliseconds(0));
  EXPECT_EQ(life.NextPause(), milliseconds(20));
  EXPECT_EQ(life.NextPause(), milliseconds(40));
  for (int i = 0; i < 10; ++i) life.NextPause();
  EXPECT_EQ(life.NextPause(), seconds(1));
  life.Registered(500, 10000);
  EXPECT_EQ(life.NextPause(), milliseconds(20));
}

TEST(LinkLifeTest, WhoIsRefusedAgainAndAgainComesLessOften) {
  LinkLife life;
  for (int i = 0; i < 11; ++i) {
    EXPECT_LE(life.NextPause(), seconds(1));
    life.Ended();
  }
  EXPECT_EQ(life.NextPause(), seconds(10));
  life.Registered(500, 10000);
  EXPECT_EQ(life.NextPause(), milliseconds(20));
}

TEST(LinkLifeTest, ASilentControllerIsToldOnceAsStalledAndGivenUpAfterTheDeadline) {
  LinkLife life(seconds(3));
  life.Heard(seconds(1));
  life.Registered(1000, 5000);
  int stalled = 0;
  for (int t = 1; t <= 6; ++t) {
    const LinkLife::Beat beat = life.NextBeat(seconds(t));
    EXPECT_FALSE(beat.give_up) << t;
    EXPECT_EQ(beat.sequence, static_cast<uint64_t>(t));
    stalled += beat.stalled ? 1 : 0;
  }
  EXPECT_EQ(stalled, 1);
  EXPECT_TRUE(life.NextBeat(milliseconds(6001)).give_up);
}

TEST(LinkLifeTest, AProcessThatWasStoppedItselfDoesNotGiveTheControllerUp) {
  LinkLife life;
  life.Heard(seconds(0));
  life.Registered(1000, 5000);
  EXPECT_FALSE(life.NextBeat(seconds(0)).give_up);
  EXPECT_FALSE(life.NextBeat(seconds(60)).give_up) << "what came meanwhile is unread";
  for (int t = 61; t <= 65; ++t) EXPECT_FALSE(life.NextBeat(seconds(t)).give_up);
  EXPECT_TRUE(life.NextBeat(seconds(66)).give_up);
}

TEST(LinkLifeTest, MeasuresTheRoundTripOfTheLatestHeartbeat) {
  LinkLife life;
  life.Registered(1000, 5000);
  life.Acknowledged(0, seconds(1));
  EXPECT_EQ(life.round_trip().count(), 0) << "no heartbeat was sent";
  const LinkLife::Beat first = life.NextBeat(seconds(2));
  life.Acknowledged(first.sequence, milliseconds(2003));
  EXPECT_EQ(life.round_trip(), milliseconds(3));
  const LinkLife::Beat second = life.NextBeat(seconds(3));
  life.Acknowledged(0, seconds(4));  // only acknowledges bytes
  life.Acknowledged(first.sequence, seconds(4));
  EXPECT_EQ(life.round_trip(), milliseconds(3));
  life.Acknowledged(second.sequence, seconds(4));
  EXPECT_EQ(life.round_trip(), seconds(1));
}

}  // namespace
}  // namespace fairway
