// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of the controller's core: its commands to executors and its answers to clients,
// line by line.
#include <numeric>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST_F(ClusterTest, DevicesAreVirtualAndIslandsAreSlices) {
  Start();
  const auto& devices = cluster.sessions().Devices(session);
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(devices[3].slice_index, 1);
  EXPECT_EQ(devices[3].island, "ib");
  EXPECT_EQ(devices[3].local_ordinal, 1);
}

TEST_F(ClusterTest, AComputationIsInstalledPreparedLaunchedAndItsSmallResultComesInline) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({})});
  const auto run = cluster.executables().Execute(session, f, {1}, {}, {2});
  ASSERT_TRUE(run.ok());
  cluster.arrays().Watch(session, 5, {2});
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- install x1", "e1 <- prepare n2 x1 in [1:0] out [2] on [0]"));
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [] inline [2:0]"));
  End(a, 2, absl::OkStatus(), {{{GroupId(2), 0}, Bytes("abcd")}});
  cluster.arrays().Fetch(session, 6, 2);
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 5: OK", "s1 fetched 6: abcd"));
  EXPECT_EQ(cluster.inspection().counts().executor_fetches, 0u);
  EXPECT_TRUE(cluster.arrays().Destruct(session, {1, 2}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [1, 2]"));
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
}

TEST_F(ClusterTest, AnExecutorIsBelievedOnlyAboutBytesThatItHolds) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  Report forged;  // the executor belongs to another island
  forged.inlined = {{{GroupId(2), 0}, Bytes("evil")}};
  cluster.fleet().OnReport(b, Incarnation(7), forged);
  End(a, 2, absl::OkStatus(),
      {{{GroupId(2), 1}, Bytes("abcd")}, {{GroupId(2), 0}, Bytes("abcde")}});
  actions.Take();
  cluster.arrays().Fetch(session, 6, 2);
  EXPECT_EQ(cluster.inspection().counts().inline_hits, 0u);
  EXPECT_EQ(cluster.inspection().counts().executor_fetches, 1u);
}

TEST_F(ClusterTest, TheCallerOfACallbackIsTheSessionWhoseLaunchRuns) {
  Start();
  const SessionId other = actions.Open(cluster, "u");
  PutReady(1, 3);
  const uint64_t f = Define(1, {3}, {F32({4})}, {F32({})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  const auto code = [&](ExecutorId executor, uint64_t launch, int32_t ordinal) {
    return cluster.fleet().CallerOf(executor, LaunchId(launch), ordinal).status().code();
  };
  EXPECT_EQ(code(b, 1, 1), absl::StatusCode::kNotFound) << "it is not launched yet";
  Installed(b, 1);
  const auto caller = cluster.fleet().CallerOf(b, LaunchId(1), 1);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->session, session);
  EXPECT_NE(caller->session, other);
  EXPECT_EQ(caller->program, "f1");
  EXPECT_EQ(caller->device, 3);
  EXPECT_EQ(code(b, 2, 1), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(b, 1, 2), absl::StatusCode::kNotFound) << "no such device";
  EXPECT_EQ(code(b, 1, -1), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(a, 1, 1), absl::StatusCode::kNotFound) << "of another island";
  EXPECT_EQ(code(ExecutorId(99), 1, 1), absl::StatusCode::kNotFound);
  cluster.sessions().Close(session);
  EXPECT_EQ(cluster.fleet().CallerOf(b, LaunchId(1), 1)->session, session) << "it runs to its end";
  End(b, 2);
  EXPECT_EQ(code(b, 1, 1), absl::StatusCode::kNotFound);
}

TEST_F(ClusterTest, AComputationIsLaunchedBehindTheOneThatMakesItsInput) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  const uint64_t g = Define(2, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  Installed(a, 2);
  actions.Take();  // its code is there, but the launch that makes its input has not begun
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [] inline [2:0]",
                                          "e1 <- launch n3 id 2 ahead keep [] inline [3:0]"));
  End(a, 2);
  End(a, 3);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(ClusterTest, UpdatesInPlaceOneBehindTheOtherNeedTheirMemoryOnce) {
  Start(1024);
  PutReady(1, 0, 200);  // 800 of 1024 bytes
  const uint64_t f = Define(1, {0}, {F32({200}, true)}, {F32({200})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {3}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {3}, {}, {4}).ok());
  actions.Take();
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [] inline []",
                                          "e1 <- launch n3 id 2 ahead keep [] inline []",
                                          "e1 <- launch n4 id 3 ahead keep [] inline [4:0]"));
  for (const uint64_t node : {2, 3, 4}) {
    EXPECT_EQ(cluster.fleet().Usage()[0].used, 832);
    End(a, node);
  }
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 832);
}

