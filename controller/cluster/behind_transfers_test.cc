// SPDX-License-Identifier: Apache-2.0
// Launches ahead of transfers (docs/design/0031-launching-ahead.md, "Behind a transfer").
#include <algorithm>
#include <string>

#include "controller/cluster/cluster_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class BehindTransfersTest : public ClusterTest {};

TEST_F(BehindTransfersTest, ALaunchOnOneDeviceIsSentBehindATransferAndAGangIsNot) {
  Start();
  PutReady(1, 0);
  PutReady(2, 2);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  const uint64_t g = Define(2, {0}, {F32({4}), F32({4})}, {F32({4})});
  const uint64_t gang = Define(3, {0, 1}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());
  const auto copy = [&](uint64_t in, std::vector<int32_t> devices, uint64_t out) {
    ASSERT_TRUE(cluster.arrays()
                    .Copy(session, {in}, devices, std::nullopt, CopySemantics::kReuseInput, {out})
                    .ok());
  };
  copy(2, {0}, 4);
  ASSERT_TRUE(cluster.executables().Execute(session, g, {3, 4}, {}, {5}).ok());
  const ArraySpec both{DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1})};
  ASSERT_TRUE(cluster.arrays().Reshard(session, {5}, {both}, CopySemantics::kReuseInput, {6}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, gang, {6}, {}, {7}).ok());
  for (const uint64_t x : {1, 2, 3}) Installed(a, x);
  const Lines lines = actions.Take();
  EXPECT_THAT(lines, Contains("e1 <- launch n5 id 2 ahead keep [] inline [5:0]"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("launch n7"))));
  EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  for (const uint64_t node : {3, 4, 5}) End(a, node);
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("launch n7"))));
  End(a, 6);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- launch n7 id 3 gang keep [] inline")));
}

// A computation on wa, a copy of its result to wb, and a launch there, all launched.
class WhileTheSourceRunsTest : public BehindTransfersTest {
 protected:
  void Begin() {
    Start();
    PutReady(1, 0);
    const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
    const uint64_t g = Define(2, {2}, {F32({4})}, {F32({4})});
    ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
    ASSERT_TRUE(cluster.arrays()
                    .Copy(session, {2}, std::vector<int32_t>{2}, std::nullopt,
                          CopySemantics::kReuseInput, {3})
                    .ok());
    ASSERT_TRUE(cluster.executables().Execute(session, g, {3}, {}, {4}).ok());
    Installed(a, 1);
    Installed(b, 2);
    ASSERT_THAT(actions.Take(), Contains("e2 <- launch n4 id 1 ahead keep [] inline [4:0]"));
    cluster.arrays().Watch(session, 9, {4});
  }
};

TEST_F(WhileTheSourceRunsTest, ALaunchBehindATransferFailsWithTheSourceOfTheTransfer) {
  Begin();
  // Its executor hears of the failure first, and knows it only as a refused pull.
  End(b, 3, absl::InternalError("refused"));
  End(b, 4, absl::InternalError("refused"));
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("watched"))));
  End(a, 2, absl::InvalidArgumentError("boom"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 9: INVALID_ARGUMENT: f1 on")));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

// Parameter: whether the pulls have failed before the loss is known.
class SourceLostTest : public BehindTransfersTest, public ::testing::WithParamInterface<bool> {};
TEST_P(SourceLostTest, ALaunchBehindATransferIsLostWithTheSourceOfTheTransfer) {
  Start();
  PutReady(1, 0);
  const uint64_t g = Define(2, {2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{2}, std::nullopt,
                        CopySemantics::kReuseInput, {3})
                  .ok());
  ASSERT_TRUE(cluster.executables().Execute(session, g, {3}, {}, {4}).ok());
  Installed(b, 2);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e2 <- launch n3 id 1 ahead")));
  cluster.arrays().Watch(session, 9, {4});
  const auto fail = [&] {
    End(b, 2, absl::UnavailableError("no answer"));
    End(b, 3, absl::UnavailableError("no answer"));
  };
  if (GetParam()) fail();
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  if (!GetParam()) fail();
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 9: DATA_LOSS: island ia")));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}
INSTANTIATE_TEST_SUITE_P(PullsFirst, SourceLostTest, ::testing::Bool());

TEST_F(BehindTransfersTest, ASessionHasFewLaunchesBehindTransfersAndOthersGoOn) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  const uint64_t g = Define(2, {2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(cluster.arrays()
                    .Copy(session, {2}, std::vector<int32_t>{2}, std::nullopt,
                          CopySemantics::kReuseInput, {10 + i})
                    .ok());
    ASSERT_TRUE(cluster.executables().Execute(session, g, {10 + i}, {}, {100 + i}).ok());
  }
  Installed(a, 1);
  Installed(b, 2);
  RunTurns();
  const auto launches = [&] {
    const Lines lines = actions.Take();
    return std::count_if(lines.begin(), lines.end(),
                         [](const std::string& line) { return line.starts_with("e2 <- launch"); });
  };
  EXPECT_EQ(launches(), 8);
  // The transfers of the first two end, so two more go.
  End(a, 2);
  for (const uint64_t node : {3, 5}) End(b, node);
  RunTurns();
  EXPECT_EQ(launches(), 2);
  PutReady(200, 2);
  ASSERT_TRUE(cluster.executables().Execute(session, g, {200}, {}, {201}).ok());
  EXPECT_EQ(launches(), 1) << "what waits for no transfer goes";
}

TEST_F(WhileTheSourceRunsTest, TheLossOfTheReceiverIsToldAtOnce) {
  Begin();
  cluster.fleet().ExecutorLost(b, absl::UnavailableError("killed"));
  RunTurns();
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 9: DATA_LOSS: island ib")));
  EXPECT_EQ(cluster.inspection().counts().nodes, 1u) << "the source runs on";
  End(a, 2);
}

TEST_F(WhileTheSourceRunsTest, TheLossOfTheSourceDoesNotWaitForThePulls) {
  Begin();
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("no power"));
  RunTurns();
  EXPECT_THAT(actions.Take(), Contains("e2 <- cancel n3"));
  End(b, 4, absl::CancelledError("its input was cancelled"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 9: DATA_LOSS: island ia")));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(WhileTheSourceRunsTest, TheEndOfTheSessionCancelsTheReceive) {
  Begin();
  cluster.sessions().Close(session);
  RunTurns();
  EXPECT_THAT(actions.Take(), Contains("e2 <- cancel n3"));
  End(b, 4, absl::CancelledError("its input was cancelled"));
  EXPECT_EQ(cluster.inspection().counts().nodes, 1u) << "the source runs on";
  End(a, 2);
}

}  // namespace
}  // namespace fairway
