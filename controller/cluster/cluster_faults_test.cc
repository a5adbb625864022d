// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the controller's core when executors go away, bytes come late and memory is
// short.
#include <algorithm>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ClusterTest, ACopyThatDonatesMovesWhatMovesAndKeepsTheRestUsable) {
  Start();
  const auto put = cluster.arrays().Put(
      session, 1, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1})}, {0, 0});
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  End(a, 1);
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{0, 2}, std::nullopt,
                        CopySemantics::kDonateInput, {2})
                  .ok());
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 1));
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 2));
  End(b, 2);
}

TEST_F(ClusterTest, ACopyOfSeveralMakesAllOrNone) {
  Start();
  PutReady(1, 0);
  PutReady(2, 0);
  ASSERT_TRUE(cluster.arrays().Delete(session, {2}).ok());
  actions.Take();
  const auto copied = cluster.arrays().Copy(session, {1, 2}, std::vector<int32_t>{2}, std::nullopt,
                                            CopySemantics::kDonateInput, {});
  EXPECT_EQ(copied.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.inspection().counts().arrays, 2u);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 1));
  // Nor does a disassembly that is refused take an array apart in part.
  const auto put = cluster.arrays().Put(
      session, 3, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1})}, {0, 0});
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  EXPECT_FALSE(cluster.arrays().Disassemble(session, 3, CopySemantics::kReuseInput, {4, 4}).ok());
  EXPECT_EQ(cluster.inspection().counts().arrays, 3u);
}

TEST_F(ClusterTest, APieceOfAGroupIsNotTakenOverBecauseTheOtherPiecesStayInMemory) {
  Start(1024);
  const auto put = cluster.arrays().Put(
      session, 1, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1})}, {0, 0});
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  End(a, 1);
  ASSERT_TRUE(cluster.arrays().Disassemble(session, 1, CopySemantics::kReuseInput, {2, 3}).ok());
  ASSERT_TRUE(cluster.arrays().Delete(session, {3}).ok());
  const uint64_t f = Define(1, {0}, {F32({4}, true)}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {4}).ok());
  actions.Take();
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("launch n2 id 1 keep [0]")));
  EXPECT_EQ(cluster.fleet().Usage()[1].used, 64);
  End(a, 2);
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 64);
  EXPECT_EQ(cluster.fleet().Usage()[1].used, 0);
}

TEST_F(ClusterTest, OfSeveralFailedPiecesTheLowestNodesErrorIsTold) {
  Start();
  const uint64_t f = Define(1, {0}, {}, {F32({4})});
  const uint64_t g = Define(2, {1}, {}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {1}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, g, {}, {}, {2}).ok());
  const ArraySpec both{DType::kF32, Shape{{8}}, Sharding::Tiled({0, 1}, {2}, {0, 1}).value()};
  ASSERT_TRUE(cluster.arrays().Assemble(session, both, {1, 2}, CopySemantics::kReuseInput, 3).ok());
  cluster.arrays().Watch(session, 1, {3});
  Installed(a, 1);
  Installed(a, 2);
  actions.Take();
  End(a, 2, absl::UnknownError("second"));
  End(a, 1, absl::UnknownError("first"));
  EXPECT_THAT(
      actions.Take(),
      ::testing::Contains(HasSubstr("s1 watched 1: UNKNOWN: f1 on island ia (worker wa): first")));
}

TEST_F(ClusterTest, ALateUploadTakesMemoryBackFromYoungerNodesThatHaveNotBegun) {
  Start(1024);
  const auto put =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{128}}, Sharding::SingleDevice(0)}, {0});
  const uint64_t f = Define(1, {0}, {F32({128})}, {F32({1})}, 512);
  ASSERT_TRUE(cluster.executables()
                  .Execute(session, f, {1}, {}, {2})
                  .ok());  // reserves 576 bytes and waits for the upload, which needs 512
  actions.Take();
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(512)));
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- cancel n2", "e1 <- receive n1 g1 from [inline 512B]"));
  cluster.arrays().Watch(session, 1, {2});
  End(a, 1);
  cluster.Tick(0);
  cluster.Tick(2000);  // 512 + 576 bytes do not fit together, whatever ends
  EXPECT_THAT(actions.Take(),
              ElementsAre("withdraw t1", HasSubstr("s1 watched 1: RESOURCE_EXHAUSTED")));
}

