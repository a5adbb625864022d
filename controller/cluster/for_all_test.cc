// SPDX-License-Identifier: Apache-2.0
// Golden dialogues of launches that all their executors get as one command.
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Island ia has executors 1 to 3 with a device each, which take spans if the test says so.
class ForAllTest : public ClusterTest {
 protected:
  ExecutorSpec OfThree(int i, uint64_t incarnation = 7) {
    ExecutorSpec spec = Worker(fmt::format("w{}", i), "ia", 1);
    spec.island_workers = 3;
    spec.takes_spans = i != without_spans_;
    spec.incarnation = Incarnation(incarnation);
    return spec;
  }
  void StartThree() {
    for (int i = 0; i < 3; ++i) e_[i] = cluster.fleet().ExecutorUp(OfThree(i)).value();
    session = actions.Open(cluster);
    actions.Take();
  }
  // Puts array 1 on these devices, and runs code 1 on it, which makes array 2, to the end.
  void RunOnce(std::vector<int32_t> devices) {
    StartThree();
    const auto put =
        cluster.arrays().Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::Replicated(devices)},
                             std::vector<int32_t>(devices.size(), 0));
    cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
    for (const int32_t d : devices) End(e_[d], 1);
    code_ = Define(1, devices, {F32({4})}, {F32({4})});
    ASSERT_TRUE(cluster.executables().Execute(session, code_, {1}, {}, {2}).ok());
    for (const int32_t d : devices) Installed(e_[d], 1);
    for (const int32_t d : devices) End(e_[d], 2);
    actions.Take();
  }
  // Runs it on array `from`.
  void Call(uint64_t from, uint64_t to) {
    ASSERT_TRUE(cluster.executables().Execute(session, code_, {from}, {}, {to}).ok());
  }
  void Fails(int i, uint64_t node, absl::Status why) {
    Report report;
    report.failures = {{.status = std::move(why), .node = NodeId(node)}};
    cluster.fleet().OnReport(e_[i], Incarnation(7), report);
  }
  void Ended(uint64_t node) { cluster.fleet().LaunchesEnded({NodeId(node)}); }
  void Return(int i) {
    ASSERT_TRUE(cluster.fleet().ExecutorUp(OfThree(i, 8)).ok());
    cluster.Tick(0);
  }

  int without_spans_ = -1;
  ExecutorId e_[3];
  uint64_t code_ = 0;
};

TEST_F(ForAllTest, OnceAllHaveTheCodeALaunchIsOneCommandAndSoAreFrees) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 1, 2}));
  Call(2, 3);
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 to e3 <- launch all n3 id 2 x1 in [2] out [3] keep [] inline [0]"));
  Call(3, 4);  // goes ahead of the one before
  EXPECT_THAT(
      actions.Take(),
      ElementsAre("e1 to e3 <- launch all n4 id 3 x1 ahead in [3] out [4] keep [] inline [0]"));
  cluster.arrays().Watch(session, 5, {4});
  Ended(3);
  EXPECT_THAT(actions.Take(), IsEmpty());
  Ended(4);
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 5: OK"));
  EXPECT_EQ(cluster.arrays().Delete(session, {3}), absl::OkStatus());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 to e3 <- free [3]"));
}

TEST_F(ForAllTest, APartOfTheIslandIsASpanIfNobodyElseIsBetween) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({1, 2}));
  Call(2, 3);
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("e2 to e3 <- launch all n3")));
}

TEST_F(ForAllTest, WhatIsNoSpanIsToldToEach) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 2}));
  Call(2, 3);
  EXPECT_THAT(actions.Take(),
              ElementsAre(HasSubstr("e1 <- prepare n3"), HasSubstr("e3 <- prepare n3"),
                          HasSubstr("e1 <- launch n3"), HasSubstr("e3 <- launch n3")));
}

TEST_F(ForAllTest, AnOlderExecutorGetsNoCommandForAll) {
  without_spans_ = 1;
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 1, 2}));
  Call(2, 3);
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr(" to e"))));
}

