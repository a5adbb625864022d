// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: the executor's core runs sequences that other executors run, too.
#include "worker/executor/sequences_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

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

// Brief steps become blocks, which are linked once.
class BlocksTest : public SharedSequencesTest {
 protected:
  BlocksTest() {
    shell.links = true;
    core.InstallDone(ExecutableId(3), absl::OkStatus(), /*follows=*/true);
    core.TakeReport();
  }
  // A loop of one step.
  void Loop(int64_t rounds) {
    Install(3, 1, {Repeat(rounds, 2), Call(3, {0}, {1}, {0}), Set(0, 1, {1}), Output(0, 0, {0})});
  }
  // Launches a loop of two chains, a step of each in turns.
  void TwoChains(int64_t rounds) {
    Install(4, 2,
            {Repeat(rounds, 4), Call(3, {0}, {2}, {0}), Set(0, 2, {2}), Call(3, {1}, {3}, {1}),
             Set(1, 3, {3}), Output(0, 0, {0}), Output(1, 1, {1})});
    Arguments(2);
    Launch();
    Take();
  }
  void Brief(uint64_t node, size_t brief = 1000) {
    core.LaunchDone(NodeId(kFirstStep + node), absl::OkStatus(), {}, brief);
  }
  // Runs the sequence again, as `node` with seq `node` - 4: it takes group `from`, and makes `to`.
  void Next(uint64_t node, uint64_t id, uint64_t from, uint64_t to) {
    PrepareLaunch prepare;
    prepare.node = NodeId(node);
    prepare.seq = node - 4;
    prepare.executable = ExecutableId(code);
    prepare.devices = {0, 1};
    prepare.inputs = {{{GroupId(from), 0}}, {{GroupId(from), 1}}};
    prepare.outputs = {{GroupId(to), DType::kF32, "", {{0, 0, Shape{{4}}}, {1, 1, Shape{{4}}}}}};
    core.OnCommand(prepare);
    fairway::Launch launch;
    launch.node = prepare.node;
    launch.launch_id = LaunchId(id);
    launch.gang = launch.ahead = true;
    core.OnCommand(launch);
  }
  // Returns the launches among the lines, without what they take and make.
  static Lines Launches(const Lines& lines) {
    Lines launches;
    for (const std::string& line : lines) {
      if (const size_t begin = line.find(" id "); begin != std::string::npos)
        launches.push_back(line.substr(0, line.find(" (")));
    }
    return launches;
  }
};

TEST_F(BlocksTest, BriefStepsAreLaunchedTogether) {
  Loop(100);
  Arguments(1);
  Launch();
  EXPECT_THAT(Launches(Take()), ElementsAre("x3 as s0 id 70", "x3 as s2 id 71", "x3 as s4 id 72",
                                            "x3 as s6 id 73", "x3 as s8 id 74", "x3 as s10 id 75",
                                            "x3 as s12 id 76", "x3 as s14 id 77"));
  Brief(0);  // now nine may be at work, four together; seven are at work
  EXPECT_THAT(Take(), ElementsAre("link xs16: x3(0) x3(1) x3(2) x3(3) -> 4"));
  Brief(2);
  Brief(4);
  EXPECT_THAT(Launches(Take()), ElementsAre("xs16 as s17 id 78"));
  for (const uint64_t node : {6, 8, 10, 12, 14}) Brief(node);
  // 16 may be at work, eight together.
  EXPECT_THAT(Take(),
              ElementsAre("xs16 as s19 id 82 (s18:0 s18:1) -> s20 ahead",
                          "xs16 as s21 id 86 (s20:0 s20:1) -> s22 ahead",
                          "link xs23: x3(0) x3(1) x3(2) x3(3) x3(4) x3(5) x3(6) x3(7) -> 8"));
}

TEST_F(BlocksTest, ARunBeginsWithTheWindowOfTheLastOne) {
  Loop(16);
  Arguments(1);
  Launch();
  for (const uint64_t node : {0, 2, 4, 6, 8, 10, 12, 14}) Brief(node);
  Brief(17);
  Brief(19);
  EXPECT_EQ(Reported(), "through 1");
  Take();
  core.OnCommand(FreeGroups{{GroupId(20)}});
  Launch();
  EXPECT_THAT(Launches(Take()), ElementsAre("xs21 as s22 id 70", "xs21 as s24 id 78"));
  core.OnCommand(DropExecutable{ExecutableId(9)});
  EXPECT_THAT(Take(), ElementsAre("unload xs16", "unload xs21"));
}

