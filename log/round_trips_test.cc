// SPDX-License-Identifier: Apache-2.0
#include "log/round_trips.h"

#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using Time = RoundTrips::Time;

// Asks and gets an answer after `took`.
void Trip(RoundTrips& trips, Time took, Time now = Time(0)) {
  trips.Answer(trips.Ask(now), now + took);
}

TEST(RoundTripsTest, TheMedianIsKnownOnceThereAreEnough) {
  RoundTrips trips;
  for (size_t i = 0; i < RoundTrips::kKept; ++i) {
    EXPECT_EQ(trips.Median(), std::nullopt);
    Trip(trips, milliseconds(i < RoundTrips::kKept / 2 ? 1 : 50));
  }
  EXPECT_EQ(trips.Median(), Time(milliseconds(1)));  // half of them are long, and not more
  Trip(trips, milliseconds(50));                     // in place of the oldest
  EXPECT_EQ(trips.Median(), Time(milliseconds(50)));
}

TEST(RoundTripsTest, AStopCountsOnceHoweverManyTimesItWouldHaveBeenAsked) {
  RoundTrips trips;
  for (size_t i = 0; i + 1 < RoundTrips::kKept; ++i) Trip(trips, milliseconds(1));
  Time now(0);
  const uint64_t question = trips.Ask(now);
  EXPECT_NE(question, 0u);
  for (; now < milliseconds(900); now += milliseconds(100)) EXPECT_EQ(trips.Ask(now), 0u);
  trips.Answer(question, now);
  trips.Answer(question, now + milliseconds(100));  // it came twice
  EXPECT_EQ(trips.Median(), Time(milliseconds(1)));
  for (size_t i = 0; i < RoundTrips::kKept / 2 - 1; ++i) Trip(trips, milliseconds(900));
  EXPECT_EQ(trips.Median(), Time(milliseconds(1)));
  Trip(trips, milliseconds(900));
  EXPECT_EQ(trips.Median(), Time(milliseconds(900)));
}

TEST(RoundTripsTest, AnswersThatWereNotAskedForCountForNothing) {
  RoundTrips trips;
  for (size_t i = 0; i < 2 * RoundTrips::kKept; ++i) trips.Answer(i, milliseconds(i));
  EXPECT_EQ(trips.Median(), std::nullopt);
  const uint64_t question = trips.Ask(Time(0));
  trips.Clear();
  EXPECT_NE(trips.Ask(Time(0)), question);
  for (size_t i = 0; i < RoundTrips::kKept; ++i) trips.Answer(question, milliseconds(1));
  EXPECT_EQ(trips.Median(), std::nullopt);
}

// Which of these are late.
std::vector<bool> Late(Time parent, std::vector<Time> relays) {
  const auto of = [](Time took) {
    RoundTrips trips;
    for (size_t i = 0; i < RoundTrips::kKept && took > Time(0); ++i) Trip(trips, took);
    return trips;
  };
  LateRelays late(milliseconds(20), of(parent));
  for (const Time relay : relays) late.Add(of(relay));
  std::vector<bool> out;
  for (const Time relay : relays) out.push_back(late.IsLate(of(relay)));
  return out;
}

constexpr Time kWell = microseconds(300);
constexpr Time kSlow = milliseconds(45);
constexpr Time kUnknown{0};

TEST(LateRelaysTest, WhoIsFarSlowerThanMostIsLate) {
  EXPECT_THAT(Late(kWell, {kSlow, kWell, kWell}), ElementsAre(true, false, false));
  EXPECT_THAT(Late(kWell, {kWell, kSlow}), ElementsAre(false, true));
  EXPECT_THAT(Late(kWell, {kSlow, kWell, kSlow}), ElementsAre(true, false, true));
  EXPECT_THAT(Late(kWell, {milliseconds(20), kWell}), ElementsAre(false, false));
}

TEST(LateRelaysTest, EquallySlowOnesAreNot) {
  EXPECT_THAT(Late(kWell, {kSlow, kSlow}), ElementsAre(false, false));
  EXPECT_THAT(Late(kWell, {kSlow, kSlow, kWell, kSlow}), ElementsAre(false, false, false, false));
  EXPECT_THAT(Late(kWell, {milliseconds(6), kSlow}), ElementsAre(false, false));
}

TEST(LateRelaysTest, TheOnlyOneIsComparedWithItsParent) {
  EXPECT_THAT(Late(kWell, {kSlow}), ElementsAre(true));
  EXPECT_THAT(Late(kSlow, {kSlow}), ElementsAre(false));
  EXPECT_THAT(Late(kSlow, {kSlow, kWell}), ElementsAre(false, false));
}

TEST(LateRelaysTest, WhoIsNotKnownYetMayBeSlow) {
  EXPECT_THAT(Late(kWell, {kSlow, kUnknown}), ElementsAre(false, false));
  EXPECT_THAT(Late(kWell, {kSlow, kWell, kUnknown}), ElementsAre(true, false, false));
  EXPECT_THAT(Late(kUnknown, {kSlow}), ElementsAre(false));
}

TEST(RoundTripsTest, TheTextHasTheMedian) {
  RoundTrips trips;
  for (size_t i = 0; i < RoundTrips::kKept; ++i) Trip(trips, microseconds(45678));
  EXPECT_EQ(trips.LateText(), "it is late: more than half of its last 20 answers took 45 ms");
}

TEST(RoundTripsTest, PausesKeepStepWithNothing) {
  for (const int period : {10, 50, 100, 101, 150}) {
    std::set<int> tenths;  // of the period, in which the parent asks
    Time at(0);
    for (uint64_t n = 0; n < 40; ++n) {
      const milliseconds pause = AskPause(n);
      EXPECT_GE(pause, milliseconds(50));
      EXPECT_LT(pause, milliseconds(150));
      at += pause;
      tenths.insert(static_cast<int>(at / milliseconds(1) % period * 10 / period));
    }
    EXPECT_GE(tenths.size(), 8u) << period;
  }
}

}  // namespace
}  // namespace fairway
