// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/sanitized_for_test.h"

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

// Nodes that need device 1, which is full, and others of 12 devices: each another set.
class ManySetsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kNodes = kSanitized ? 1024 : 2048;
  // The most devices and lines that a call may look at which does not admit anything.
  static constexpr size_t kMostSteps = 1500;
  static constexpr size_t kMostOfAdmit = 40000;

  ManySetsTest() {
    for (uint32_t d = 1; d <= 12; ++d) a_.SetDevice(DeviceId(d), int64_t{1} << 40);
    a_.SetDevice(DeviceId(1), kNodes);
    a_.Enqueue(NodeId(1), SessionId(1), kIsland, {{DeviceId(1), kNodes}});
    EXPECT_EQ(a_.Admit(kIsland), Nodes{NodeId(1)});
  }
  // Of node 2 + i.
  static std::vector<MemoryNeed> Needs(uint64_t i) {
    std::vector<MemoryNeed> needs = {{DeviceId(1), 1}};
    for (uint32_t d = 0; d < 11; ++d) {
      if ((i >> d & 1) != 0) needs.push_back(MemoryNeed{DeviceId(2 + d), 1});
    }
    return needs;
  }
  // Calls it, and returns the steps that it took.
  template <typename F>
  size_t StepsOf(F call) {
    a_.TakeSteps();
    call();
    return a_.TakeSteps();
  }
  // Admits what fits.
  Nodes AdmitAll() {
    Nodes all;
    while (a_.HasCandidates(kIsland)) {
      EXPECT_LE(StepsOf([&] {
                  const Nodes some = a_.Admit(kIsland, 32);
                  all.insert(all.end(), some.begin(), some.end());
                }),
                kMostOfAdmit);
    }
    return all;
  }

  Admission a_;
};

// Earlier each set knew all that it overlaps, which took the square of their number in memory, and
// its cube to forget them.
TEST_F(ManySetsTest, ASessionMayWaitWithThem) {
  for (uint64_t i = 0; i < kNodes; ++i)
    ASSERT_LE(StepsOf([&] { a_.Enqueue(NodeId(2 + i), kOne, kIsland, Needs(i)); }), kMostSteps);
  EXPECT_EQ(AdmitAll(), Nodes{});
  // They are in each other's way on device 1, so all go in their order.
  a_.Release(DeviceId(1), kNodes / 2);
  const Nodes first = AdmitAll();
  ASSERT_EQ(first.size(), kNodes / 2);
  for (uint64_t i = 0; i < first.size(); ++i) ASSERT_EQ(first[i], NodeId(2 + i));
  // The rest is given up, from both ends.
  for (uint64_t i = kNodes / 2; i < kNodes; ++i) {
    const uint64_t node =
        i % 2 == 0 ? 2 + kNodes / 2 + (i - kNodes / 2) / 2 : 1 + kNodes - (i - kNodes / 2) / 2;
    bool waited = false;
    ASSERT_LE(StepsOf([&] { waited = a_.Remove(NodeId(node), kIsland); }), kMostSteps);
    ASSERT_TRUE(waited) << node;
  }
  EXPECT_EQ(a_.waiting(kIsland), 0u);
}

// Of many sets some are looked at each time. What comes back meanwhile is found as well.
TEST_F(ManySetsTest, NothingThatComesBackIsOverlooked) {
  for (uint64_t i = 0; i < kNodes; ++i)
    a_.Enqueue(NodeId(2 + i), SessionId(10 + i), kIsland, Needs(i));
  EXPECT_EQ(AdmitAll(), Nodes{});
  for (const size_t calls : {0, 1, 2, 5, 40}) {
    a_.Release(DeviceId(1), 1);
    Nodes admitted;
    for (size_t c = 0; c < calls; ++c) {
      const Nodes some = a_.Admit(kIsland, 1);
      admitted.insert(admitted.end(), some.begin(), some.end());
    }
    a_.Release(DeviceId(1), 2);
    EXPECT_EQ(admitted.size() + AdmitAll().size(), 3u) << calls;
  }
}

TEST_F(ManySetsTest, ManySessionsAreTakenSomeAtATime) {
  constexpr uint64_t kSessions = 100;
  for (uint64_t i = 0; i < kSessions; ++i)
    a_.Enqueue(NodeId(2 + i), SessionId(200 - i), kIsland, Needs(i));
  AdmitAll();
  std::set<NodeId> fresh;
  for (int calls = 0; a_.HasNewFirsts(kIsland); ++calls) {
    ASSERT_LT(calls, 10);
    for (const Admission::Shortage& first : a_.NewFirsts(kIsland, 10)) fresh.insert(first.node);
  }
  EXPECT_EQ(fresh.size(), kSessions);

  std::vector<Admission::Shortage> firsts;
  NodeId from;
  int calls = 0;
  do {
    a_.Firsts(kIsland, 30, from, firsts);
    ++calls;
  } while (from);
  EXPECT_EQ(calls, 4);
  ASSERT_EQ(firsts.size(), kSessions);
  for (uint64_t i = 0; i < kSessions; ++i) EXPECT_EQ(firsts[i].node, NodeId(2 + i));

  a_.Release(DeviceId(1), kNodes);
  while (a_.HasCandidates(kIsland))
    EXPECT_EQ(a_.Admit(kIsland, 32, [](NodeId) { return false; }), Nodes{});
  const Nodes held = a_.TryHeldAgain(kIsland, NodeId(), 60);
  ASSERT_EQ(held.size(), 60u);
  EXPECT_EQ(a_.TryHeldAgain(kIsland, NodeId(held.back().value + 1), 60).size(), 40u);
}