TEST_F(BlocksTest, ARunThatBeginsBesideTheFirstOneBeginsAsThat) {
  Loop(16);
  Arguments(2);
  Launch();
  for (const uint64_t node : {0, 2, 4, 6, 8, 10, 12, 14}) Brief(node);
  Take();
  Next(6, 90, 11, 21);
  EXPECT_EQ(Launches(Take()).size(), static_cast<size_t>(kSequenceWindow));
}

TEST_F(BlocksTest, ABlockIsNoLongerThanBriefLaunchesAre) {
  Loop(100);
  Arguments(1);
  Launch();
  for (const uint64_t node : {0, 2, 4, 6, 8, 10, 12, 14}) Brief(node, 4);
  EXPECT_THAT(Launches(Take()), Each(StartsWith("x3 as ")));  // eight may be at work
  for (const uint64_t node : {16, 18, 20, 22, 24, 26, 28, 30}) Brief(node, 6);
  // Twelve may be, of which four are launched together.
  EXPECT_THAT(Launches(Take()),
              ElementsAre("xs32 as s33 id 86", "xs32 as s35 id 90", "xs32 as s37 id 94"));
  Brief(33, 3);
  Brief(35, 3);
  EXPECT_THAT(Launches(Take()), AllOf(SizeIs(4), Each(StartsWith("x3 as "))));
}

TEST_F(BlocksTest, AStepThatIsNotBriefEndsThem) {
  Loop(100);
  Arguments(1);
  Launch();
  for (const uint64_t node : {0, 2, 4, 6, 8, 10, 12}) Brief(node);
  Take();
  Done(14);
  Done(17);
  Done(19);
  Done(21);
  EXPECT_THAT(Launches(Take()), ElementsAre("x3 as s23 id 90", "x3 as s25 id 91", "x3 as s27 id 92",
                                            "x3 as s29 id 93", "x3 as s31 id 94", "x3 as s33 id 95",
                                            "x3 as s35 id 96", "x3 as s37 id 97"));
}

TEST_F(BlocksTest, AFailureInABlockFailsWhatNeedsIt) {
  TwoChains(8);
  for (const uint64_t node : {0, 2, 4, 6, 8, 10, 12, 14}) Brief(node);
  EXPECT_THAT(Launches(Take()), ElementsAre("xs16 as s17 id 78", "xs16 as s20 id 82"));
  Brief(17);
  const absl::Status lost = absl::DataLossError("third");
  core.LaunchDone(NodeId(kFirstStep + 20), lost, {}, 0, {lost, absl::OkStatus()});
  EXPECT_EQ(Reported(), "through 1 failed 1[0]: DATA_LOSS: third");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(BlocksTest, StepsBehindAFailureAreLaunchedOneByOne) {
  TwoChains(12);
  Done(0, absl::DataLossError("first"));
  for (const uint64_t node : {4, 8, 12, 16, 20, 24}) Done(node, absl::DataLossError("first"));
  Take();
  for (const uint64_t node : {2, 6, 10, 14}) Brief(node);
  Lines lines = Take();
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("link"); });
  EXPECT_THAT(
      lines,
      ElementsAre(
          "left out 86 to 86: DATA_LOSS: first", "x3 as s38 id 87 (s31:0 s31:1) -> s39 ahead",
          "left out 88 to 88: DATA_LOSS: first", "x3 as s44 id 89 (s39:0 s39:1) -> s45 ahead",
          "left out 90 to 90: DATA_LOSS: first", "x3 as s51 id 91 (s45:0 s45:1) -> s52 ahead",
          "left out 92 to 92: DATA_LOSS: first", "x3 as s57 id 93 (s52:0 s52:1) -> s58 ahead"));
}

TEST_F(BlocksTest, WhereNothingIsLinkedEachStepIsALaunch) {
  shell.links = false;
  Loop(100);
  Arguments(1);
  Launch();
  Take();
  for (const uint64_t node : {0, 2, 4, 6, 8, 10, 12, 14}) Brief(node);
  EXPECT_EQ(Launches(Take()).size(), 16u);
}

