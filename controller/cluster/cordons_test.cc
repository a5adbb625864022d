// SPDX-License-Identifier: Apache-2.0
// Islands that operators cordon and drain.
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/placed_program.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/turns_fixture_for_test.h"

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
    auto progress = cluster.fleet().DrainIsland(island, By("op"));
    EXPECT_TRUE(progress.ok()) << progress.status();
    while (!cluster.fleet().LookAtHolders(island, *progress)) {
    }
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

class ShortTurnsCordonsTest : public CordonsTest {
 protected:
  ShortTurnsCordonsTest() : CordonsTest(Short()) {}

 private:
  static ClusterOptions Short() {
    ClusterOptions options = AtOnce();
    options.turn_units = 20;
    return options;
  }
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

TEST_F(CordonsTest, NoProgramIsBoundForADrainedIsland) {
  Start();
  ASSERT_THAT(Drain("ia"), ElementsAre("drained, 1 see it"));
  const auto bound = cluster.programs().Bind(session, 0, {"p", {}, {{2}, {0}}});
  EXPECT_EQ(bound.status().code(), absl::StatusCode::kUnavailable) << bound.status();
  EXPECT_THAT(Describe(bound.status()), HasSubstr("program p: island ia is drained: op cordoned "));
  EXPECT_TRUE(cluster.programs().Bind(session, 0, {"p", {}, {{2}, {3}}}).ok());
  ASSERT_TRUE(cluster.fleet().UncordonIsland("ia").ok());
  EXPECT_TRUE(cluster.programs().Bind(session, 0, {"p", {}, {{2}, {0}}}).ok());
}

// Also if all that is left to bind is for another island.
TEST_F(ShortTurnsCordonsTest, NoProgramIsBoundOfWhichAnIslandIsDrainedMeanwhile) {
  struct Long : TurnsTest {
    using TurnsTest::LongProgram;
  };
  Start();
  Define(1, {0}, {F32({4})}, {F32({4})});
  Define(2, {2}, {F32({4})}, {F32({4})});
  uint64_t handle = 0;
  for (bool late = false; !late;) {
    for (const int rounds : {20, 21, 22, 23, 24, 25}) {
      const auto placed =
          PlaceProgram(Long::LongProgram(rounds), cluster.sessions().SharedDevices(session));
      ASSERT_TRUE(placed.ok()) << placed.status();
      actions.bound.clear();
      cluster.programs().Bind(session, 7, 100 + ++handle, *placed);
      for (uint64_t turns = handle / 6; turns > 0 && std::exchange(actions.turn_wanted, false);
           --turns)
        cluster.Turn();
      late = !actions.bound.empty();
      ASSERT_THAT(Drain("ia"), ElementsAre("drained, 1 see it"));
      RunTurns();
      if (!late) EXPECT_THAT(actions.bound, HasSubstr("program long: island ia is drained: op "));
      ASSERT_TRUE(cluster.fleet().UncordonIsland("ia").ok());
    }
  }
  EXPECT_GT(handle, 12u);
}

TEST_F(CordonsTest, ACallThatIsMadeInSlicesHoldsTheIslandFromItsBeginOn) {
  Start();
  const uint64_t code = Define(1, {0}, {}, std::vector<ValueType>(3000, F32({4})));
  bool answered = false;
  cluster.executables().Execute(session, code, {}, {}, {}, [&](const auto&) { answered = true; });
  ASSERT_FALSE(answered);
  ASSERT_TRUE(cluster.sessions().Busy(session));
  EXPECT_THAT(Drain("ia"),
              ElementsAre("s1 t: 0 arrays, 0 B, 0 running, 1 unfinished", "held, 0 see it"));
  RunTurns();
  EXPECT_TRUE(answered);
  EXPECT_THAT(Drain("ia"),
              ElementsAre("s1 t: 0 arrays, 0 B, 0 running, 1 unfinished", "held, 0 see it"));
  // One that is given up holds it until nothing is left of it.
  const SessionId other = session;
  session = actions.Open(cluster);
  cluster.sessions().Close(other);
  RunTurns();
  EXPECT_THAT(Drain("ia"), ElementsAre("drained, 0 see it"));
}

TEST_F(CordonsTest, ACallThatIsGivenUpHoldsTheIslandNoMore) {
  Start();
  const uint64_t code = Define(1, {0}, {}, std::vector<ValueType>(3000, F32({4})));
  cluster.executables().Execute(session, code, {}, {}, {}, [](const auto&) {});
  ASSERT_TRUE(cluster.sessions().Busy(session));
  cluster.sessions().Close(session);
  EXPECT_THAT(Drain("ia"), ElementsAre("s1 t (ended): 0 arrays, 0 B, 0 running, 1 unfinished",
                                       "held, 1 see it"));
  RunTurns();
  EXPECT_THAT(Drain("ia"), ElementsAre("drained, 0 see it"));
}

TEST_F(CordonsTest, ARunThatIsMadeInSlicesHoldsAllIslandsOfItsProgram) {
  Start();
  PutReady(1, 2);
  ProgramPlan plan;
  plan.types = {{0, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}}};
  plan.values.assign(3000, 0);
  plan.arguments = 3000;
  plan.donated.assign(3000, false);
  for (int32_t i = 0; i < plan.arguments; ++i) plan.results.push_back(i);
  const auto program = cluster.programs().Bind(session, 0, {"p", plan, {{2}, {0}}});
  ASSERT_TRUE(program.ok()) << program.status();
  bool answered = false;
  cluster.programs().Run(session, *program, std::vector<uint64_t>(3000, 1), {}, {},
                         [&](const auto& result) { answered = result.ok(); });
  ASSERT_TRUE(cluster.sessions().Busy(session));
  EXPECT_THAT(Drain("ia"),
              ElementsAre("s1 t: 0 arrays, 0 B, 0 running, 1 unfinished", "held, 0 see it"));
  RunTurns();
  EXPECT_TRUE(answered);
  EXPECT_THAT(Drain("ia"), ElementsAre("drained, 1 see it"));
}