TEST_F(ForAllTest, NobodyHearsOfWhatWaitsForItsInputsUntilItIsLaunched) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 1, 2}));
  const auto put = cluster.arrays().Put(
      session, 8, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1, 2})}, {0, 0, 0});
  Call(8, 9);
  EXPECT_THAT(actions.Take(), IsEmpty());
  Call(2, 10);  // a younger one overtakes it, and so does one that each is told of
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("e1 to e3 <- launch all n5 id 2")));
  const auto one =
      cluster.arrays().Put(session, 20, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  const uint64_t on_one = Define(2, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, on_one, {20}, {}, {24}).ok());
  cluster.arrays().ProvideUpload(one->upload, 0, Bytes("0123456789abcdef"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- prepare n7")));
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  for (const ExecutorId each : e_) End(each, 3);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 to e3 <- launch all n4")));
}

TEST_F(ForAllTest, WhatWaitsWhenAnExecutorIsLostRunsOnceThatIsBackAndHasTheCode) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 1, 2}));
  const auto put = cluster.arrays().Put(
      session, 8, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1, 2})}, {0, 0, 0});
  Call(8, 9);
  cluster.fleet().ExecutorLost(e_[1], absl::UnavailableError("killed"));
  actions.Take();
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("launch"))));
  Return(1);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e2 <- install x1")));
}

TEST_F(ForAllTest, AFailureIsHeardAbandonsTheOthersAndIsToldOnceAllHaveEnded) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 1, 2}));
  Call(2, 3);
  cluster.arrays().Watch(session, 5, {3});
  actions.Take();
  Fails(1, 3, absl::UnknownError("second"));
  EXPECT_THAT(actions.Take(), ElementsAre("e2 <- heard n3", "e1 <- abandon 2 to 2: UNKNOWN: second",
                                          "e3 <- abandon 2 to 2: UNKNOWN: second"));
  Fails(0, 3, absl::UnknownError("first"));
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- heard n3"));
  Ended(3);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 5: UNKNOWN: f1 on island ia")));
  // Whatever else is said of it is answered, and changes nothing.
  Fails(2, 3, absl::UnknownError("late"));
  Ended(3);
  EXPECT_THAT(actions.Take(), ElementsAre("e3 <- heard n3"));
}

// A loss is told in slices, and the log may conclude the launch before.
TEST_F(ForAllTest, ALossThatIsYetToBeToldEndsItAndNotTheOthersEnds) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 1, 2}));
  constexpr uint64_t kMany = 20000;  // each is a node
  for (uint64_t i = 0; i < kMany; ++i) {
    const auto put = cluster.arrays().Put(
        session, 100 + i, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
    ASSERT_TRUE(put.ok()) << put.status();
  }
  Call(2, 3);
  cluster.arrays().Watch(session, 5, {3});
  actions.Take();
  cluster.fleet().ExecutorLost(e_[1], absl::UnavailableError("killed"));
  ASSERT_TRUE(actions.turn_wanted);
  Ended(3 + kMany);
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("watched"))));
  RunTurns();
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 5: DATA_LOSS: island ia")));
}

TEST_F(ForAllTest, ALossEndsItWithItsCauseAlsoIfTheOthersHaveEndedItBefore) {
  ASSERT_NO_FATAL_FAILURE(RunOnce({0, 1, 2}));
  Call(2, 3);
  cluster.arrays().Watch(session, 5, {3});
  actions.Take();
  cluster.fleet().ExecutorLost(e_[1], absl::UnavailableError("killed"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- abandon 2 to 2: DATA_LOSS")));
  Ended(3);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 5: DATA_LOSS: island ia: the "
                                                 "executor of worker w1 was lost: killed")));
  // The code is loaded anew before it is launched for all again.
  ASSERT_NO_FATAL_FAILURE(Return(1));
  const auto put = cluster.arrays().Put(
      session, 8, {DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1, 2})}, {0, 0, 0});
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("0123456789abcdef"));
  Call(8, 9);
  const Lines sent = actions.Take();
  EXPECT_THAT(sent, Contains(HasSubstr("e2 <- install x1")));
  EXPECT_THAT(sent, Not(Contains(HasSubstr("launch all"))));
}

}  // namespace
}  // namespace fairway
