// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the controller's core: waiting for memory, and failing for want of it.
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/sessions.h"
#include "scheduler/admission.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(ClusterTest, MemoryIsReservedBeforeARunAndARunThatDoesNotFitWaits) {
  Start(1024);
  PutReady(1, 0, 64);  // 256 bytes
  const uint64_t f = Define(1, {0}, {F32({64})}, {F32({64})}, 256);
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());  // 512 more: 768 bytes
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());  // does not fit
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- install x1", HasSubstr("prepare n2")));
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 768);
  EXPECT_TRUE(cluster.sessions().BacklogOf(session).nodes == 2);
  Installed(a, 1);
  actions.Take();
  End(a, 2);  // its 512 bytes of temporary memory are back
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("prepare n3"), HasSubstr("launch n3")));
  End(a, 3);
}

// One of its shards came, another did not. The one that came stays until it is freed, when all
// readers have been told.
TEST_F(ClusterTest, WhatCameOfAReceiveThatFailedIsCountedUntilItIsFreed) {
  Start(1024);
  const ArraySpec spec{DType::kF32, Shape{{256}}, Sharding::Tiled({0, 1}, {2}, {0, 1}).value()};
  const NodeId node = cluster.arrays().Put(session, 1, spec, {0, 1})->upload;
  for (const int32_t blob : {0, 1})
    cluster.arrays().ProvideUpload(node, blob, BytesRef(Blob::Make(512)));
  const std::vector<uint64_t> many(3000, 1);
  ASSERT_TRUE(
      cluster.arrays().Copy(session, many, {{2, 3}}, {}, CopySemantics::kAlwaysCopy, {}).ok());
  RunTurns();
  const SessionId other = actions.Open(cluster);
  const ArraySpec large{DType::kF32, Shape{{192}}, Sharding::SingleDevice(0)};
  const NodeId waits = cluster.arrays().Put(other, 2, large, {0})->upload;
  cluster.arrays().ProvideUpload(waits, 0, BytesRef(Blob::Make(768)));
  actions.Take();
  End(a, node.value, absl::ResourceExhaustedError("no memory left"));
  EXPECT_TRUE(actions.turn_wanted);
  RunTurns();
  const Lines lines = actions.Take();
  const auto freed = std::find(lines.begin(), lines.end(), "e1 <- free [1]");
  const auto received = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.starts_with(fmt::format("e1 <- receive n{} ", waits));
  });
  EXPECT_LT(freed - lines.begin(), received - lines.begin());
  EXPECT_NE(received, lines.end());
}

// The younger node fits beside the older one if the running one frees its memory. It comes second.
TEST_F(ClusterTest, RoomIsForTheOlderNodeThatItWasMadeFor) {
  Start(384);
  PutReady(1, 0);  // 64 bytes
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})}, /*temp=*/128);
  const ArraySpec small{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  const ArraySpec large{DType::kF32, Shape{{32}}, Sharding::SingleDevice(0)};
  const NodeId late = cluster.arrays().Put(session, 2, large, {0})->upload;
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());
  Installed(a, 1);
  const SessionId other = actions.Open(cluster);
  const NodeId younger = cluster.arrays().Put(other, 1, small, {0})->upload;
  cluster.arrays().ProvideUpload(younger, 0, BytesRef(Blob::Make(16)));
  ASSERT_EQ(cluster.fleet().Usage()[0].used, 320);
  actions.Take();
  cluster.arrays().ProvideUpload(late, 0, BytesRef(Blob::Make(128)));
  const Lines lines = actions.Take();
  EXPECT_THAT(lines, Contains(HasSubstr(fmt::format("cancel n{}", younger))));
  EXPECT_THAT(lines, Contains(HasSubstr(fmt::format("receive n{}", late))));
  EXPECT_THAT(lines, Not(Contains(HasSubstr(fmt::format("receive n{}", younger)))));
}