TEST_F(ShortTurnsCordonsTest, ADonatingCopyInSlicesHoldsTheIslandThatItIsForAtAnyMoment) {
  Start();
  int moments = 0;
  for (bool busy = true; busy; ++moments) {
    session = actions.Open(cluster);
    std::vector<uint64_t> from, to;
    for (uint64_t i = 0; i < 60; ++i) {
      PutReady(from.emplace_back(1 + i), 2);
      to.push_back(5000 + i);
    }
    absl::Status answered = absl::InternalError("no answer");
    cluster.arrays().Copy(session, from, {{0}}, std::nullopt, CopySemantics::kDonateInput, to,
                          [&](const auto& result) { answered = result.status(); });
    for (int turn = 0; turn < moments; ++turn) cluster.Turn();
    busy = cluster.sessions().Busy(session);
    EXPECT_TRUE(Drain("ia").back().starts_with("held"));
    ASSERT_TRUE(cluster.fleet().UncordonIsland("ia").ok());
    RunTurns();
    EXPECT_TRUE(answered.ok()) << answered;
    cluster.sessions().Close(session);
    RunTurns();
  }
  EXPECT_GT(moments, 3);
}

TEST_F(CordonsTest, ACopyToADeviceThatIsNotThereHoldsNothing) {
  Start();
  PutReady(1, 2);
  for (const int32_t device : {-1, 4, 1 << 30}) {
    const auto copied = cluster.arrays().Copy(session, {1}, {{device}}, std::nullopt,
                                              CopySemantics::kDonateInput, {2});
    EXPECT_THAT(Describe(copied.status()), HasSubstr("there is no device"));
  }
  EXPECT_THAT(Drain("ia"), ElementsAre("drained, 1 see it"));
}

TEST_F(CordonsTest, OfManyHoldersThoseWithMostBytesAreTold) {
  Start();
  for (int i = 0; i < 60; ++i) {
    session = actions.Open(cluster);
    PutReady(1, 0, 64 * (1 + i));
  }
  auto progress = cluster.fleet().DrainIsland("ia", By("op"));
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->holders, 60u);
  while (!cluster.fleet().LookAtHolders("ia", *progress)) {
  }
  EXPECT_EQ(progress->holders, 60u);
  ASSERT_THAT(progress->most, SizeIs(50));
  EXPECT_EQ(progress->most.front().session, session);
  EXPECT_GT(progress->most[48].bytes, progress->most[49].bytes);
}

TEST_F(CordonsTest, HoweverManyHoldAnIslandEachLookAtThemIsShort) {
  Start();
  size_t looks_before = 0;
  for (size_t sessions = 300; sessions <= 1200; sessions *= 2) {
    for (size_t open = cluster.inspection().counts().sessions; open <= sessions; ++open) {
      session = actions.Open(cluster);
      PutReady(1, 0, open == 7 ? 32 : 16);
    }
    uint64_t before = cluster.units();
    const auto units = [&] { return cluster.units() - std::exchange(before, cluster.units()); };
    auto progress = cluster.fleet().DrainIsland("ia", By("op"));
    ASSERT_TRUE(progress.ok());
    EXPECT_FALSE(progress->drained);
    EXPECT_EQ(progress->holders, sessions);
    EXPECT_LE(units(), 10u);
    size_t looks = 1;
    for (; !cluster.fleet().LookAtHolders("ia", *progress); ++looks)
      EXPECT_LE(units(), 2 * Cluster::Fleet::kMostLooks);
    EXPECT_GE(looks, sessions / Cluster::Fleet::kMostLooks);
    EXPECT_GT(looks, looks_before);
    looks_before = looks;
    EXPECT_EQ(progress->holders, sessions);
    EXPECT_EQ(progress->watching, 1u);
    EXPECT_EQ(progress->most.front().bytes, 128);
    EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    ASSERT_TRUE(cluster.fleet().UncordonIsland("ia").ok());
  }
}

TEST_F(CordonsTest, CordonsOfIslandsThatAreForgottenAreListedAndEnd) {
  Start();
  ASSERT_TRUE(cluster.fleet().CordonIsland("ia", By("op")).ok());
  const IslandId island = cluster.fleet().Islands()[0].id;
  // One that is down may be cordoned, and is known.
  cluster.fleet().ExecutorLost(b, absl::UnavailableError("gone"));
  EXPECT_EQ(cluster.fleet().CordonIsland("ib", By("op")).value(), true);
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("gone"));
  cluster.sessions().Close(session);
  RunTurns();
  EXPECT_THAT(cluster.fleet().AbsentCordons(), IsEmpty());
  ASSERT_TRUE(cluster.fleet().ForgetIsland(island, absl::UnavailableError("forgotten")));
  const auto absent = cluster.fleet().AbsentCordons();
  ASSERT_THAT(absent, SizeIs(1));
  EXPECT_EQ(absent.begin()->first, "ia");
  EXPECT_EQ(absent.begin()->second.by, "op");
  EXPECT_EQ(cluster.fleet().CordonIsland("ia", By("op")).value(), false);
  EXPECT_EQ(cluster.fleet().UncordonIsland("ia").value(), true);
  EXPECT_THAT(cluster.fleet().AbsentCordons(), IsEmpty());
  // Nothing leads to one that is forgotten any more.
  EXPECT_EQ(cluster.fleet().CordonIsland("ia", By("op")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(cluster.fleet().UncordonIsland("ia").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fairway
