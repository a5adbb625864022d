// SPDX-License-Identifier: Apache-2.0
// Islands that operators cordon and drain.
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/listings.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CordonsTest : public ClusterTest {
 protected:
  explicit CordonsTest(ClusterOptions options = AtOnce()) : ClusterTest(std::move(options)) {}

  static Cordon By(const std::string& who) {
    return {.by = who, .since = std::chrono::sys_seconds(std::chrono::seconds(1764428617))};
  }
  // The islands whose devices a session sees.
  Lines IslandsOf(SessionId of) const {
    Lines names;
    for (const VirtualDevice& device : cluster.sessions().Devices(of)) {
      if (names.empty() || names.back() != device.island) names.push_back(device.island);
    }
    return names;
  }
  // A line for each that holds the island; the last one says whether it is drained.
  Lines Drain(const std::string& island) {
    const auto progress = cluster.fleet().DrainIsland(island, By("op"));
    EXPECT_TRUE(progress.ok()) << progress.status();
    Lines lines;
    for (const IslandHolder& holder : progress->most) {
      lines.push_back(fmt::format("s{} {}{}: {} arrays, {} B, {} running, {} unfinished",
                                  holder.session, holder.tenant, holder.ended ? " (ended)" : "",
                                  holder.arrays, holder.bytes, holder.running, holder.unfinished));
    }
    EXPECT_EQ(progress->holders, lines.size());
    lines.push_back(
        fmt::format("{}, {} see it", progress->drained ? "drained" : "held", progress->watching));
    return lines;
  }
  std::optional<Cordon> CordonOf(size_t island) const {
    return cluster.fleet().Islands()[island].cordon;
  }
};

class StoredCordonsTest : public CordonsTest {
 protected:
  StoredCordonsTest() : CordonsTest(ClusterOptions()) {}
};

TEST_F(CordonsTest, ASessionThatIsOpenedLaterDoesNotSeeTheIslandAndOthersGoOn) {
  Start();
  EXPECT_EQ(cluster.fleet().CordonIsland("ia", By("op")).value(), true);
  EXPECT_EQ(cluster.fleet().CordonIsland("ia", By("other")).value(), false);
  EXPECT_EQ(CordonOf(0)->by, "op");
  EXPECT_FALSE(CordonOf(1).has_value());
  const SessionId later = actions.Open(cluster);
  EXPECT_THAT(IslandsOf(later), ElementsAre("ib"));
  EXPECT_EQ(cluster.sessions().Devices(later)[0].id, 0);
  // All goes on of the session that was there.
  EXPECT_THAT(IslandsOf(session), ElementsAre("ia", "ib"));
  PutReady(1, 0);
  EXPECT_TRUE(cluster.sessions().IslandOf(session, {0}).ok());
  EXPECT_EQ(cluster.fleet().UncordonIsland("ia").value(), true);
  EXPECT_EQ(cluster.fleet().UncordonIsland("ia").value(), false);
  EXPECT_FALSE(CordonOf(0).has_value());
  EXPECT_THAT(IslandsOf(actions.Open(cluster)), ElementsAre("ia", "ib"));
  EXPECT_THAT(IslandsOf(later), ElementsAre("ib"));
}

TEST_F(CordonsTest, WithoutAnyOtherIslandAnErrorSaysWhoCordonedItAndWhatToDo) {
  Start();
  cluster.fleet().ExecutorLost(b, absl::UnavailableError("gone"));
  ASSERT_TRUE(cluster.fleet().CordonIsland("ia", By("token 3 (operator)")).ok());
  const absl::Status refused = cluster.sessions().Open("t").status();
  EXPECT_EQ(Describe(refused),
            "UNAVAILABLE: no island takes new sessions: all that are up are cordoned, island ia by "
            "token 3 (operator) since 2025-11-29 15:03:37 UTC. Ask an operator for `fairway "
            "uncordon ia`, or try again later");
  RunTurns();
}