TEST_F(ClusterTest, ARunThatCanNeverFitFailsAtOnce) {
  Start(1024);
  PutReady(1, 0, 64);
  const uint64_t f = Define(1, {0}, {F32({64})}, {F32({300})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  cluster.arrays().Watch(session, 1, {2});
  EXPECT_THAT(actions.Take(),
              ElementsAre(AllOf(HasSubstr("RESOURCE_EXHAUSTED"),
                                HasSubstr("f1 needs 1216 bytes on device 0 of island ia"),
                                HasSubstr("it can never fit"))));
}

TEST_F(ClusterTest, WhatNoDeviceHasCanNeverFitThoughNoLimitIsKnown) {
  Start();
  const int64_t most = int64_t{1} << 62;
  const uint64_t f = Define(1, {0}, {}, {F32({most / 4}), F32({most / 4})}, INT64_MAX);
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {1, 2}).ok());
  cluster.arrays().Watch(session, 1, {1});
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("it can never fit")));
}

TEST_F(ClusterTest, WhatIsAlmostMoreThanAnyDeviceHasWaitsLikeOthers) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {}, {F32({Admission::kNoLimit / 4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {2}).ok());
  cluster.arrays().Watch(session, 1, {2});
  cluster.Tick(1000);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.Tick(3000);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("RESOURCE_EXHAUSTED")));
}

TEST_F(ClusterTest, WhatCameLateWaitsForAGraceOfItsOwnThoughItWasMadeEarlier) {
  Start(1024);
  PutReady(1, 0, 200);
  const auto late =
      cluster.arrays().Put(session, 2, {DType::kF32, Shape{{200}}, Sharding::SingleDevice(0)}, {0});
  const uint64_t f = Define(1, {0}, {F32({200})}, {F32({200})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());
  cluster.arrays().Watch(session, 2, {2});
  cluster.arrays().Watch(session, 3, {3});
  cluster.Tick(1000);
  cluster.arrays().ProvideUpload(late->upload, 0, BytesRef(Blob::Make(800)));
  cluster.Tick(3000);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.Tick(3100);
  cluster.Tick(5100);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 2: RESOURCE_EXHAUSTED"),
                                          HasSubstr("watched 3: RESOURCE_EXHAUSTED")));
}

TEST_F(ClusterTest, ARunThatWouldFitOnlyIfTheClientFreedFailsAfterTheGrace) {
  Start(1024);
  PutReady(1, 0, 200);
  const uint64_t f = Define(1, {0}, {F32({200})}, {F32({200})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  cluster.arrays().Watch(session, 1, {2});
  cluster.Tick(1000);
  cluster.Tick(2900);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.Tick(3000);
  EXPECT_THAT(
      actions.Take(),
      ElementsAre(AllOf(HasSubstr("RESOURCE_EXHAUSTED"),
                        HasSubstr("session 1 (this one) holds 832 bytes in 1 shard buffers"))));
}

TEST_F(ClusterTest, AllThatHaveWaitedForTheGraceFailTogetherAndThoseThatCameLaterAfterTheirs) {
  Start(1024);
  PutReady(1, 0, 200);
  const uint64_t f = Define(1, {0}, {F32({200})}, {F32({200})});
  for (const uint64_t out : {2, 3, 4}) {
    ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {out}).ok());
    cluster.arrays().Watch(session, out, {out});
  }
  cluster.Tick(1000);
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {5}).ok());
  cluster.arrays().Watch(session, 5, {5});
  cluster.Tick(3000);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 2: RESOURCE_EXHAUSTED"),
                                          HasSubstr("watched 3: RESOURCE_EXHAUSTED"),
                                          HasSubstr("watched 4: RESOURCE_EXHAUSTED")));
  cluster.Tick(3100);
  cluster.Tick(5000);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.Tick(5100);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 5: RESOURCE_EXHAUSTED")));
}

