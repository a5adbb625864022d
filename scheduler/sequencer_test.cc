// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sequencer.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr SessionId kMine(1), kTheirs(2);
const std::vector<DeviceId> kGang = {DeviceId(1), DeviceId(2)};

std::vector<std::pair<uint64_t, uint64_t>> Step(Sequencer& s) {
  std::vector<std::pair<uint64_t, uint64_t>> out;
  for (const Grant& g : s.Step()) out.emplace_back(g.node.value, g.launch_id.value);
  return out;
}
using Grants = std::vector<std::pair<uint64_t, uint64_t>>;

TEST(SequencerTest, IdsAreGivenWhenInputsArriveNotWhenPrepared) {
  Sequencer s({});
  s.Prepared(NodeId(1), kMine, kGang);
  s.Prepared(NodeId(2), kMine, kGang);
  EXPECT_EQ(Step(s), Grants());
  s.InputsArrived(NodeId(2));
  EXPECT_EQ(Step(s), (Grants{{2, 1}}));
  s.InputsArrived(NodeId(1));
  EXPECT_EQ(Step(s), (Grants{{1, 2}}));
}

TEST(SequencerTest, GangsAreLaunchedUpToTheirBudget) {
  Sequencer s({.max_gangs_per_device = 2});
  for (uint64_t n = 1; n <= 4; ++n) {
    s.Prepared(NodeId(n), kMine, kGang);
    s.InputsArrived(NodeId(n));
  }
  EXPECT_EQ(Step(s), (Grants{{1, 1}, {2, 2}}));
  EXPECT_EQ(Step(s), Grants());
  s.Finished(NodeId(2));
  EXPECT_EQ(Step(s), (Grants{{3, 3}}));
}

TEST(SequencerTest, GangsOfOtherDevicesHaveABudgetOfTheirOwn) {
  Sequencer s({.max_gangs_per_device = 2});
  for (uint64_t n = 1; n <= 4; ++n) s.Prepared(NodeId(n), kTheirs, kGang);
  s.Prepared(NodeId(5), kMine, {DeviceId(3), DeviceId(4)});
  for (uint64_t n = 1; n <= 5; ++n) s.InputsArrived(NodeId(n));
  EXPECT_EQ(Step(s).size(), 3u);
  EXPECT_EQ(s.gangs_in_flight(), 3);
  s.Finished(NodeId(5));
  s.Prepared(NodeId(6), kMine, {DeviceId(3), DeviceId(4)});
  s.InputsArrived(NodeId(6));
  EXPECT_EQ(Step(s), (Grants{{6, 4}}));
}

TEST(SequencerTest, SinglesHaveTheirOwnBudgetPerDeviceAndPassWaitingGangs) {
  Sequencer s({.max_gangs_per_device = 1, .max_singles_per_device = 1});
  for (uint64_t n : {1, 2}) s.Prepared(NodeId(n), kMine, kGang);
  for (uint64_t n : {3, 4}) s.Prepared(NodeId(n), kMine, {DeviceId(1)});
  for (uint64_t n = 1; n <= 4; ++n) s.InputsArrived(NodeId(n));
  EXPECT_EQ(Step(s), (Grants{{1, 1}, {3, 2}}));
  s.Finished(NodeId(3));
  EXPECT_EQ(Step(s), (Grants{{4, 3}}));
}

TEST(SequencerTest, AForgottenGangIsNeverLaunched) {
  Sequencer s({});
  s.Prepared(NodeId(1), kMine, kGang);
  s.InputsArrived(NodeId(1));
  s.Forget(NodeId(1));
  EXPECT_EQ(Step(s), Grants());
  EXPECT_EQ(s.prepared(), 0u);
}

TEST(SequencerTest, ALaunchWhoseInputFailedWaitsUntilItHasArrivedAfterAll) {
  Sequencer s({});
  s.Prepared(NodeId(1), kMine, kGang);
  s.InputsArrived(NodeId(1));
  s.InputsMissing(NodeId(1));
  EXPECT_EQ(Step(s), Grants());
  s.InputsArrived(NodeId(1));
  EXPECT_EQ(Step(s), (Grants{{1, 1}}));
}

// Bytes that come late must not let the nodes that waited for them go before everybody else's.
TEST(SequencerTest, OldIdsThatWereKeptBackGiveASessionNoPrecedence) {
  Sequencer s({.max_singles_per_device = 1});
  const auto arrives = [&](uint64_t node, SessionId session) {
    s.Prepared(NodeId(node), session, {DeviceId(1)});
    s.InputsArrived(NodeId(node));
  };
  for (const uint64_t n : {11, 12}) arrives(n, kTheirs);
  EXPECT_EQ(Step(s), (Grants{{11, 1}}));
  for (const uint64_t n : {1, 2, 3}) arrives(n, kMine);
  // They take turns; within a session the oldest goes first.
  std::vector<uint64_t> order;
  for (uint64_t running = 11; order.size() < 4; running = order.back()) {
    s.Finished(NodeId(running));
    order.push_back(Step(s).at(0).first);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 12, 2, 3}));
}

// If a step looked at all waiting nodes, this would take minutes.
TEST(SequencerTest, ThoseThatWaitForTheirTurnCostAStepNothing) {
  constexpr uint64_t kMany = 100000;
  Sequencer s({.max_singles_per_device = 1});
  for (uint64_t n = 1; n <= kMany; ++n) {
    s.Prepared(NodeId(n), kMine, {DeviceId(1)});
    s.InputsArrived(NodeId(n));
    s.Step();
  }
  for (uint64_t n = 1; n < kMany; ++n) {
    s.Finished(NodeId(n));
    ASSERT_EQ(Step(s), (Grants{{n + 1, n + 1}}));
  }
}

TEST(SequencerTest, IdsStartAboveTheHighestSeenByAnyExecutor) {
  Sequencer s({});
  s.RaiseLaunchIds(100);
  s.RaiseLaunchIds(5);
  s.Prepared(NodeId(1), kMine, kGang);
  s.InputsArrived(NodeId(1));
  EXPECT_EQ(Step(s), (Grants{{1, 100}}));
}

}  // namespace
}  // namespace fairway
