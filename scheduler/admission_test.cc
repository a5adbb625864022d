// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr IslandId kIsland(1);
constexpr DeviceId kA(1);
constexpr DeviceId kB(2);
using Nodes = std::vector<NodeId>;

TEST(AdmissionTest, ANodeReservesAllItsDevicesOrNone) {
  Admission a;
  a.SetDevice(kA, 100);
  a.SetDevice(kB, 100);
  a.Enqueue(NodeId(1), kIsland, {{kA, 60}, {kB, 60}});
  a.Enqueue(NodeId(2), kIsland, {{kA, 10}, {kB, 60}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
  EXPECT_EQ(a.used(kA), 60);
  const auto head = a.Head(kIsland);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->device, kB);
  EXPECT_FALSE(head->hopeless);
  a.Release(kB, 20);
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(2)});
}

TEST(AdmissionTest, ASmallNodeDoesNotOvertakeALargeOneThatWaits) {
  Admission a;
  a.SetDevice(kA, 100);
  a.Enqueue(NodeId(1), kIsland, {{kA, 60}});
  a.Enqueue(NodeId(2), kIsland, {{kA, 60}});
  a.Enqueue(NodeId(3), kIsland, {{kA, 1}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
  EXPECT_EQ(a.Admit(kIsland), Nodes{});
  EXPECT_TRUE(a.Remove(NodeId(2), kIsland));
  EXPECT_FALSE(a.Remove(NodeId(2), kIsland));
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(3)});
}

TEST(AdmissionTest, MoreThanTheDeviceHasIsHopeless) {
  Admission a;
  a.SetDevice(kA, 100);
  a.Enqueue(NodeId(1), kIsland, {{kA, 101}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{});
  EXPECT_TRUE(a.Head(kIsland)->hopeless);
}

TEST(AdmissionTest, ADeviceWithoutLimitTakesAll) {
  Admission a;
  a.SetDevice(kA, 0);
  a.Enqueue(NodeId(1), kIsland, {{kA, int64_t{1} << 60}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
}

}  // namespace
}  // namespace fairway