TEST_F(ClusterTest, AFetchOfWhatStaysIsNoReasonToWaitForMemory) {
  Start(1024);
  PutReady(1, 0, 200);
  const uint64_t f = Define(1, {0}, {F32({200})}, {F32({200})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  cluster.arrays().Watch(session, 1, {2});
  for (const int64_t now : {1000, 2000, 2900}) {  // one launch after the other, with one under way
    if (now > 1000) cluster.arrays().FetchArrived(TransferId(now == 2000 ? 3 : 4), Bytes("x"));
    cluster.arrays().Fetch(session, 7, 1);
    cluster.Tick(now);
  }
  actions.Take();
  cluster.Tick(3000);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 1: RESOURCE_EXHAUSTED")));
  cluster.arrays().FetchArrived(TransferId(5), Bytes("x"));
}

TEST_F(ClusterTest, AFetchOfWhatWasGivenUpIsWaitedForBecauseItFreesMemory) {
  Start(1024);
  PutReady(1, 0, 200);
  PutReady(2, 1);
  const uint64_t f = Define(1, {0}, {}, {F32({200})});
  cluster.arrays().Fetch(session, 7, 1);
  ASSERT_TRUE(cluster.arrays().Delete(session, {1}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {3}).ok());
  cluster.arrays().Watch(session, 1, {3});
  actions.Take();
  for (const int64_t now : {1000, 3000, 5000}) cluster.Tick(now);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.arrays().FetchArrived(TransferId(3), Bytes("x"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("prepare n4")));
}

TEST_F(ClusterTest, AnUpdateInPlaceNeedsItsMemoryOnce) {
  Start(1024);
  PutReady(1, 0, 200);  // 800 of 1024 bytes
  const uint64_t f = Define(1, {0}, {F32({200}, true)}, {F32({200})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  EXPECT_THAT(actions.Take(),
              ElementsAre(HasSubstr("install"), HasSubstr("prepare"), HasSubstr("launch")));
  End(a, 2);
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 832);
}

// One session holds most of device 0 and waits for as much again: 9984 of those bytes are missing.
class NeighboursTest : public ClusterTest {
 protected:
  void SetUp() override {
    Start(16384);
    hog = session;
    PutReady(1, 0, 3200);
    for (uint64_t i = 0; i < 12; ++i) PutReady(100 + i, 0, 1);
    session = actions.Open(cluster, "other");
  }
  // For the session that holds most of the memory.
  uint64_t DefineForHog(uint64_t id, std::vector<ValueType> in, std::vector<ValueType> out) {
    std::swap(session, hog);
    const uint64_t handle = Define(id, {0}, std::move(in), std::move(out));
    std::swap(session, hog);
    return handle;
  }
  void Ask() {
    const uint64_t f = DefineForHog(1, {F32({3200})}, {F32({3200})});
    ASSERT_TRUE(cluster.executables().Execute(hog, f, {1}, {}, {2}).ok());
    cluster.arrays().Watch(hog, 2, {2});
    EXPECT_THAT(actions.Take(), IsEmpty());
  }
  SessionId hog;
};

TEST_F(NeighboursTest, OthersPassWhatWaitsForMemoryThatItsClientKeeps) {
  Ask();
  PutReady(1, 1);
  PutReady(2, 0, 50);
  const uint64_t g = Define(2, {0}, {F32({50})}, {F32({50})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("prepare")));
}

TEST_F(NeighboursTest, FreesThatDoNotHelpPutNothingOff) {
  Ask();
  cluster.Tick(1000);
  for (const int64_t now : {1500, 2000, 2500}) {
    ASSERT_TRUE(cluster.arrays().Delete(hog, {100 + static_cast<uint64_t>(now) / 500}).ok());
    cluster.Tick(now);
  }
  cluster.Tick(2900);
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("watched"))));
  cluster.Tick(3000);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("watched 2: RESOURCE_EXHAUSTED")));
}

TEST_F(NeighboursTest, ASixteenthOfWhatItLacksGivesItAnotherGrace) {
  Ask();
  cluster.Tick(1000);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(cluster.arrays().Delete(hog, {100 + i}).ok());
  cluster.Tick(2500);
  cluster.Tick(4400);
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("watched"))));
  cluster.Tick(4500);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("watched 2: RESOURCE_EXHAUSTED")));
}

TEST_F(NeighboursTest, WhatRanBeforeItIsWaitedForAndWhatCameLaterIsNot) {
  PutReady(2, 0, 50);
  const uint64_t g = Define(2, {0}, {F32({50})}, {F32({50})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  Installed(a, 2);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n15")));
  Ask();
  for (const int64_t now : {1000, 3000, 5000}) cluster.Tick(now);
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {4}).ok());
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n17")));
  End(a, 15);
  cluster.Tick(6900);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.Tick(7000);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 2: RESOURCE_EXHAUSTED")));
  End(a, 17);
}