// Nodes of all kinds come, wait, are admitted and given up. None is admitted before an older one of
// its session that waits for a common device, and all get their memory in the end.
TEST(AdmissionTest, OfASessionTheOldestGoesFirstOnEachDevice) {
  constexpr uint32_t kDevices = 6;
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<uint32_t>(random() % n); };
  for (int world = 0; world < 100; ++world) {
    Admission a;
    std::map<NodeId, std::pair<SessionId, std::vector<MemoryNeed>>> waiting;
    std::vector<MemoryNeed> used;
    for (uint32_t d = 1; d <= kDevices; ++d) a.SetDevice(DeviceId(d), 4);
    const auto admit = [&] {
      for (const NodeId id : a.Admit(kIsland, 1 + below(8))) {
        const auto [session, needs] = waiting.extract(id).mapped();
        for (const auto& [older, of] : waiting) {
          if (older > id || of.first != session) continue;
          for (const MemoryNeed& need : of.second) {
            for (const MemoryNeed& mine : needs) ASSERT_NE(need.device, mine.device);
          }
        }
        used.insert(used.end(), needs.begin(), needs.end());
      }
    };
    const auto release = [&] {
      std::swap(used[below(used.size())], used.back());
      a.Release(used.back().device, used.back().bytes);
      used.pop_back();
    };
    for (int step = 0; step < 200; ++step) {
      const NodeId id(1 + below(400));  // some come late
      if (!waiting.contains(id)) {
        const SessionId session(1 + id.value % 3);
        std::vector<MemoryNeed> needs;
        for (uint32_t d = 1; d <= kDevices; ++d) {
          if (below(3) == 0) needs.push_back(MemoryNeed{DeviceId(d), 1 + below(3)});
        }
        std::shuffle(needs.begin(), needs.end(), random);
        a.Enqueue(id, session, kIsland, needs);
        waiting.emplace(id, std::pair(session, needs));
      }
      if (below(8) == 0) {
        const NodeId gone = std::next(waiting.begin(), below(waiting.size()))->first;
        ASSERT_TRUE(a.Remove(gone, kIsland));
        waiting.erase(gone);
      }
      admit();
      if (!used.empty() && below(3) == 0) release();
    }
    while (!waiting.empty()) {
      while (a.HasCandidates(kIsland)) admit();
      if (waiting.empty()) break;
      ASSERT_FALSE(used.empty()) << waiting.size() << " wait for nothing";
      release();
    }
  }
}

TEST(InRowsTest, DevicesInARowThatNeedTheSameAreOneRow) {
  const auto need = [](uint32_t device, int64_t bytes, uint32_t count = 1) {
    return MemoryNeed{DeviceId(device), bytes, count};
  };
  EXPECT_TRUE(InRows({}).empty());
  EXPECT_EQ(InRows({need(3, 8), need(2, 8), need(5, 8), need(6, 4), need(4, 8)}),
            (std::vector<MemoryNeed>{need(2, 8, 4), need(6, 4)}));
  // A device may be there twice.
  EXPECT_EQ(InRows({need(1, 8), need(2, 8), need(1, 8)}),
            (std::vector<MemoryNeed>{need(1, 8), need(1, 8, 2)}));
}

TEST(AdmissionRowsTest, ARowIsReservedAndGivenBackOnEachOfItsDevices) {
  Admission admission;
  for (uint32_t d = 0; d < 200; ++d) admission.SetDevice(DeviceId(d), 100);
  admission.Enqueue(NodeId(1), SessionId(1), IslandId(1), {{DeviceId(10), 60, 150}});
  EXPECT_EQ(admission.Admit(IslandId(1)), std::vector<NodeId>{NodeId(1)});
  EXPECT_EQ(admission.used(DeviceId(9)), 0);
  EXPECT_EQ(admission.used(DeviceId(10)), 60);
  EXPECT_EQ(admission.used(DeviceId(159)), 60);
  EXPECT_EQ(admission.used(DeviceId(160)), 0);
  admission.Enqueue(NodeId(2), SessionId(1), IslandId(1), {{DeviceId(0), 50, 200}});
  EXPECT_TRUE(admission.Admit(IslandId(1)).empty());
  EXPECT_EQ(admission.First(IslandId(1), SessionId(1))->device, DeviceId(10))
      << "the first that lacks";
  EXPECT_EQ(admission.First(IslandId(1), SessionId(1))->lacks, 150 * 10);
  admission.Release(DeviceId(10), 60, 150);
  EXPECT_EQ(admission.Admit(IslandId(1)), std::vector<NodeId>{NodeId(2)});
}

}  // namespace
}  // namespace fairway