TEST_F(ClusterTest, LargeUploadsAreServedSmallOnesTravelWithTheCommand) {
  Start();
  const ArraySpec large{DType::kF32, Shape{{65536}}, Sharding::Replicated({0, 1})};
  const auto put = cluster.arrays().Put(session, 1, large, {0, 0});
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4 * 65536)));
  EXPECT_THAT(actions.Take(), ElementsAre("offer t1 1 blobs",
                                          "e1 <- receive n1 g1 from [controller#0, local 1:0]"));
  End(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("withdraw t1"));
  const auto small =
      cluster.arrays().Put(session, 2, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(3)}, {0});
  cluster.arrays().ProvideUpload(small->upload, 0, Bytes("0123456789abcdef"));
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- receive n2 g2 from [inline 16B]"));
  End(b, 2);
}

TEST_F(ClusterTest, AWrongHostBufferPutsItsErrorIntoTheArray) {
  Start();
  const auto put =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("short"));
  cluster.arrays().Watch(session, 1, {1});
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("has 5 bytes, expected 16")));
}

TEST_F(ClusterTest, ACopyBetweenIslandsIsPulledByTheReceiverAndPreparedBeforeItsInputExists) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  actions.Take();
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {2}, std::vector<int32_t>{3}, std::nullopt,
                        CopySemantics::kReuseInput, {3})
                  .ok());
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- send t3 [#0=2:0]", "e2 <- receive n3 g3 from [wa:1#0]"));
  EXPECT_TRUE(cluster.arrays().Destruct(session, {2}).ok());
  Installed(a, 1);
  End(a, 2);
  actions.Take();
  End(b, 3);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- end send t3", "e1 <- free [2]"));
}

TEST_F(ClusterTest, ACopyToTheSameDeviceMovesNothingUnlessACopyIsAskedFor) {
  Start();
  PutReady(1, 0);
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{0}, std::nullopt,
                        CopySemantics::kReuseInput, {2})
                  .ok());
  EXPECT_THAT(actions.Take(), IsEmpty());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{0}, std::nullopt,
                        CopySemantics::kAlwaysCopy, {3})
                  .ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- receive n2 g2 from [local 1:0]"));
  End(a, 2);
  EXPECT_TRUE(cluster.arrays().Delete(session, {1}).ok());
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 2));  // it shares the buffer
  EXPECT_FALSE(*cluster.arrays().IsDeleted(session, 3));
}

TEST_F(ClusterTest, OneUnknownHandleDoesNotKeepTheOthersFromBeingDeleted) {
  Start();
  PutReady(1, 0);
  PutReady(2, 0);
  const absl::Status status = cluster.arrays().Delete(session, {1, 77, 2, 78});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(Text(status).find("77"), std::string::npos) << status;
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 1));
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 2));
}

TEST_F(ClusterTest, ManyUnknownHandlesAreNotAllNamed) {
  Start();
  std::vector<uint64_t> handles(1000);
  std::iota(handles.begin(), handles.end(), 100);
  EXPECT_EQ(Text(cluster.arrays().Destruct(session, handles)),
            "no such arrays to give up: 100, 101, 102, 103, 104, 105, 106, 107, 108, 109 and 990 "
            "more");
}