TEST_F(CordonsTest, ItOutlivesWorkersAndTheIslandItself) {
  Start();
  ASSERT_TRUE(cluster.fleet().CordonIsland("ia", By("op")).ok());
  const IslandId island = cluster.fleet().Islands()[0].id;
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("gone"));
  RunTurns();
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).ok());
  EXPECT_TRUE(CordonOf(0).has_value());
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("gone"));
  cluster.sessions().Close(session);
  RunTurns();
  ASSERT_TRUE(cluster.fleet().ForgetIsland(island, absl::UnavailableError("forgotten")));
  EXPECT_THAT(cluster.fleet().Islands(), SizeIs(1));
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wc", "ia", 3)).ok());
  EXPECT_TRUE(CordonOf(1).has_value());
  EXPECT_THAT(IslandsOf(actions.Open(cluster)), ElementsAre("ib"));
}

TEST_F(CordonsTest, AnIslandThatIsNotKnownCannotBeCordoned) {
  Start();
  for (const absl::Status& status : {cluster.fleet().CordonIsland("i", By("op")).status(),
                                     cluster.fleet().UncordonIsland("i").status(),
                                     cluster.fleet().DrainIsland("i", By("op")).status()}) {
    EXPECT_EQ(Describe(status), "NOT_FOUND: there is no island 'i' (there are ia, ib)");
  }
}

TEST_F(CordonsTest, TheNumberOfCordonsIsBounded) {
  for (size_t i = 0; i <= Cluster::Fleet::kMostCordons; ++i) {
    const std::string name = fmt::format("i{}", i);
    const ExecutorId id = cluster.fleet().ExecutorUp(Worker("w" + name, name, 1)).value();
    const auto cordoned = cluster.fleet().CordonIsland(name, By("op"));
    EXPECT_EQ(cordoned.ok(), i < Cluster::Fleet::kMostCordons) << cordoned.status();
    cluster.fleet().ExecutorLost(id, absl::UnavailableError("gone"));
    cluster.fleet().ForgetIsland(cluster.fleet().Islands()[0].id, absl::UnavailableError("gone"));
  }
}

TEST_F(CordonsTest, ADrainNamesWhoHasWhatThereUntilNobodyHas) {
  Start();
  PutReady(1, 0);
  PutReady(2, 2, 64);  // elsewhere
  const uint64_t code = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, code, {1}, {}, {3}).ok());
  actions.Open(cluster, "looks on");
  const SessionId other = actions.Open(cluster, "other");
  const ArraySpec small{DType::kF32, Shape{{4}}, Sharding::SingleDevice(1)};
  const auto put = cluster.arrays().Put(other, 1, small, {0});
  ASSERT_TRUE(put.ok());
  EXPECT_THAT(Drain("ia"),
              ElementsAre("s1 t: 1 arrays, 64 B, 0 running, 1 unfinished",
                          "s3 other: 0 arrays, 0 B, 0 running, 1 unfinished", "held, 1 see it"));
  Installed(a, 1);
  EXPECT_THAT(Drain("ia"),
              ElementsAre("s1 t: 1 arrays, 64 B, 1 running, 0 unfinished",
                          "s3 other: 0 arrays, 0 B, 0 running, 1 unfinished", "held, 1 see it"));
  cluster.sessions().Close(other);
  RunTurns();
  // What was launched runs to its end, also of a session that has ended.
  cluster.sessions().Close(session);
  RunTurns();
  EXPECT_THAT(Drain("ia"), ElementsAre("s1  (ended): 1 arrays, 64 B, 1 running, 0 unfinished",
                                       "held, 1 see it"));
  EXPECT_FALSE(CordonOf(0)->drained);
  End(a, 3);
  RunTurns();
  EXPECT_THAT(Drain("ia"), ElementsAre("drained, 1 see it"));
  EXPECT_TRUE(CordonOf(0)->drained);
  EXPECT_THAT(Drain("ib"), ElementsAre("drained, 1 see it"));
}