TEST_F(ClusterTest, WhatComesToAnIslandThatWasGivenUpFailsUntilTheIslandIsBack) {
  Start();
  const ArraySpec four{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  const auto late = cluster.arrays().Put(session, 1, four, {0});
  const uint64_t f = Define(1, {0}, {}, {F32({4})});
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  cluster.fleet().IslandGivenUp(IslandId(1), absl::UnavailableError("it did not come back"));
  cluster.arrays().Watch(session, 1, {1});
  cluster.arrays().ProvideUpload(late->upload, 0, Bytes("0123456789abcdef"));
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {2}).ok());
  cluster.arrays().Watch(session, 2, {2});
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 watched 1: UNAVAILABLE: island ia: it did not come back",
                          "s1 watched 2: UNAVAILABLE: island ia: it did not come back"));
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- install x1", HasSubstr("prepare n3")));
}

TEST_F(ClusterTest, WhatWaitedForCodeAndHasEndedIsNotLookedForWhenTheCodeIsThere) {
  Start(1024);
  const auto put =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{128}}, Sharding::SingleDevice(0)}, {0});
  const uint64_t f = Define(1, {0}, {}, {F32({1})}, 512);
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {2}).ok());
  // The launch is taken back for an older node and prepared again: it waits for its code once.
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(512)));
  End(a, 1);
  ASSERT_TRUE(cluster.arrays().Delete(session, {1}).ok());
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("cancel n2")));
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("launch n2")));
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {3}).ok());
  cluster.sessions().Close(session);
  Installed(a, 1);
  End(a, 2);
}

TEST_F(ClusterTest, WhatDependsOnTheWaitingNodeIsNoReasonToWaitLonger) {
  Start(1024);
  PutReady(1, 0, 128);  // 512 bytes
  const auto put =
      cluster.arrays().Put(session, 2, {DType::kF32, Shape{{180}}, Sharding::SingleDevice(0)}, {0});
  const uint64_t f = Define(1, {0}, {F32({180})}, {F32({1})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {3}).ok());
  cluster.arrays().ProvideUpload(
      put->upload, 0,
      BytesRef(Blob::Make(720)));  // does not fit beside the first, with or without n3
  cluster.arrays().Watch(session, 1, {3});
  actions.Take();
  cluster.Tick(0);
  cluster.Tick(2000);
  EXPECT_THAT(actions.Take(),
              ElementsAre(HasSubstr("cancel n3"), HasSubstr("s1 watched 1: RESOURCE_EXHAUSTED")));
}

TEST_F(ClusterTest, TheFailureOfASourceIsToldByItsProducerAlsoWhenTheReceiverIsHeardFirst) {
  Start();
  const uint64_t f = Define(1, {0}, {}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {1}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {2})
                  .ok());
  Installed(a, 1);
  cluster.arrays().Watch(session, 1, {2});
  actions.Take();
  End(b, 2, absl::UnknownError("refused: boom"));
  // However long the producer takes: of a sequence, results may have failed long before its end.
  cluster.Tick(0);
  cluster.Tick(60000);
  EXPECT_THAT(actions.Take(), IsEmpty());
  End(a, 1, absl::UnknownError("boom"));
  EXPECT_THAT(actions.Take(),
              ::testing::Contains("s1 watched 1: UNKNOWN: f1 on island ia (worker wa): boom"));
}

TEST_F(ClusterTest, AReceiveThatFailsByItselfSaysSoOnceItsInputsAreFine) {
  Start();
  const uint64_t f = Define(1, {0}, {}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {1}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {2})
                  .ok());
  Installed(a, 1);
  cluster.arrays().Watch(session, 1, {2});
  End(b, 2, absl::UnknownError("no host memory"));
  actions.Take();
  End(a, 1);
  EXPECT_THAT(
      actions.Take(),
      ::testing::Contains(HasSubstr("copy of f32[4] to island ib (worker wb): no host memory")));
}

TEST_F(ClusterTest, AReceiveWhosePeerIsGoneFailsByItselfWhenNoLossIsToldInTime) {
  Start();
  PutReady(1, 0);
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {2})
                  .ok());
  cluster.arrays().Watch(session, 1, {2});
  End(b, 2, absl::UnavailableError("connection refused"));
  cluster.Tick(0);
  cluster.Tick(14000);
  actions.Take();
  cluster.Tick(15000);
  EXPECT_THAT(actions.Take(), ::testing::Contains(HasSubstr(
                                  "s1 watched 1: UNAVAILABLE: copy of f32[4] to island ib "
                                  "(worker wb): connection refused")));
}

}  // namespace
}  // namespace fairway