TEST_F(NeighboursTest, WhatBeganBetweenTwoThatWaitIsWaitedForByTheSecond) {
  PutReady(2, 0, 50);
  const uint64_t g = Define(2, {0}, {F32({50})}, {F32({50})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  Installed(a, 2);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n15")));
  Ask();
  cluster.Tick(1000);
  cluster.Tick(3000);
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {4}).ok());
  const uint64_t f = DefineForHog(3, {F32({3200})}, {F32({3200})});
  ASSERT_TRUE(cluster.executables().Execute(hog, f, {1}, {}, {5}).ok());
  cluster.arrays().Watch(hog, 3, {5});
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n17")));
  cluster.Tick(5000);  // n15 is under way and is waited for
  End(a, 15);
  cluster.Tick(7000);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 2: RESOURCE_EXHAUSTED")));
  End(a, 17);
  for (const int64_t now : {7100, 9100}) cluster.Tick(now);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 3: RESOURCE_EXHAUSTED")));
}

// Two copies between two islands wait for each other: each reads an array that was given up, and
// that fills the device which the other one needs. A neighbour always computes beside them.
TEST_F(ClusterTest, OneOfTwoThatWaitForEachOtherIsGivenUpThoughANeighbourGoesOn) {
  Start(1024);
  PutReady(1, 0, 200);
  PutReady(2, 2, 200);
  for (const uint64_t array : {1, 2}) {
    ASSERT_TRUE(cluster.arrays()
                    .Copy(session, {array}, {{array == 1 ? 2 : 0}}, std::nullopt,
                          CopySemantics::kAlwaysCopy, {array + 2})
                    .ok());
    cluster.arrays().Watch(session, array, {array + 2});
  }
  ASSERT_TRUE(cluster.arrays().Delete(session, {1, 2}).ok());
  EXPECT_THAT(actions.Take(), IsEmpty());
  session = actions.Open(cluster, "neighbour");
  const uint64_t f = Define(1, {1}, {}, {F32({4})}), g = Define(2, {3}, {}, {F32({4})});
  uint64_t node = 5, result = 1;
  Lines told;
  for (int64_t now = 0; now < 6000; now += 500) {
    for (const uint64_t code : {f, g}) {
      ASSERT_TRUE(cluster.executables().Execute(session, code, {}, {}, {result++}).ok());
    }
    if (now == 0) Installed(a, 1);
    if (now == 0) Installed(b, 2);
    cluster.Tick(now);
    for (; now > 0 && node + 2 < 5 + result; node += 2) {
      End(a, node);
      End(b, node + 1);
    }
    for (const std::string& line : actions.Take()) {
      if (line.find("n3") != std::string::npos || line.find("watched") != std::string::npos)
        told.push_back(line);
    }
  }
  // The other one has begun.
  EXPECT_THAT(told, AllOf(Contains(HasSubstr("watched 2: RESOURCE_EXHAUSTED")),
                          Contains(HasSubstr("e2 <- receive n3"))));
  End(b, 3);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("watched 1: OK")));
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 0);
}

TEST_F(NeighboursTest, RoomThatWorkUnderWayWillMakeIsKeptForTheOneThatWaitsLongest) {
  const uint64_t g = Define(2, {0}, {}, {F32({500})});  // 2048 of the 2816 free bytes
  ASSERT_TRUE(cluster.executables().Execute(session, g, {}, {}, {3}).ok());
  ASSERT_TRUE(cluster.arrays().Delete(session, {3}).ok());
  const uint64_t f = DefineForHog(1, {}, {F32({600})});  // 2432 bytes
  ASSERT_TRUE(cluster.executables().Execute(hog, f, {}, {}, {2}).ok());
  ASSERT_TRUE(
      cluster.executables().Execute(session, Define(3, {0}, {}, {F32({150})}), {}, {}, {4}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("install x2"), HasSubstr("prepare n14")));
  EXPECT_EQ(cluster.fleet().Islands()[0].queued, 2u);
  Installed(a, 2);
  actions.Take();
  End(a, 14);
  // The first fits. The rest of the memory is not enough for the second.
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("prepare n15")));
  EXPECT_EQ(cluster.fleet().Islands()[0].queued, 1u);
}

}  // namespace
}  // namespace fairway
