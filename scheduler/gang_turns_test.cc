// SPDX-License-Identifier: Apache-2.0
#include "scheduler/gang_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr SessionId kFirst(1), kSecond(2), kLast(3);

class GangTurnsTest : public testing::Test {
 protected:
  GangTurns::SetId Add(uint64_t node, SessionId session, const std::vector<uint64_t>& devices) {
    std::vector<DeviceId> ids;
    for (const uint64_t device : devices) ids.emplace_back(device);
    const GangTurns::SetId set = turns.Use(ids);
    turns.Add(NodeId(node), session, set);
    return set;
  }
  // All that may go.
  std::vector<uint64_t> Go() {
    std::vector<uint64_t> nodes;
    while (const auto node = turns.Next()) nodes.push_back(node->value);
    return nodes;
  }

  GangTurns turns{2};
};

TEST_F(GangTurnsTest, AGangGoesWhateverRunsOnOtherDevices) {
  for (const uint64_t n : {1, 2, 3}) Add(n, kSecond, {1, 2});
  EXPECT_THAT(Go(), ElementsAre(1, 2));
  Add(4, kFirst, {3, 4});
  EXPECT_THAT(Go(), ElementsAre(4));
}

TEST_F(GangTurnsTest, AGangWaitsForRoomOnEachOfItsDevices) {
  const auto left = Add(1, kFirst, {1, 2});
  Add(2, kFirst, {1, 2});
  const auto right = Add(3, kFirst, {3, 4});
  Add(4, kFirst, {3, 4});
  EXPECT_THAT(Go(), ElementsAre(1, 3, 2, 4));
  Add(5, kFirst, {2, 3});
  EXPECT_THAT(Go(), IsEmpty());
  turns.Ended(left);
  EXPECT_THAT(Go(), IsEmpty());
  turns.Ended(right);
  EXPECT_THAT(Go(), ElementsAre(5));
}

TEST_F(GangTurnsTest, AFullDeviceTakesNoGangUntilAFourthHasEnded) {
  turns = GangTurns(8);
  GangTurns::SetId set = 0;
  for (uint64_t n = 1; n <= 12; ++n) set = Add(n, kFirst, {1, 2});
  EXPECT_THAT(Go(), SizeIs(8));
  turns.Ended(set);
  Add(13, kSecond, {2});
  EXPECT_THAT(Go(), IsEmpty());
  turns.Ended(set);
  EXPECT_THAT(Go(), ElementsAre(9, 13));
}

TEST_F(GangTurnsTest, ADeviceThatIsNotFullTakesGangsAsTheyCome) {
  turns = GangTurns(8);
  GangTurns::SetId set = 0;
  for (uint64_t n = 1; n <= 7; ++n) set = Add(n, kFirst, {1});
  EXPECT_THAT(Go(), SizeIs(7));
  for (uint64_t n = 8; n <= 20; ++n) {
    turns.Ended(set);
    Add(n, kFirst, {1});
    EXPECT_THAT(Go(), ElementsAre(n));
  }
}

// Otherwise a client with many small gangs would keep one of many devices waiting for ever.
TEST_F(GangTurnsTest, GangsOfFewDevicesDoNotPassOneOfManyThatHasWaitedLonger) {
  const auto left = Add(1, kSecond, {1, 2});
  Add(2, kSecond, {1, 2});
  const auto right = Add(3, kSecond, {3, 4});
  Add(4, kSecond, {3, 4});
  EXPECT_THAT(Go(), ElementsAre(1, 3, 2, 4));
  Add(10, kFirst, {1, 2, 3, 4});
  EXPECT_THAT(Go(), IsEmpty());
  for (const uint64_t n : {5, 6}) Add(n, kSecond, {1, 2});
  for (const uint64_t n : {7, 8}) Add(n, kSecond, {3, 4});
  turns.Ended(left);
  EXPECT_THAT(Go(), IsEmpty());
  turns.Ended(right);
  EXPECT_THAT(Go(), ElementsAre(10));
  turns.Ended(left);
  turns.Ended(right);
  EXPECT_THAT(Go(), ElementsAre(5, 7));
}