TEST_F(ClusterTest, AReshardPullsBoxesOfShardsFromPeersAndTakesLocalOnesWhereTheyAre) {
  Start();
  PutReady(1, 0);
  const ArraySpec cut{DType::kF32, Shape{{4}}, Sharding::Tiled({1, 2}, {2}, {0, 1}).value()};
  ASSERT_TRUE(cluster.arrays().Reshard(session, {1}, {cut}, CopySemantics::kReuseInput, {2}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- receive n2 g2 from [local 1:0 [0]+[2] to 0:[0]]",
                                          "e1 <- send t3 [#0=1:0[2]+[2]]",
                                          "e2 <- receive n3 g3 from [wa:1#0 [2]+[2] to 0:[0]]"));
  EXPECT_TRUE(cluster.arrays().Destruct(session, {1}).ok());
  EXPECT_THAT(actions.Take(), IsEmpty());  // the copy still reads it
  End(a, 2);
  End(b, 3);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- end send t3", "e1 <- free [1]"));
  // A shard is made of two pieces; one of the executors fails.
  const ArraySpec whole{DType::kF32, Shape{{4}}, Sharding::Replicated({0, 3})};
  ASSERT_TRUE(
      cluster.arrays().Reshard(session, {2}, {whole}, CopySemantics::kDonateInput, {3}).ok());
  EXPECT_THAT(
      actions.Take(),
      ElementsAre(
          "e2 <- send t4 [#1=3:0[0]+[2]]",
          "e1 <- receive n4 g4 from [local 2:0 [0]+[2] to 0:[0], wb:1#1 [0]+[2] to 0:[2]]",
          "e1 <- send t5 [#0=2:0[0]+[2]]",
          "e2 <- receive n5 g5 from [wa:1#0 [0]+[2] to 0:[0], local 3:0 [0]+[2] to 0:[2]]"));
  cluster.arrays().Watch(session, 9, {3});
  End(b, 5, absl::InternalError("boom"));
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- end send t5", "e2 <- free [5]"));
  End(a, 4);
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- end send t4", "e1 <- free [2]", "e2 <- free [3]",
                                          HasSubstr("s1 watched 9: INTERNAL: reshard of f32[4]")));
}

TEST_F(ClusterTest, ACopyThatEndedWellOfAnArrayThatFailsHasItsError) {
  Start();
  PutReady(1, 0);
  // The second shard of `cut` has no bytes, so nothing has to make it.
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({1})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  const ArraySpec cut{DType::kF32, Shape{{1}}, Sharding::Tiled({2, 3}, {2}, {0, 1}).value()};
  ASSERT_TRUE(cluster.arrays().Reshard(session, {2}, {cut}, CopySemantics::kReuseInput, {3}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Disassemble(session, 3, CopySemantics::kReuseInput, std::vector<uint64_t>{4, 5})
                  .ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {5}, std::vector<int32_t>{2}, std::nullopt,
                        CopySemantics::kReuseInput, {6})
                  .ok());
  Installed(a, 1);
  actions.Take();
  cluster.arrays().Watch(session, 9, {6});
  End(b, 4);  // the copy
  EXPECT_THAT(actions.Take(), IsEmpty());
  End(a, 2, absl::InvalidArgumentError("boom"));
  End(b, 3, absl::InvalidArgumentError("the source failed"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 9: INVALID_ARGUMENT: f1 on")));
}

TEST_F(ClusterTest, ACopyThatEndedBeforeItsSourceWasHeardOfIsReadyWithIt) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {2}, std::vector<int32_t>{2}, std::nullopt,
                        CopySemantics::kReuseInput, {3})
                  .ok());
  Installed(a, 1);
  cluster.arrays().Watch(session, 9, {3});
  actions.Take();
  End(b, 3);
  EXPECT_THAT(actions.Take(), IsEmpty());
  End(a, 2);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- end send t3", "s1 watched 9: OK"));
}

TEST_F(ClusterTest, DependantsOfAFailedComputationNeverRunAndTellTheFirstCause) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {3}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {3}, std::vector<int32_t>{2}, std::nullopt,
                        CopySemantics::kReuseInput, {4})
                  .ok());
  Installed(a, 1);
  actions.Take();
  cluster.arrays().Watch(session, 9, {4});
  End(a, 2, absl::InvalidArgumentError("boom"));
  EXPECT_THAT(actions.Take(), IsEmpty());
  End(a, 3, absl::InvalidArgumentError("boom"));  // it was launched after n2: the executor skips it
  EXPECT_THAT(
      actions.Take(),
      UnorderedElementsAre(
          "e2 <- cancel n4", "e1 <- end send t4", "e1 <- free [2]", "e1 <- free [3]",
          "s1 watched 9: INVALID_ARGUMENT: f1 on island ia (worker wa): boom", "e2 <- free [4]"));
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(ClusterTest, ADonatedInputIsGoneForTheClientAndTakenOverWhenNobodyElseReadsIt) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4}, true)}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 1));
  actions.Take();
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n2 id 1 keep [] inline [2:0]"));
  const auto again = cluster.executables().Execute(session, f, {1}, {}, {3});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
  cluster.arrays().Watch(session, 1, {3});  // the result handle holds the error too
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("deleted or donated")));
  End(a, 2);
}