TEST_F(BlocksTest, AnInputThatFailsLaterFailsWhatReadsIt) {
  // The first chain fails while the block is launched behind it.
  TwoChains(6);
  for (const uint64_t node : {0, 2, 4, 6, 8, 10}) Brief(node);
  EXPECT_THAT(Launches(Take()), ElementsAre("xs16 as s17 id 78"));
  const absl::Status lost = absl::DataLossError("first");
  // The runtime says so before the core hears how the input ended.
  core.LaunchDone(NodeId(kFirstStep + 17), lost, {}, 0, {lost, absl::OkStatus()});
  Done(12, lost);
  Brief(14);
  EXPECT_EQ(Reported(), "through 1 failed 1[0]: DATA_LOSS: first");
  EXPECT_EQ(core.num_nodes(), 0u);
}

// ---- sequences that follow each other

TEST_F(BlocksTest, ASequenceFollowsTheOneThatComputesWhatItTakes) {
  Loop(2);
  Arguments(1);
  Launch();
  EXPECT_THAT(Take(), ElementsAre("x3 as s0 id 70 (10:0 10:1) -> s1",
                                  "x3 as s2 id 71 (s1:0 s1:1) -> s3 ahead"));
  Next(6, 80, 20, 21);
  EXPECT_THAT(Take(), ElementsAre("x3 as s4 id 80 (s3:0 s3:1) -> s5 ahead",
                                  "x3 as s6 id 81 (s5:0 s5:1) -> s7 ahead"));
  Next(7, 90, 21, 22);
  EXPECT_THAT(Take(), ElementsAre("x3 as s8 id 90 (s7:0 s7:1) -> s9 ahead",
                                  "x3 as s10 id 91 (s9:0 s9:1) -> s11 ahead"));
  Brief(0);
  Brief(2);
  EXPECT_EQ(Reported(), "through 1");
  // It is still read.
  EXPECT_THAT(shell.Take(),
              ElementsAre("drop s1:0 s1:1", "share s3:0 as 20:0", "share s3:1 as 20:1"));
  Brief(4);
  EXPECT_THAT(shell.Take(), ElementsAre("drop s3:0 s3:1"));
  for (const uint64_t node : {6, 8, 10}) Brief(node);
  EXPECT_EQ(Reported(), "through 3");
  EXPECT_EQ(core.num_nodes(), 0u);
  core.OnCommand(FreeGroups{{GroupId(10), GroupId(20), GroupId(21), GroupId(22)}});
  EXPECT_EQ(core.num_shards(), 0u);
}

TEST_F(BlocksTest, ASequenceWaitsUntilAllStepsOfTheOneBeforeAreStarted) {
  Loop(kSequenceWindow + 1);
  Arguments(1);
  Launch();
  EXPECT_EQ(Launches(Take()).size(), static_cast<size_t>(kSequenceWindow));
  Next(6, 80, 20, 21);
  EXPECT_THAT(Take(), ElementsAre());
  Done(0);
  EXPECT_THAT(Launches(Take()),
              ElementsAre("x3 as s16 id 78", "x3 as s18 id 80", "x3 as s20 id 81",
                          "x3 as s22 id 82", "x3 as s24 id 83", "x3 as s26 id 84",
                          "x3 as s28 id 85", "x3 as s30 id 86", "x3 as s32 id 87"));
}