TEST_F(CordonsTest, NothingComesToADrainedIslandUntilItIsUncordoned) {
  Start();
  PutReady(1, 2);
  const uint64_t code = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_THAT(Drain("ia"), ElementsAre("drained, 1 see it"));
  const std::string why =
      "UNAVAILABLE: island ia is drained: op cordoned it on 2025-11-29 15:03:37 UTC, and nobody "
      "had anything there. Open a new session, which gets other islands, or ask an operator for "
      "`fairway uncordon ia`";
  // Compiling for it is refused.
  EXPECT_EQ(Describe(cluster.sessions().IslandOf(session, {0}).status()), why);
  // An upload is not refused; its array has the error, and so has what is computed of it.
  const ArraySpec small{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  const auto put = cluster.arrays().Put(session, 2, small, {0});
  ASSERT_TRUE(put.ok());
  EXPECT_THAT(Drain("ia"),
              ElementsAre("s1 t: 0 arrays, 0 B, 0 running, 1 unfinished", "drained, 0 see it"));
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  ASSERT_TRUE(cluster.executables().Execute(session, code, {2}, {}, {3}).ok());
  cluster.arrays().Watch(session, 1, {2});
  cluster.arrays().Watch(session, 2, {3});
  RunTurns();
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 1: " + why, "s1 watched 2: " + why));
  // Other islands go on, and so it does once it is uncordoned.
  EXPECT_TRUE(cluster.sessions().IslandOf(session, {2}).ok());
  PutReady(4, 3);
  EXPECT_EQ(cluster.fleet().UncordonIsland("ia").value(), true);
  PutReady(5, 0);
  EXPECT_THAT(Drain("ia"),
              ElementsAre("s1 t: 1 arrays, 64 B, 0 running, 0 unfinished", "held, 0 see it"));
}

TEST_F(CordonsTest, ADrainThatGoesOnCordonsNothing) {
  Start();
  PutReady(1, 0);
  EXPECT_EQ(cluster.fleet().DrainIsland("ia", std::nullopt).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(CordonOf(0).has_value());
  EXPECT_THAT(Drain("ia"), ElementsAre(HasSubstr("1 arrays"), "held, 0 see it"));
  EXPECT_EQ(cluster.fleet().DrainIsland("ia", std::nullopt)->holders, 1u);
  EXPECT_EQ(cluster.fleet().UncordonIsland("ia").value(), true);
  EXPECT_FALSE(cluster.fleet().DrainIsland("ia", std::nullopt).ok());
  EXPECT_FALSE(CordonOf(0).has_value());
}

TEST_F(StoredCordonsTest, WhatLiesWithTheControllerHoldsNoIsland) {
  Start();
  const ArraySpec small{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  const auto put = cluster.arrays().Put(session, 1, small, {0});
  ASSERT_TRUE(put.ok());
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  RunTurns();
  EXPECT_THAT(Drain("ia"), ElementsAre("drained, 1 see it"));
  // It can be read all the same.
  cluster.arrays().Fetch(session, 7, 1);
  RunTurns();
  EXPECT_THAT(actions.Take(), ElementsAre("s1 fetched 7: 0123456789abcdef"));
}

TEST_F(CordonsTest, OfManyHoldersThoseWithMostBytesAreTold) {
  Start();
  for (int i = 0; i < 60; ++i) {
    session = actions.Open(cluster);
    PutReady(1, 0, 64 * (1 + i));
  }
  const auto progress = cluster.fleet().DrainIsland("ia", By("op"));
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->holders, 60u);
  ASSERT_THAT(progress->most, SizeIs(50));
  EXPECT_EQ(progress->most.front().session, session);
  EXPECT_GT(progress->most[48].bytes, progress->most[49].bytes);
}

}  // namespace
}  // namespace fairway