TEST_F(ClusterTest, ADonatedInputWithAnotherReaderIsKept) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  const uint64_t g = Define(2, {0}, {F32({4}, true)}, {F32({4})});
  Installed(a, 1);
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  ASSERT_TRUE(cluster.executables().Execute(session, g, {1}, {}, {3}).ok());
  actions.Take();
  Installed(a, 2);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n3 id 2 keep [0] inline [3:0]"));
  End(a, 2);
  End(a, 3);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [1]"));
}

TEST_F(ClusterTest, LosingAnExecutorFailsWhatWasThereAndSparesTheRest) {
  Start();
  PutReady(1, 0);
  PutReady(2, 2);
  const SessionId other = actions.Open(cluster);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());
  Installed(a, 1);
  actions.Take();
  cluster.arrays().Watch(session, 1, {3});
  cluster.arrays().Watch(session, 2, {2});
  // An upload under way has lost nothing: it waits for the executor's return.
  const auto put =
      cluster.arrays().Put(other, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  actions.Take();
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed by signal 9"));
  EXPECT_THAT(actions.Take(), ElementsAre("withdraw t4",
                                          "s1 watched 1: DATA_LOSS: island ia: the executor of "
                                          "worker wa was lost: killed by signal 9"));
  EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 0);
  ExecutorSpec again = Worker("wa", "ia", 2);
  again.incarnation = Incarnation(8);
  again.highest_launch_id = 40;
  EXPECT_EQ(cluster.fleet().ExecutorUp(again).value(), a);
  EXPECT_THAT(actions.Take(), IsEmpty());  // the shell learns the id first
  cluster.Tick(0);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- receive n4 g4 from [inline 16B]"));
  Report report;
  report.finished_through = 1;
  cluster.fleet().OnReport(a, Incarnation(7), report);  // of the dead incarnation: it is refused
  EXPECT_EQ(cluster.inspection().counts().nodes, 1u);
  cluster.fleet().OnReport(a, Incarnation(8), report);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(ClusterTest, AClosedSessionLeavesNothing) {
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {3}).ok());
  Installed(a, 1);
  actions.Take();
  cluster.sessions().Close(session);
  EXPECT_THAT(actions.Take(), IsEmpty());  // both launches have begun
  End(a, 2);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [1]"));
  End(a, 3);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [2, 3]"));
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
  EXPECT_EQ(cluster.inspection().counts().arrays, 0u);
  EXPECT_EQ(cluster.fleet().Usage()[0].used, 0);
}

TEST_F(ClusterTest, WrongArgumentsAreRefusedWithWhatCameAndWhatWasExpected) {
  Start();
  PutReady(1, 0);
  PutReady(2, 1);
  PutReady(3, 0, 5);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  const auto error = [&](std::vector<uint64_t> args, std::vector<uint64_t> out = {}) {
    return Describe(cluster.executables().Execute(session, f, args, {}, out).status());
  };
  EXPECT_THAT(error({}), HasSubstr("f1 takes 1 arguments, but 0 were given"));
  EXPECT_THAT(error({2}), HasSubstr("lies on another device"));
  EXPECT_THAT(error({3}), HasSubstr("is f32[5], expected f32[4]"));
  EXPECT_THAT(error({99}), HasSubstr("NOT_FOUND: f1: argument 0: there is no array 99"));
  EXPECT_THAT(error({1}, {7, 8}), HasSubstr("has 1 results, but 2 handles"));
  EXPECT_THAT(actions.Take(), IsEmpty());
}

TEST_F(ClusterTest, OneComputationCannotSpanIslands) {
  Start();
  EXPECT_THAT(Describe(cluster.sessions().IslandOf(session, {0, 1, 2, 3}).status()),
              AllOf(HasSubstr("island ia (devices 0 to 1), island ib (devices 2 to 3)"),
                    HasSubstr("jax.device_put")));
}