// It takes one shard of a sequence that lets go of its values, and one of another launch.
TEST_F(BlocksTest, ASequenceDoesNotFollowOneThatIsEnding) {
  constexpr int32_t kArguments = 100;
  const auto on_both = [](uint64_t group) -> GroupPart {
    return {GroupId(group), DType::kF32, "", {{0, 0, Shape{{4}}}, {1, 1, Shape{{4}}}}};
  };
  for (int turns = 0; turns < 150; ++turns) {
    ExecutorCore slow(&shell, kGangsAtWork, /*turn_units=*/4);
    const auto run = [&](int most) {
      for (; most > 0 && std::ranges::count(shell.Take(), "want turn") > 0; --most) slow.Turn();
    };
    const auto launch = [&](uint64_t seq, std::vector<ShardRefs> inputs, uint64_t to) {
      PrepareLaunch prepare;
      prepare.node = NodeId(seq);
      prepare.seq = seq;
      prepare.executable = ExecutableId(seq == 1 ? 7 : 9);
      prepare.devices = {0, 1};
      prepare.inputs = std::move(inputs);
      prepare.outputs = {on_both(to)};
      slow.OnCommand(prepare);
      fairway::Launch launch;
      launch.node = prepare.node;
      launch.launch_id = LaunchId(100 * seq);
      launch.gang = launch.ahead = true;
      slow.OnCommand(launch);
    };
    auto sequence = std::make_shared<Sequence>();
    sequence->registers = kArguments;
    sequence->outputs = 1;
    sequence->types = types;
    sequence->instructions = {Output(0, 0)};
    slow.OnCommand(InstallSequence{ExecutableId(9), sequence});
    PrepareReceive argument;
    argument.node = NodeId(100);
    argument.out = on_both(10);
    argument.sources = {{.kind = ShardSource::Kind::kInline}, {.kind = ShardSource::Kind::kInline}};
    slow.OnCommand(argument);
    for (const size_t d : {0, 1}) slow.ReceiveDone(argument.node, d, absl::OkStatus());
    launch(1, {{}, {}}, 30);
    run(10'000);
    launch(2, {ShardRefs(kArguments, {GroupId(10), 0}), ShardRefs(kArguments, {GroupId(10), 1})},
           20);
    run(turns);
    launch(3, {{{GroupId(20), 0}}, {{GroupId(30), 1}}}, 40);
    run(10'000);
    slow.LaunchDone(NodeId(1), absl::OkStatus(), {});
    run(10'000);
    EXPECT_EQ(slow.num_nodes(), 0u) << "after " << turns << " turns";
  }
}

TEST_F(BlocksTest, WhatFailsInTheSequenceBeforeIsAFailedArgument) {
  Loop(2);
  Arguments(1);
  Launch();
  Next(6, 80, 20, 21);
  const absl::Status lost = absl::DataLossError("second");
  Brief(0);
  Done(2, lost);
  for (const uint64_t node : {4, 6}) Done(node, lost);
  EXPECT_EQ(
      Reported(),
      "through 2 failed 1[0]: DATA_LOSS: second failed 2[0] by argument 0: DATA_LOSS: second");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(BlocksTest, ASequenceEndsAfterTheArgumentsThatItDoesNotRead) {
  Install(3, 1, {Call(3, {0}, {1}), Output(0, 1, {1})});
  Arguments(1);
  Launch();
  code = 8;
  Install(3, 1, {Output(0, 0)});  // hands the argument on
  Next(6, 80, 20, 21);
  EXPECT_EQ(Reported(), "through 0");
  Done(0);
  EXPECT_EQ(Reported(), "through 2");
}

TEST_F(BlocksTest, AnAbandonedSequenceStartsNothingBehindTheOneBefore) {
  Loop(kSequenceWindow + 1);
  Arguments(1);
  Launch();
  Next(6, 90, 20, 21);
  Take();
  core.OnCommand(AbandonLaunch{LaunchId(90), LaunchId(98), absl::AbortedError("stop")});
  EXPECT_THAT(Take(), ElementsAre("left out 90 to 98: ABORTED: stop"));
  Done(0);
  EXPECT_THAT(Launches(Take()), ElementsAre("x3 as s16 id 78"));
}

TEST_F(BlocksTest, WhatWasUsedLongAgoIsUnlinked) {
  constexpr uint64_t kFirst = 100;
  Arguments(1);
  for (code = kFirst; code <= kFirst + LinkedBlocks::kMostSequences; ++code) {
    Loop(12);
    Launch();
    Lines unlinked;
    for (Lines lines = Take(); !lines.empty(); lines = Take()) {
      for (const std::string& line : lines) {
        if (line.starts_with("unload")) unlinked.push_back(line);
        if (line == "want turn") core.Turn();
        const size_t as = line.find(" as s");
        if (as == std::string::npos) continue;
        Brief(std::stoull(line.substr(as + 5)));
      }
    }
    EXPECT_EQ(unlinked.size(), code == kFirst + LinkedBlocks::kMostSequences ? 1u : 0u);
    EXPECT_EQ(Reported(), "through 1");
    core.OnCommand(FreeGroups{{GroupId(20)}});
  }
}

}  // namespace
}  // namespace fairway
