// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: the executor's core runs sequences that other executors run, too.
#include "worker/executor/sequences_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A sequence that other executors run too: they may wait for steps that are left out here.
class SharedSequencesTest : public SequencesTest {
 protected:
  SharedSequencesTest() {
    InstallExecutable shared;
    shared.executable = ExecutableId(3);
    shared.members = std::vector<InstallExecutable::Member>{{"here", Incarnation(1), {}},
                                                            {"there", Incarnation(2), {}}};
    core.OnCommand(shared);
    devices = 2;
  }
  // The branch has a block of one step and one of three.
  void StepBehindABranch() {
    Install(4, 1,
            {Call(1, {0}, {1}), Branch(1, {2}, {1, 3}), Call(3, {0}, {2}), Call(3, {0}, {2}),
             Call(3, {2}, {2}), Call(3, {2}, {2}), Call(3, {0}, {3}), Output(0, 3, {3})});
    Arguments(1);
    Launch();
    EXPECT_THAT(Take(), ElementsAre("x1 as s0 id 70 (10:0 10:1) -> s1"));
  }
  // Returns the actions without drops.
  Lines Take() {
    Lines lines = shell.Take();
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("drop"); });
    return lines;
  }
};

TEST_F(SharedSequencesTest, AFailureIsAnsweredWithForTheStepsThatNeedIt) {
  Install(4, 2,
          {Call(1, {0}, {1}), Call(2, {1}, {2}, {1}), Call(3, {0}, {3}), Output(0, 2, {2}),
           Output(1, 3, {3})});
  Arguments(1);
  Launch();
  EXPECT_THAT(Take(), ElementsAre("x1 as s0 id 70 (10:0 10:1) -> s1"));
  Done(0, absl::DataLossError("first"));
  EXPECT_THAT(Take(), ElementsAre("left out 71 to 71: DATA_LOSS: first",
                                  "x3 as s5 id 72 (10:0 10:1) -> s6"));
  Done(5);
  EXPECT_EQ(Reported(), "through 1 failed 1[0]: DATA_LOSS: first");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(SharedSequencesTest, ABranchTakesTheIdsOfItsLongestBlock) {
  StepBehindABranch();
  Done(0);
  EXPECT_THAT(Take(), ElementsAre("read for n5: s1:0"));
  core.ReadDone(NodeId(5), {Bytes({GroupId(kFirstStep + 1), 0}, 0)});
  EXPECT_THAT(Take(),
              ElementsAre("x3 as s2 id 71 (10:0 10:1) -> s3", "x3 as s4 id 74 (10:0 10:1) -> s5"));
}

TEST_F(SharedSequencesTest, ABranchWhoseScalarFailedTakesAsMany) {
  StepBehindABranch();
  Done(0, absl::DataLossError("first"));
  EXPECT_THAT(Take(), ElementsAre("left out 71 to 73: DATA_LOSS: first",
                                  "x3 as s3 id 74 (10:0 10:1) -> s4"));
}

TEST_F(SharedSequencesTest, ABranchInALoopTakesAsManyIdsInEachRound) {
  // The scalar is an argument; both blocks are short, and the first is empty.
  Install(3, 1,
          {Repeat(2, 3), Branch(0, {}, {0, 1}), Call(3, {0}, {1}), Call(3, {0}, {2}),
           Output(0, 2, {2})});
  Arguments(1);
  Launch();
  EXPECT_THAT(Take(), ElementsAre("read for n5: 10:0"));
  core.ReadDone(NodeId(5), {Bytes({GroupId(10), 0}, 0)});
  EXPECT_THAT(Take(), ElementsAre("x3 as s0 id 71 (10:0 10:1) -> s1", "read for n5: 10:0"));
  core.ReadDone(NodeId(5), {Bytes({GroupId(10), 0}, 1)});
  EXPECT_THAT(Take(), ElementsAre("x3 as s2 id 72 (10:0 10:1) -> s3"));
  Done(0);
  EXPECT_THAT(Take(), ElementsAre(HasSubstr("id 73 (10:0 10:1)")));
}

TEST_F(SharedSequencesTest, AnArgumentThatFailedHereOnlyIsAnsweredWith) {
  Install(4, 2,
          {Call(3, {0}, {2}, {0}), Call(2, {1}, {3}, {1}), Output(0, 2, {2}), Output(1, 3, {3})});
  Arguments(2);
  // Argument 0 is made anew, by a launch that has not ended.
  core.OnCommand(FreeGroups{{GroupId(10)}});
  PrepareLaunch producer;
  producer.node = NodeId(4);
  producer.seq = 2;
  producer.executable = ExecutableId(7);
  producer.devices = {0, 1};
  producer.inputs = {{}, {}};
  producer.outputs = {{GroupId(10), DType::kF32, "", {{0, 0, Shape{{4}}}, {1, 1, Shape{{4}}}}}};
  core.OnCommand(producer);
  fairway::Launch first;
  first.node = NodeId(4);
  first.launch_id = LaunchId(60);
  first.gang = true;
  core.OnCommand(first);
  fairway::Launch launch;
  launch.ahead = true;
  Launch(std::move(launch));
  EXPECT_THAT(Take(), ElementsAre("x7 as 4 id 60 () -> 10"));
  core.LaunchDone(NodeId(4), absl::DataLossError("first"), {});
  EXPECT_THAT(Take(), ElementsAre("left out 70 to 70: DATA_LOSS: first",
                                  "x2 as s3 id 71 (11:0 11:1) -> s4"));
  Done(3);
  EXPECT_EQ(Reported(),
            "through 2 failed 2[-1]: DATA_LOSS: first"
            " failed 1[0] by argument 0: DATA_LOSS: first");
}

// Nobody else tells the others when the controller dies before it hears of the failure.
TEST_F(SharedSequencesTest, AGangThatIsNotBegunForAFailedInputIsAnsweredWith) {
  PrepareLaunch gang;
  gang.node = NodeId(4);
  gang.seq = 1;
  gang.executable = ExecutableId(7);
  gang.devices = {0, 1};
  gang.inputs = {{}, {}};
  gang.outputs = {{GroupId(10), DType::kF32, "", {{0, 0, Shape{{4}}}, {1, 1, Shape{{4}}}}}};
  core.OnCommand(gang);
  gang.node = NodeId(6);
  gang.seq = 2;
  gang.executable = ExecutableId(3);
  gang.inputs = {{{GroupId(10), 0}}, {{GroupId(10), 1}}};
  gang.outputs[0].group = GroupId(20);
  core.OnCommand(gang);
  fairway::Launch launch;
  launch.node = NodeId(4);
  launch.launch_id = LaunchId(60);
  launch.gang = true;
  core.OnCommand(launch);
  launch.node = NodeId(6);
  launch.launch_id = LaunchId(61);
  launch.ahead = true;
  core.OnCommand(launch);
  EXPECT_THAT(Take(), ElementsAre("x7 as 4 id 60 () -> 10"));
  core.LaunchDone(NodeId(4), absl::DataLossError("first"), {});
  EXPECT_THAT(Take(), ElementsAre("left out 61 to 61: DATA_LOSS: first"));
}

}  // namespace
}  // namespace fairway