TEST_F(GangTurnsTest, SessionsTakeTurnsHoweverManyLinesTheyHave) {
  const auto set = Add(1, kFirst, {1, 2});
  Add(2, kFirst, {2, 1});
  EXPECT_THAT(Go(), ElementsAre(1, 2));
  // Each of these is a line of its own, and all of them want device 1.
  uint64_t node = 10;
  for (uint64_t other = 2; other < 12; ++other) Add(node++, kSecond, {1, other});
  for (const uint64_t n : {3, 4, 5}) Add(n, kFirst, {1, 2});
  std::vector<uint64_t> order;
  while (order.size() < 6) {
    turns.Ended(set);
    for (const uint64_t n : Go()) order.push_back(n);
  }
  EXPECT_THAT(order, ElementsAre(3, 10, 4, 11, 5, 12));
}

TEST_F(GangTurnsTest, OldNodesOfOneSessionPassThoseOfNoOther) {
  const auto set = Add(100, kSecond, {1, 2});
  Add(101, kSecond, {1, 2});
  EXPECT_THAT(Go(), ElementsAre(100, 101));
  Add(102, kSecond, {1, 2});
  EXPECT_THAT(Go(), IsEmpty());
  for (const uint64_t n : {1, 2}) Add(n, kFirst, {1, 2});
  Add(50, kLast, {1, 2});
  std::vector<uint64_t> order;
  while (order.size() < 4) {
    turns.Ended(set);
    for (const uint64_t n : Go()) order.push_back(n);
  }
  EXPECT_THAT(order, ElementsAre(102, 1, 50, 2));
}

TEST_F(GangTurnsTest, WhatIsRemovedHoldsNobodyUp) {
  const auto set = Add(1, kSecond, {1, 2});
  Add(2, kSecond, {1, 2});
  EXPECT_THAT(Go(), ElementsAre(1, 2));
  const auto wide = Add(3, kFirst, {1, 2, 3, 4});
  EXPECT_THAT(Go(), IsEmpty());
  Add(4, kSecond, {3, 4});
  EXPECT_THAT(Go(), IsEmpty()) << "3 has waited longer";
  turns.Remove(NodeId(3), kFirst, wide);
  EXPECT_THAT(Go(), ElementsAre(4));
  turns.Remove(NodeId(3), kFirst, wide);
  turns.Ended(set);
  EXPECT_THAT(Go(), IsEmpty());
}

TEST_F(GangTurnsTest, OfALineTheLowestNodeGoesFirst) {
  const auto set = Add(7, kFirst, {1, 2});
  Add(5, kFirst, {1, 2});
  const auto six = Add(6, kFirst, {1, 2});
  turns.Remove(NodeId(5), kFirst, six);
  EXPECT_THAT(Go(), ElementsAre(6, 7));
  Add(9, kFirst, {1, 2});
  Add(8, kFirst, {1, 2});
  turns.Ended(set);
  EXPECT_THAT(Go(), ElementsAre(8));
}

TEST_F(GangTurnsTest, SetsThatNobodyUsesAreForgotten) {
  for (uint64_t n = 1; n <= 1000; ++n) {
    const auto set = Add(n, kFirst, {n, n + 1});
    EXPECT_THAT(Go(), ElementsAre(n));
    turns.Ended(set);
    turns.Release(set);
    EXPECT_EQ(turns.used_sets(), 0u);
  }
}

// If each launch looked at all that wait, this would take minutes.
TEST_F(GangTurnsTest, ThoseThatWaitForTheirTurnCostALaunchNothing) {
  constexpr uint64_t kMany = 100000;
  GangTurns::SetId set = 0;
  for (uint64_t n = 1; n <= kMany; ++n) set = Add(n, kFirst, {1, 2});
  EXPECT_THAT(Go(), ElementsAre(1, 2));
  for (uint64_t n = 3; n <= kMany; ++n) {
    turns.Ended(set);
    ASSERT_THAT(Go(), ElementsAre(n));
  }
}

}  // namespace
}  // namespace fairway
