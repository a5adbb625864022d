// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the controller's core: what waits for memory, and what fails for want of it.
#include "controller/cluster/cluster_fixture_for_test.h"
#include "scheduler/admission.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ClusterTest, MemoryIsReservedBeforeARunAndARunThatDoesNotFitWaits) {
  Start(1024);
  PutReady(1, 0, 64);  // 256 bytes
  const uint64_t f = Define(1, {0}, {F32({64})}, {F32({64})}, 256);
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {2}).ok());  // 512 more: 768
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {3}).ok());  // does not fit
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- install x1", HasSubstr("prepare n2")));
  EXPECT_EQ(cluster.Usage()[0].used, 768);
  EXPECT_TRUE(cluster.SessionBacklog(session).nodes == 2);
  Installed(a, 1);
  actions.Take();
  End(a, 2);  // its temporary memory is back: 512
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("prepare n3"), HasSubstr("launch n3")));
  End(a, 3);
}

TEST_F(ClusterTest, ARunThatCanNeverFitFailsAtOnce) {
  Start(1024);
  PutReady(1, 0, 64);
  const uint64_t f = Define(1, {0}, {F32({64})}, {F32({300})});
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {2}).ok());
  cluster.Watch(session, 1, {2});
  EXPECT_THAT(actions.Take(),
              ElementsAre(AllOf(HasSubstr("RESOURCE_EXHAUSTED"),
                                HasSubstr("f1 needs 1216 bytes on device 0 of island ia"),
                                HasSubstr("it can never fit"))));
}

TEST_F(ClusterTest, WhatNoDeviceHasCanNeverFitThoughNoLimitIsKnown) {
  Start();
  const int64_t most = int64_t{1} << 62;
  const uint64_t f = Define(1, {0}, {}, {F32({most / 4}), F32({most / 4})}, INT64_MAX);
  ASSERT_TRUE(cluster.Execute(session, f, {}, {}, {1, 2}).ok());
  cluster.Watch(session, 1, {1});
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("it can never fit")));
}

TEST_F(ClusterTest, WhatIsAlmostMoreThanAnyDeviceHasWaitsLikeOthers) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {}, {F32({Admission::kNoLimit / 4})});
  ASSERT_TRUE(cluster.Execute(session, f, {}, {}, {2}).ok());
  cluster.Watch(session, 1, {2});
  cluster.Tick(1000);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.Tick(3000);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("RESOURCE_EXHAUSTED")));
}

TEST_F(ClusterTest, WhatCameLateWaitsForAGraceOfItsOwnThoughItWasMadeEarlier) {
  Start(1024);
  PutReady(1, 0, 200);
  const auto late =
      cluster.Put(session, 2, {DType::kF32, Shape{{200}}, Sharding::SingleDevice(0)}, {0});
  const uint64_t f = Define(1, {0}, {F32({200})}, {F32({200})});
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {3}).ok());
  cluster.Watch(session, 2, {2});
  cluster.Watch(session, 3, {3});
  cluster.Tick(1000);
  cluster.ProvideUpload(late->upload, 0, BytesRef(Blob::Make(800)));
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
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {2}).ok());
  cluster.Watch(session, 1, {2});
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
    ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {out}).ok());
    cluster.Watch(session, out, {out});
  }
  cluster.Tick(1000);
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {5}).ok());
  cluster.Watch(session, 5, {5});
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
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {2}).ok());
  cluster.Watch(session, 1, {2});
  for (const int64_t now : {1000, 2000, 2900}) {  // one after the other, and one under way
    if (now > 1000) cluster.FetchArrived(TransferId(now == 2000 ? 3 : 4), Bytes("x"));
    cluster.Fetch(session, 7, 1);
    cluster.Tick(now);
  }
  actions.Take();
  cluster.Tick(3000);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 1: RESOURCE_EXHAUSTED")));
  cluster.FetchArrived(TransferId(5), Bytes("x"));
}

TEST_F(ClusterTest, AFetchOfWhatWasGivenUpIsWaitedForBecauseItFreesMemory) {
  Start(1024);
  PutReady(1, 0, 200);
  PutReady(2, 1);
  const uint64_t f = Define(1, {0}, {}, {F32({200})});
  cluster.Fetch(session, 7, 1);
  ASSERT_TRUE(cluster.Delete(session, {1}).ok());
  ASSERT_TRUE(cluster.Execute(session, f, {}, {}, {3}).ok());
  cluster.Watch(session, 1, {3});
  actions.Take();
  for (const int64_t now : {1000, 3000, 5000}) cluster.Tick(now);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.FetchArrived(TransferId(3), Bytes("x"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("prepare n4")));
}

TEST_F(ClusterTest, AnUpdateInPlaceNeedsItsMemoryOnce) {
  Start(1024);
  PutReady(1, 0, 200);  // 800 of 1024
  const uint64_t f = Define(1, {0}, {F32({200}, true)}, {F32({200})});
  ASSERT_TRUE(cluster.Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  EXPECT_THAT(actions.Take(),
              ElementsAre(HasSubstr("install"), HasSubstr("prepare"), HasSubstr("launch")));
  End(a, 2);
  EXPECT_EQ(cluster.Usage()[0].used, 832);
}

}  // namespace
}  // namespace fairway
