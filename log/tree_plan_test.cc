// SPDX-License-Identifier: Apache-2.0
#include "log/tree_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<ExecutorIndex> UpTo(uint32_t count) {
  std::vector<ExecutorIndex> out(count);
  std::iota(out.begin(), out.end(), 1);
  return out;
}

// The number of links from a relay's parent to its farthest executor.
int Depth(const TreePlan& plan, size_t relay) {
  int depth = 1;
  for (const size_t below : plan.relays[relay].relays) depth = std::max(depth, Depth(plan, below));
  return 1 + depth;
}

// Checks that each executor and each relay has one place, and returns the depth.
int CheckPlaces(const TreePlan& plan, const std::vector<ExecutorIndex>& executors) {
  std::vector<ExecutorIndex> placed = plan.executors;
  std::set<ExecutorIndex> hosts;
  std::vector<int> parents(plan.relays.size(), 0);
  int depth = 1;
  for (size_t i = 0; i < plan.relays.size(); ++i) {
    const TreePlan::Relay& relay = plan.relays[i];
    EXPECT_TRUE(hosts.insert(relay.host).second) << "host " << relay.host << " runs two relays";
    placed.insert(placed.end(), relay.executors.begin(), relay.executors.end());
    for (const size_t below : relay.relays) {
      EXPECT_LT(below, i);
      ++parents[below];
    }
    if (relay.top) ++parents[i], depth = std::max(depth, Depth(plan, i));
  }
  EXPECT_THAT(parents, ::testing::Each(1));
  std::ranges::sort(placed);
  EXPECT_EQ(placed, executors);
  return depth;
}

TEST(TreePlanTest, WithoutAFanOutOrWithFewExecutorsTheControllerIsTheParent) {
  EXPECT_THAT(PlanTree(UpTo(5), UpTo(5), 0).executors, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(PlanTree(UpTo(4), UpTo(4), 4).executors, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(PlanTree(UpTo(4), UpTo(4), 4).relays, IsEmpty());
  EXPECT_THAT(PlanTree({}, {}, 4).executors, IsEmpty());
}

TEST(TreePlanTest, ARelayRunsOnAHostOfItsChildren) {
  const TreePlan plan = PlanTree(UpTo(4), {2, 4}, 2);
  ASSERT_EQ(plan.relays.size(), 2u);
  EXPECT_EQ(plan.relays[0].host, 2u);
  EXPECT_THAT(plan.relays[0].executors, ElementsAre(1, 2));
  EXPECT_EQ(plan.relays[1].host, 4u);
  EXPECT_TRUE(plan.relays[0].top && plan.relays[1].top);
  EXPECT_THAT(plan.executors, IsEmpty());
}

TEST(TreePlanTest, TheDepthIsTheLeastThatIsEnough) {
  for (const auto& [count, fanout, depth] : {std::tuple<uint32_t, size_t, int>{16, 16, 1},
                                             {17, 16, 2},
                                             {256, 16, 2},
                                             {257, 16, 3},
                                             {512, 16, 3},
                                             {4096, 16, 3},
                                             {8, 2, 3},
                                             {9, 3, 2}}) {
    const TreePlan plan = PlanTree(UpTo(count), UpTo(count), fanout);
    EXPECT_EQ(CheckPlaces(plan, UpTo(count)), depth) << count << " with fan-out " << fanout;
    size_t top = plan.executors.size();
    for (const TreePlan::Relay& relay : plan.relays) {
      EXPECT_LE(relay.executors.size() + relay.relays.size(), fanout);
      if (relay.top) ++top;
    }
    EXPECT_LE(top, fanout);
  }
}

TEST(TreePlanTest, WithTooFewHostsTheControllerHasMoreChildren) {
  for (uint32_t count = 0; count < 40; ++count) {
    for (uint32_t hosts = 0; hosts <= count; hosts += 3) {
      for (const size_t fanout : {2u, 3u, 4u})
        EXPECT_LE(CheckPlaces(PlanTree(UpTo(count), UpTo(hosts), fanout), UpTo(count)), 3);
    }
  }
  EXPECT_THAT(PlanTree(UpTo(4), {}, 2).executors, ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace fairway
