// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr IslandId kIsland(1);
constexpr DeviceId kA(1);
constexpr DeviceId kB(2);
constexpr SessionId kOne(1);
constexpr SessionId kTwo(2);
using Nodes = std::vector<NodeId>;

TEST(AdmissionTest, ANodeReservesAllItsDevicesOrNone) {
  Admission a;
  a.SetDevice(kA, 100);
  a.SetDevice(kB, 100);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, 60}, {kB, 60}});
  a.Enqueue(NodeId(2), kOne, kIsland, {{kA, 10}, {kB, 60}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
  EXPECT_EQ(a.used(kA), 60);
  const auto first = a.First(kIsland, kOne);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->device, kB);
  EXPECT_EQ(first->lacks, 20);
  EXPECT_FALSE(first->hopeless);
  a.Release(kB, 20);
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(2)});
}

TEST(AdmissionTest, ASmallNodeDoesNotOvertakeALargeOneOfItsSessionThatWaits) {
  Admission a;
  a.SetDevice(kA, 100);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, 60}});
  a.Enqueue(NodeId(2), kOne, kIsland, {{kA, 60}});
  a.Enqueue(NodeId(3), kOne, kIsland, {{kA, 1}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
  EXPECT_EQ(a.Admit(kIsland), Nodes{});
  EXPECT_TRUE(a.Remove(NodeId(2), kIsland));
  EXPECT_FALSE(a.Remove(NodeId(2), kIsland));
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(3)});
}

TEST(AdmissionTest, ALineIsForADevice) {
  Admission a;
  a.SetDevice(kA, 100);
  a.SetDevice(kB, 100);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, 60}});
  a.Enqueue(NodeId(2), kOne, kIsland, {{kA, 60}});
  a.Enqueue(NodeId(3), kOne, kIsland, {{kB, 60}});          // needs no memory of A
  a.Enqueue(NodeId(4), kOne, kIsland, {{kA, 1}, {kB, 1}});  // comes after 2 on A
  a.Enqueue(NodeId(5), kOne, kIsland, {{kB, 1}});           // comes after 4 on B
  EXPECT_EQ(a.Admit(kIsland), (Nodes{NodeId(1), NodeId(3)}));
  EXPECT_EQ(a.waiting(kIsland), 3u);
  a.Release(kA, 60);
  EXPECT_EQ(a.Admit(kIsland), (Nodes{NodeId(2), NodeId(4), NodeId(5)}));
}

TEST(AdmissionTest, AnotherSessionPassesANodeWhoseRoomNothingUnderWayWillMake) {
  Admission a;
  a.SetDevice(kA, 100);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, 60}});
  a.Enqueue(NodeId(2), kOne, kIsland, {{kA, 60}});
  a.Enqueue(NodeId(3), kTwo, kIsland, {{kA, 30}});
  EXPECT_EQ(a.Admit(kIsland), (Nodes{NodeId(1), NodeId(3)}));
  ASSERT_EQ(a.Firsts(kIsland).size(), 1u);
  EXPECT_EQ(a.Firsts(kIsland)[0].session, kOne);
}

TEST(AdmissionTest, RoomIsKeptForANodeThatWillFitWhenWhatIsUnderWayHasEnded) {
  Admission a;
  a.SetDevice(kA, 100);
  a.Enqueue(NodeId(1), kTwo, kIsland, {{kA, 60}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
  a.WillRelease(kA, 60);
  a.Enqueue(NodeId(2), kOne, kIsland, {{kA, 90}});
  a.Enqueue(NodeId(3), kTwo, kIsland, {{kA, 11}});  // would leave less than 90
  a.Enqueue(NodeId(4), kTwo, kIsland, {{kA, 10}});  // comes after it
  EXPECT_EQ(a.Admit(kIsland), Nodes{});
  EXPECT_TRUE(a.Remove(NodeId(3), kIsland));
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(4)});
  a.WillRelease(kA, -60);
  a.Release(kA, 60);
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(2)});
}

TEST(AdmissionTest, RoomIsKeptOnAllDevicesOfAGang) {
  Admission a;
  a.SetDevice(kA, 100);
  a.SetDevice(kB, 100);
  a.Enqueue(NodeId(1), kTwo, kIsland, {{kA, 100}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
  a.WillRelease(kA, 100);
  a.Enqueue(NodeId(2), kOne, kIsland, {{kA, 80}, {kB, 80}});
  a.Enqueue(NodeId(3), kTwo, kIsland, {{kB, 21}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{});
  a.WillRelease(kA, -100);  // a client keeps the array after all
  a.Release(kB, 0);
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(3)});
}

TEST(AdmissionTest, ANodeThatComesLateTakesItsPlaceInItsSession) {
  Admission a;
  a.SetDevice(kA, 100);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, 60}});
  a.Enqueue(NodeId(3), kOne, kIsland, {{kA, 60}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
  EXPECT_EQ(a.NewFirsts(kIsland).size(), 1u);
  EXPECT_EQ(a.NewFirsts(kIsland).size(), 0u);
  a.Enqueue(NodeId(2), kOne, kIsland, {{kA, 50}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{});
  const auto fresh = a.NewFirsts(kIsland);
  ASSERT_EQ(fresh.size(), 1u);
  EXPECT_EQ(fresh[0].node, NodeId(2));
  a.Release(kA, 60);
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(2)});
}