TEST_F(ClusterTest, PiecesOfAnArrayShareItsBytes) {
  Start();
  const auto put = cluster.arrays().Put(
      session, 1, {DType::kF32, Shape{{4}}, Sharding::Tiled({0, 1}, {2}, {0, 1}).value()}, {0, 1});
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("01234567"));
  cluster.arrays().ProvideUpload(put->upload, 1, Bytes("89abcdef"));
  End(a, 1);
  actions.Take();
  ASSERT_TRUE(cluster.arrays().Disassemble(session, 1, CopySemantics::kReuseInput, {2, 3}).ok());
  EXPECT_EQ(cluster.arrays().Spec(session, 3)->shape, Shape{{2}});
  ASSERT_TRUE(cluster.arrays()
                  .Assemble(session,
                            {DType::kF32, Shape{{4}}, Sharding::Tiled({0, 1}, {2}, {0, 1}).value()},
                            {2, 3}, CopySemantics::kReuseInput, 4)
                  .ok());
  EXPECT_TRUE(cluster.arrays().Destruct(session, {1, 2, 3}).ok());
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.arrays().Fetch(session, 1, 4);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("2 different shards")));
  EXPECT_TRUE(cluster.arrays().Destruct(session, {4}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [1]"));
}

TEST_F(ClusterTest, EveryPieceOfAReplicatedResultIsItsOwn) {
  Start();
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1})};
  const auto put = cluster.arrays().Put(session, 1, spec, {0, 0});
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
  End(a, put->upload.value);
  const uint64_t f = Define(1, {0, 1}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  actions.Take();
  End(a, 2, absl::OkStatus(), {{{GroupId(2), 0}, Bytes("bytes of device0")}});
  // A program may leave different bytes on the two devices (shard_map with check_vma=False).
  ASSERT_TRUE(cluster.arrays().Disassemble(session, 2, CopySemantics::kReuseInput, {3, 4}).ok());
  cluster.arrays().Fetch(session, 1, 2);
  cluster.arrays().Fetch(session, 2, 3);
  EXPECT_THAT(actions.Take(),
              ElementsAre("s1 fetched 1: bytes of device0", "s1 fetched 2: bytes of device0"));
  cluster.arrays().Fetch(session, 3, 4);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- send t3 [#0=2:1]", "pull t3 from e1 #0 16B"));
  cluster.arrays().FetchArrived(TransferId(3), Bytes("bytes of device1"));
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- end send t3", "s1 fetched 3: bytes of device1"));
}

TEST_F(ClusterTest, AFetchOfALargeResultIsPulledOnceItIsThere) {
  Start();
  PutReady(1, 0);
  cluster.arrays().Fetch(session, 1, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- send t2 [#0=1:0]", "pull t2 from e1 #0 16B"));
  EXPECT_EQ(cluster.sessions().BacklogOf(session).fetching, 16);
  EXPECT_TRUE(cluster.arrays().Destruct(session, {1}).ok());
  EXPECT_THAT(actions.Take(), IsEmpty());  // a transfer reads it
  cluster.arrays().FetchArrived(TransferId(2), Bytes("abc"));
  EXPECT_EQ(cluster.sessions().BacklogOf(session).fetching, 0);
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- end send t2", "e1 <- free [1]", "s1 fetched 1: abc"));
}

TEST_F(ClusterTest, ALongErrorOfAClientIsCutBeforeItTravels) {
  Start();
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  ASSERT_TRUE(cluster.arrays()
                  .MakeError(session, 1, spec, absl::AbortedError(std::string(1 << 20, 'x')))
                  .ok());
  cluster.arrays().Watch(session, 9, {1});
  ASSERT_EQ(actions.lines.size(), 1u);
  EXPECT_THAT(actions.lines[0], HasSubstr("... (1048576 bytes in all)"));
  EXPECT_LT(actions.lines[0].size(), 5000u);
}

TEST_F(ClusterTest, HandlesOfOneSessionMeanNothingInAnother) {
  Start();
  PutReady(1, 0);
  const SessionId other = actions.Open(cluster);
  EXPECT_EQ(cluster.arrays().Spec(other, 1), nullptr);
  EXPECT_EQ(cluster.arrays().Destruct(other, {1}).code(), absl::StatusCode::kNotFound);
  cluster.arrays().Fetch(other, 3, 1);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("s2 fetched 3: NOT_FOUND")));
}

TEST_F(ClusterTest, ASecondWorkerWithTheSameNameIsRefused) {
  Start();
  EXPECT_EQ(cluster.fleet().ExecutorUp(Worker("wa", "ic", 2)).status().code(),
            absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace fairway