TEST(AdmissionTest, MoreThanTheDeviceHasIsHopeless) {
  Admission a;
  a.SetDevice(kA, 100);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, 101}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{});
  EXPECT_TRUE(a.First(kIsland, kOne)->hopeless);
}

TEST(AdmissionTest, ADeviceWithoutLimitTakesAll) {
  Admission a;
  a.SetDevice(kA, 0);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, int64_t{1} << 60}});
  EXPECT_EQ(a.Admit(kIsland), Nodes{NodeId(1)});
}

TEST(AdmissionTest, ANodeThatIsHeldKeepsItsPlaceAndItsRoom) {
  Admission admission;
  admission.SetDevice(DeviceId(1), 100);
  const IslandId island(1);
  std::set<NodeId> refused = {NodeId(1)};
  const auto may = [&](NodeId node) { return !refused.contains(node); };
  const auto admit = [&] { return admission.Admit(island, SIZE_MAX, may); };
  admission.Enqueue(NodeId(1), SessionId(1), island, {{DeviceId(1), 60}});
  admission.Enqueue(NodeId(2), SessionId(1), island, {{DeviceId(1), 10}});
  admission.Enqueue(NodeId(3), SessionId(2), island, {{DeviceId(1), 40}});
  admission.Enqueue(NodeId(4), SessionId(3), island, {{DeviceId(1), 40}});
  EXPECT_EQ(admit(), (Nodes{NodeId(3)}));  // others pass it, and leave its room
  while (admission.HasCandidates(island)) EXPECT_EQ(admit(), Nodes());
  EXPECT_EQ(admission.waiting(island), 3u);

  EXPECT_EQ(admit(), Nodes()) << "node 2 stays behind node 1";
  EXPECT_TRUE(admission.Firsts(island).empty()) << "it does not wait for memory";
  EXPECT_EQ(admission.TryHeldAgain(island), (Nodes{NodeId(1)}));
  EXPECT_EQ(admit(), Nodes());
  refused.clear();
  EXPECT_FALSE(admission.HasCandidates(island));
  admission.TryHeldAgain(island);
  EXPECT_EQ(admit(), (Nodes{NodeId(1)}));
  admission.Release(DeviceId(1), 40);
  EXPECT_EQ(admit(), (Nodes{NodeId(2)}));
  admission.Release(DeviceId(1), 60);
  EXPECT_EQ(admit(), (Nodes{NodeId(4)}));
  EXPECT_EQ(admission.TryHeldAgain(island), Nodes());
}

// Node 3 does not fit, is kept room for and then refused; node 2 is older, so it leaves no room for
// node 3.
TEST(AdmissionTest, RoomThatIsKeptForAYoungerNodeIsNoReasonNotToLook) {
  Admission a;
  a.SetDevice(kA, 100);
  a.SetDevice(kB, 192);
  const auto may = [](NodeId node) { return node == NodeId(9) || node == NodeId(2); };
  a.Enqueue(NodeId(9), SessionId(9), kIsland, {{kB, 192}});
  EXPECT_EQ(a.Admit(kIsland, SIZE_MAX, may), Nodes{NodeId(9)});
  a.WillRelease(kB, 192);
  a.Enqueue(NodeId(1), kOne, kIsland, {{kA, 64}});
  a.Enqueue(NodeId(2), kOne, kIsland, {{kB, 64}});
  a.Enqueue(NodeId(3), kTwo, kIsland, {{kB, 192}});
  EXPECT_EQ(a.Admit(kIsland, SIZE_MAX, may), Nodes{});
  a.WillRelease(kB, -192);
  a.Release(kB, 192);
  EXPECT_EQ(a.Admit(kIsland, SIZE_MAX, may), Nodes{NodeId(2)});
}

TEST(AdmissionTest, AHeldNodeMayBeRemoved) {
  Admission admission;
  admission.SetDevice(DeviceId(1), 100);
  admission.Enqueue(NodeId(1), SessionId(1), IslandId(1), {{DeviceId(1), 60}});
  EXPECT_EQ(admission.Admit(IslandId(1), 10, [](NodeId) { return false; }), Nodes());
  EXPECT_TRUE(admission.Remove(NodeId(1), IslandId(1)));
  EXPECT_EQ(admission.TryHeldAgain(IslandId(1)), Nodes());
  EXPECT_EQ(admission.waiting(IslandId(1)), 0u);
}

}  // namespace
}  // namespace fairway
