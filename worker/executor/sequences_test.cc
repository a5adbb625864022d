// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: the executor's core runs sequences.
#include <algorithm>
#include <numeric>

#include "worker/executor/sequences_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(SequencesTest, AChainOnOneDeviceIsHandedOverAtOnceAndToldOnce) {
  Install(3, 1, {Call(1, {0}, {1}, {0}), Call(2, {1}, {2}, {1}), Output(0, 2, {2})});
  Arguments(1);
  Launch();
  EXPECT_THAT(shell.Take(),
              ElementsAre("x1 as s0 id 70 (10:0) -> s1", "x2 as s2 id 71 (s1:0) -> s3 ahead"));
  Done(0);
  EXPECT_EQ(Reported(), "through 0");
  Done(2);
  EXPECT_THAT(shell.Take(), ElementsAre("drop s1:0", "share s3:0 as 20:0", "drop s3:0"));
  EXPECT_EQ(Reported(), "through 1");
  EXPECT_EQ(core.num_nodes(), 0u);
  EXPECT_EQ(core.num_launched(), 0u);
  EXPECT_EQ(core.highest_launch_id(), 71u);
}

TEST_F(SequencesTest, StepsOfAGangWaitForTheirInputs) {
  devices = 2;
  Install(3, 1, {Call(1, {0}, {1}), Call(2, {1, 0}, {2}, {1}), Output(0, 2, {2})});
  Arguments(1);
  Launch();
  EXPECT_THAT(shell.Take(), ElementsAre("x1 as s0 id 70 (10:0 10:1) -> s1"));
  Done(0);
  EXPECT_THAT(shell.Take(), ElementsAre("x2 as s3 id 71 (s1:0 10:0 s1:1 10:1) -> s4"));
  Done(3);
  EXPECT_EQ(Reported(), "through 1");
}

TEST_F(SequencesTest, StepsOfAGangWhoseDevicesDoNotWaitForEachOtherAreHandedOverAtOnce) {
  devices = 2;
  for (const uint64_t x : {1, 2}) core.InstallDone(ExecutableId(x), absl::OkStatus(), true);
  Install(
      4, 1,
      {Call(1, {0}, {1}, {0}), Call(2, {1}, {2}, {1}), Call(3, {2}, {3}, {2}), Output(0, 3, {3})});
  Arguments(1);
  Launch();
  EXPECT_THAT(shell.Take(), ElementsAre("x1 as s0 id 70 (10:0 10:1) -> s1",
                                        "x2 as s2 id 71 (s1:0 s1:1) -> s3 ahead"));
  Done(2);  // its end comes before the end of the step that makes its inputs
  EXPECT_THAT(shell.Take(), IsEmpty());
  Done(0);
  EXPECT_THAT(shell.Take(), ElementsAre("drop s1:0 s1:1", "x3 as s5 id 72 (s3:0 s3:1) -> s6"));
  Done(5, absl::InternalError("broken"));
  EXPECT_EQ(Reported(), "through 1 failed 1[0]: INTERNAL: broken");
}

TEST_F(SequencesTest, ALoopCarriesItsValuesAndItsMemoryIsFreed) {
  Install(2, 1, {Repeat(3, 2), Call(1, {0}, {1}, {0}), Set(0, 1, {1}), Output(0, 0, {0})});
  Arguments(1);
  Launch();
  EXPECT_THAT(shell.Take(),
              ElementsAre("x1 as s0 id 70 (10:0) -> s1", "x1 as s2 id 71 (s1:0) -> s3 ahead",
                          "x1 as s4 id 72 (s3:0) -> s5 ahead"));
  Done(0);
  EXPECT_THAT(shell.Take(), IsEmpty());
  Done(2);
  Done(4);
  EXPECT_THAT(shell.Take(),
              ElementsAre("drop s1:0", "drop s3:0", "share s5:0 as 20:0", "drop s5:0"));
  EXPECT_EQ(Reported(), "through 1");
}

// Other executors run the loop too.
TEST_F(SequencesTest, ManyRoundsBehindAFailureTakeTurns) {
  devices = 2;  // a gang waits for its inputs
  Install(2, 1, {Repeat(100'000, 2), Call(1, {0}, {1}, {0}), Set(0, 1, {1}), Output(0, 0, {0})});
  Arguments(1);
  Launch();
  shell.Take();
  const auto goes_on = [&] {
    const Lines lines = shell.Take();
    return std::find(lines.begin(), lines.end(), "want turn") != lines.end();
  };
  Done(0, absl::InternalError("broken"));
  bool later = goes_on();
  EXPECT_TRUE(later);
  int turns = 1;
  for (; turns < 1000 && later; ++turns) {
    core.Turn();
    later = goes_on();
  }
  EXPECT_GT(turns, 100);
  EXPECT_LE(core.work().most(), ExecutorCore::kTurnUnits + 10);
}

// With the whole text of each they would not fit into one message.
TEST_F(SequencesTest, ManyFailedOutputsShareTheRoomForTheirTexts) {
  constexpr int32_t kOutputs = 20'000;
  std::vector<Instruction> instructions = {Call(1, {0}, {1})};
  for (int32_t o = 0; o < kOutputs; ++o) instructions.push_back(Output(o, 1));
  Install(2, kOutputs, instructions);
  core.Turn();
  Arguments(1);
  Launch();
  while (core.num_launched() > 0 && core.num_nodes() < 2) core.Turn();
  Done(0, absl::InternalError("begin " + std::string(kMaxErrorText - 10, 'x') + " end"));
  for (int i = 0; i < 100'000 && core.num_nodes() > 0; ++i) core.Turn();
  const Report report = core.TakeReport();
  ASSERT_EQ(report.failures.size(), static_cast<size_t>(kOutputs));
  size_t bytes = 0;
  for (const Report::Failure& failure : report.failures) bytes += failure.status.message().size();
  EXPECT_LE(bytes, 2 * kTextBytes);
  EXPECT_THAT(Text(report.failures.back().status), AllOf(HasSubstr("begin"), HasSubstr("end")));
}

TEST_F(SequencesTest, NoMoreStepsAreAtWorkThanMemoryIsReservedFor) {
  Install(2, 1, {Repeat(1000, 2), Call(1, {0}, {1}, {0}), Set(0, 1, {1}), Output(0, 0, {0})});
  Arguments(1);
  Launch();
  EXPECT_EQ(shell.Take().size(), kSequenceWindow);
  Done(0);
  EXPECT_EQ(shell.Take().size(), 1u);
}

TEST_F(SequencesTest, MoreStepsAreAtWorkWhileTheyAreBrief) {
  Install(2, 1, {Repeat(1000, 2), Call(1, {0}, {1}, {0}), Set(0, 1, {1}), Output(0, 0, {0})});
  Arguments(1);
  Launch();
  size_t at_work = 0;
  const auto started = [&] {
    size_t steps = 0;
    for (const std::string& line : shell.Take()) steps += line.starts_with("x1 as") ? 1 : 0;
    return steps;
  };
  at_work += started();
  uint64_t step = kFirstStep;
  const auto end = [&](bool brief) {
    core.LaunchDone(NodeId(step), absl::OkStatus(), {}, brief ? 1000 : 0);
    core.Turn();
    step += 2;  // the id between them is that of its result
    at_work += started() - 1;
  };
  for (int i = 0; i < 100; ++i) end(true);
  EXPECT_EQ(at_work, kWideWindow);
  end(false);
  EXPECT_EQ(at_work, kWideWindow - 1);
  for (int i = 1; i < kWideWindow - kSequenceWindow; ++i) end(false);
  EXPECT_EQ(at_work, kSequenceWindow);
  end(false);
  EXPECT_EQ(at_work, kSequenceWindow);
}

TEST_F(SequencesTest, StepsThatMakeMuchAreNoMoreAtWorkWhenTheyAreBrief) {
  types = {{DType::kF32, Shape{{1000}}, ""}};
  Install(2, 1, {Repeat(1000, 2), Call(1, {0}, {1}, {0}), Set(0, 1, {1}), Output(0, 0, {0})});
  Arguments(1);
  Launch();
  for (uint64_t step = 0; step < 40; step += 2) {
    core.LaunchDone(NodeId(kFirstStep + step), absl::OkStatus(), {}, 1000);
    core.Turn();
  }
  size_t steps = 0;
  for (const std::string& line : shell.Take()) steps += line.starts_with("x1 as") ? 1 : 0;
  EXPECT_EQ(steps, 20u + kSequenceWindow);
}

TEST_F(SequencesTest, ABranchReadsItsScalarAndRunsOneBlock) {
  Install(3, 1,
          {Call(1, {0}, {1}), Branch(1, {2}, {1, 2}), Call(2, {0}, {2}), Call(3, {0}, {2}),
           Call(4, {2}, {2}), Output(0, 2, {2})});
  Arguments(1);
  Launch();
  EXPECT_THAT(shell.Take(), ElementsAre("x1 as s0 id 70 (10:0) -> s1"));
  Done(0);
  EXPECT_THAT(shell.Take(), ElementsAre("read for n5: s1:0"));
  core.ReadDone(NodeId(5), {Bytes({GroupId(kFirstStep + 1), 0}, 7)});
  EXPECT_THAT(shell.Take(),
              ElementsAre("x3 as s2 id 71 (10:0) -> s3", "x4 as s4 id 72 (s3:0) -> s5 ahead"));
  Done(2);
  Done(4);
  EXPECT_EQ(Reported(), "through 1");
}

TEST_F(SequencesTest, ABranchBelowZeroTakesTheFirstBlock) {
  Install(3, 1, {Branch(0, {1}, {1, 1}), Call(2, {0}, {1}), Call(3, {0}, {1}), Output(0, 1)});
  Arguments(1);
  Launch();
  EXPECT_THAT(shell.Take(), ElementsAre("read for n5: 10:0"));
  core.ReadDone(NodeId(5), {Bytes({GroupId(10), 0}, -3)});
  EXPECT_THAT(shell.Take(), ElementsAre("x2 as s0 id 70 (10:0) -> s1"));
}

TEST_F(SequencesTest, ABranchWhoseScalarFailedLeavesWhatItWasToMakeFailed) {
  Install(3, 1,
          {Call(1, {0}, {1}), Branch(1, {2}, {1, 1}), Call(2, {0}, {2}), Call(3, {0}, {2}),
           Output(0, 2, {2})});
  Arguments(1);
  Launch();
  Done(0, absl::DataLossError("first"));
  EXPECT_EQ(Reported(), "through 1 failed 1[0]: DATA_LOSS: first");
}

TEST_F(SequencesTest, ABranchWhoseScalarCannotBeReadFails) {
  Install(3, 1, {Branch(0, {1}, {1, 1}), Call(2, {0}, {1}), Call(3, {0}, {1}), Output(0, 1)});
  Arguments(1);
  Launch();
  core.ReadDone(NodeId(5), {});
  EXPECT_THAT(Reported(), HasSubstr("failed 1[0]: INTERNAL"));
}

TEST_F(SequencesTest, AFailurePoisonsWhatDependsOnItAndNothingElse) {
  Install(4, 3,
          {Call(1, {0}, {1}), Call(2, {1}, {2}, {1}), Call(3, {0}, {3}), Output(0, 2, {2}),
           Output(1, 3, {3}), Output(2, 0)});
  Arguments(1);
  Launch();
  Done(0, absl::DataLossError("first"));
  Done(2, absl::InternalError("second"));
  Done(4);
  EXPECT_THAT(Reported(), "through 1 failed 1[0]: DATA_LOSS: first");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(SequencesTest, AFailedArgumentFailsWhatNeedsItAndNothingElse) {
  for (const int n : {1, 2}) {
    SCOPED_TRACE(n);
    devices = n;
    // Outputs: 0 of arguments 0 and 1, 1 of argument 1, 2 of argument 2.
    Install(6, 3,
            {Call(1, {0, 1}, {3}, {0}), Call(2, {1}, {4}, {1}), Call(3, {2}, {5}, {2}),
             Output(0, 3, {3}), Output(1, 4, {4}), Output(2, 5, {5})});
    Arguments(3);
    core.OnCommand(FreeGroups{{GroupId(10)}});  // its shards need not be here
    fairway::Launch launch;
    launch.failed = {{0, absl::DataLossError("lost")}, {2, absl::AbortedError("stopped")}};
    Launch(std::move(launch));
    Lines lines = shell.Take();
    std::erase_if(lines, [](const std::string& line) { return line[0] != 'x'; });
    ASSERT_THAT(lines, ElementsAre(::testing::StartsWith("x2 as s")));
    Done(std::stoul(lines[0].substr(7)));
    EXPECT_EQ(Reported(),
              "through 1 failed 1[0] by argument 0: DATA_LOSS: lost"
              " failed 1[2] by argument 2: ABORTED: stopped");
    EXPECT_EQ(core.num_nodes(), 0u);
    core.Reset();
  }
}

TEST_F(SequencesTest, AnArgumentThatFailsHereFailsWhatNeedsIt) {
  Install(4, 2,
          {Call(1, {0}, {2}, {0}), Call(2, {1}, {3}, {1}), Output(0, 2, {2}), Output(1, 3, {3})});
  Arguments(2);
  // Argument 0 is made anew, by a launch that has not ended.
  core.OnCommand(FreeGroups{{GroupId(10)}});
  PrepareLaunch producer;
  producer.node = NodeId(4);
  producer.seq = 2;
  producer.executable = ExecutableId(7);
  producer.devices = {0};
  producer.inputs = {{}};
  producer.outputs = {{GroupId(10), DType::kF32, "", {{0, 0, Shape{{4}}}}}};
  core.OnCommand(producer);
  fairway::Launch first;
  first.node = NodeId(4);
  first.launch_id = LaunchId(60);
  core.OnCommand(first);
  fairway::Launch launch;
  launch.ahead = true;
  Launch(std::move(launch));
  shell.Take();
  core.LaunchDone(NodeId(4), absl::DataLossError("first"), {});
  EXPECT_THAT(shell.Take(), ::testing::Contains("x2 as s3 id 71 (11:0) -> s4"));
  Done(3);
  EXPECT_EQ(Reported(),
            "through 2 failed 2[-1]: DATA_LOSS: first"
            " failed 1[0] by argument 0: DATA_LOSS: first");
}

TEST_F(SequencesTest, OnlyASequenceRunsWithFailedArguments) {
  Arguments(1);
  fairway::Launch launch;
  launch.failed = {{0, absl::DataLossError("lost")}};
  Launch(std::move(launch));
  EXPECT_THAT(Reported(), HasSubstr("failed 1[-1]: INTERNAL"));
}

TEST_F(SequencesTest, AStepWhoseInputFailedIsNotStarted) {
  devices = 2;
  Install(3, 1, {Call(1, {0}, {1}), Call(2, {1}, {2}, {1}), Output(0, 2, {2})});
  Arguments(1);
  Launch();
  shell.Take();
  Done(0, absl::DataLossError("first"));
  EXPECT_THAT(shell.Take(), ElementsAre("drop s1:0 s1:1", "drop s4:0 s4:1"));
  EXPECT_EQ(Reported(), "through 1 failed 1[0]: DATA_LOSS: first");
}

TEST_F(SequencesTest, OnlyWhatTheRunAloneHasIsDonated) {
  // Argument 1 is kept by the client; register 2 is an output too.
  Install(6, 2,
          {Call(1, {0, 1}, {2}, {0, 1}, {0, 1}), Output(0, 2), Call(2, {2}, {3}, {2}, {0}),
           Call(3, {3}, {4}, {3}, {0}), Output(1, 4, {4})});
  Arguments(2);
  Launch({}, {1});
  EXPECT_THAT(shell.Take(), ElementsAre("x1 as s0 id 70 (10:0 11:0) -> s1 keep [1]",
                                        "x2 as s2 id 71 (s1:0) -> s3 ahead keep [0]",
                                        "x3 as s4 id 72 (s3:0) -> s5 ahead keep [0]"));
}

TEST_F(SequencesTest, WhatAnotherReadsIsDonatedOnceThatHasEnded) {
  devices = 2;
  Install(3, 1, {Call(1, {0}, {1}), Call(2, {1}, {2}, {1}, {0}), Output(0, 2, {2})});
  Arguments(1);
  Launch();
  shell.Take();
  Done(0);
  EXPECT_THAT(shell.Take(), ElementsAre("x2 as s3 id 71 (s1:0 s1:1) -> s4"));
}

TEST_F(SequencesTest, OutputsAreServedAndReadBeforeTheEnd) {
  Install(3, 2, {Call(1, {0}, {1}), Output(0, 1), Call(2, {1}, {2}, {1}), Output(1, 2, {2})});
  Arguments(1);
  Launch({{GroupId(20), 0}, {GroupId(21), 0}});
  core.OnCommand(PrepareSend{TransferId(3), {{0, {GroupId(20), 0}}}});
  core.OnPull(8, TransferId(3), 0);
  shell.Take();
  Done(0);
  EXPECT_THAT(shell.Take(), ElementsAre("share s1:0 as 20:0", "serve p8 20:0"));
  Done(2);
  EXPECT_THAT(shell.Take(), ElementsAre("share s3:0 as 21:0", "read for n5: 20:0 21:0"));
  EXPECT_EQ(Reported(), "through 0");
  core.ReadDone(NodeId(5), {Bytes({GroupId(20), 0}, 1)});
  EXPECT_EQ(Reported(), "through 1 inline 20:0");
}

TEST_F(SequencesTest, GangsBehindASequenceWaitUntilItsStepsAreStarted) {
  devices = 2;
  Install(3, 1, {Call(1, {0}, {1}), Call(2, {1}, {2}, {1}), Output(0, 2, {2})});
  Arguments(1);
  Launch();
  PrepareLaunch other;
  other.node = NodeId(6);
  other.seq = 2;
  other.executable = ExecutableId(1);
  other.devices = {0, 1};
  other.inputs = {{{GroupId(10), 0}}, {{GroupId(10), 1}}};
  core.OnCommand(other);
  fairway::Launch launch;
  launch.node = NodeId(6);
  launch.launch_id = LaunchId(80);
  launch.gang = true;
  core.OnCommand(launch);
  EXPECT_THAT(shell.Take(), ElementsAre("x1 as s0 id 70 (10:0 10:1) -> s1"));
  Done(0);
  EXPECT_THAT(shell.Take(),
              ElementsAre("x2 as s3 id 71 (s1:0 s1:1) -> s4", "x1 as 6 id 80 (10:0 10:1) -> "));
}

TEST_F(SequencesTest, GangsOfOtherDevicesGoOnBesideASequenceWithoutEnd) {
  devices = 2;
  Arguments(1);
  Install(1, 0, {Repeat(int64_t{1} << 28, 1), Call(1, {0}, {0})});
  Launch();
  // Returns the number of the step that was started.
  const auto started = [&] {
    core.Turn();
    const Lines lines = shell.Take();
    unsigned long long step = 0;
    const auto last = lines.empty() ? std::string() : lines.back();
    EXPECT_EQ(std::sscanf(last.c_str(), "x1 as s%llu", &step), 1) << last;
    return step;
  };
  uint64_t step = started();
  const auto gang = [&](uint64_t node, std::vector<int32_t> on) {
    PrepareLaunch prepare;
    prepare.node = NodeId(node);
    prepare.seq = node;
    prepare.executable = ExecutableId(1);
    prepare.inputs.resize(on.size());
    prepare.devices = std::move(on);
    core.OnCommand(prepare);
    fairway::Launch launch;
    launch.node = NodeId(node);
    launch.launch_id = LaunchId((uint64_t{1} << 29) + node);
    launch.gang = true;
    core.OnCommand(launch);
  };
  for (uint64_t n = 6; n < 100; ++n) {
    gang(n, {2, 3});
    core.Turn();
    EXPECT_THAT(shell.Take(), ::testing::Contains(::testing::HasSubstr(fmt::format("as {} ", n))));
    core.LaunchDone(NodeId(n), absl::OkStatus(), {});
    Done(step);
    step = started();
  }
  gang(100, {1, 2});
  core.Turn();
  EXPECT_EQ(shell.Take(), Lines()) << "it shares a device with the sequence";
}

// Runs these instructions as node 5 with launch id 70, alone on one device of `core`: without
// arguments and outputs.
void RunAlone(ExecutorCore& core, int32_t registers, std::vector<Instruction> instructions) {
  auto sequence = std::make_shared<Sequence>();
  sequence->registers = registers;
  sequence->outputs = 0;
  sequence->types = {{DType::kF32, Shape{{4}}, ""}};
  sequence->instructions = std::move(instructions);
  PrepareLaunch prepare;
  prepare.node = NodeId(5);
  prepare.seq = 1;
  prepare.executable = ExecutableId(9);
  prepare.devices = {0};
  prepare.inputs.resize(1);
  fairway::Launch launch;
  launch.node = NodeId(5);
  launch.launch_id = LaunchId(70);
  core.OnCommand(InstallSequence{ExecutableId(9), sequence});
  core.OnCommand(prepare);
  core.OnCommand(launch);
}

std::vector<int32_t> Registers(int32_t first, int32_t count) {
  std::vector<int32_t> registers(count);
  std::iota(registers.begin(), registers.end(), first);
  return registers;
}

TEST_F(SequencesTest, WhatACancelledSequenceHeldGoesWithItsLastStep) {
  Install(3, 1, {Call(1, {0}, {1}), Call(2, {1}, {2}), Output(0, 2)});
  Arguments(1);
  Launch();
  core.OnCommand(CancelNode{NodeId(5), absl::CancelledError("given up")});
  core.OnCommand(FreeGroups{{GroupId(10), GroupId(20)}});
  Done(0);
  Done(2);
  EXPECT_EQ(core.num_nodes(), 0u);
  EXPECT_EQ(core.num_shards(), 0u);
}

// Its code may have been dropped by the time that it would start.
TEST_F(SequencesTest, AStepThatIsAbandonedWhileItIsMadeDoesNotStart) {
  for (uint64_t units = 1; units < 12; ++units) {
    ExecutorCore slow(&shell, kGangsAtWork, units);
    const auto run = [&] {
      for (Lines lines = shell.Take(); std::ranges::count(lines, "want turn") > 0;
           lines = shell.Take()) {
        EXPECT_THAT(lines, Not(Contains(HasSubstr("x1 as"))));
        slow.Turn();
      }
    };
    RunAlone(slow, 20, {Call(1, {}, Registers(0, 20))});
    slow.OnCommand(AbandonLaunch{LaunchId(70), LaunchId(70), absl::DataLossError("lost")});
    slow.OnCommand(DropExecutable{ExecutableId(1)});
    run();
    EXPECT_EQ(slow.num_nodes(), 0u);
    EXPECT_EQ(slow.num_shards(), 0u);
  }
}

// The search for launches that follow a started one must not find a step that is being made.
TEST_F(SequencesTest, AStepStartsOnceAllThatItWaitsForIsWrittenDown) {
  constexpr int32_t kValues = 40;
  for (uint64_t units = 1; units < 4 * kValues; ++units) {
    Recorder steps;
    ExecutorCore slow(&steps, kGangsAtWork, units);
    const std::vector<int32_t> values = Registers(0, kValues);
    RunAlone(slow, kValues + 1, {Call(1, {}, values), Call(1, values, {kValues})});
    std::vector<uint64_t> at_work;
    for (bool goes_on = true; std::exchange(goes_on, false);) {
      for (const std::string& line : steps.Take()) {
        goes_on = goes_on || line == "want turn";
        if (!line.starts_with("x1 as s")) continue;
        at_work.push_back(std::stoull(line.substr(7)));
      }
      // The device is ahead of the core's turns once it has two steps, or the core waits.
      if (at_work.size() > 1 || !goes_on) {
        goes_on = goes_on || !at_work.empty();
        for (const uint64_t step : std::exchange(at_work, {}))
          slow.LaunchDone(NodeId(kFirstStep + step), absl::OkStatus(), {});
      }
      slow.Turn();
    }
    EXPECT_EQ(slow.num_nodes(), 0u) << units << " units a turn";
    EXPECT_EQ(slow.num_shards(), 0u);
  }
}

// An input of it may fail at any moment while another one is still being computed.
TEST_F(SequencesTest, NoStepStartsAheadOfOneThatDoesNot) {
  int made = 0, failed = 0;
  for (int turns = 0; turns < 60; ++turns) {
    Recorder steps;
    ExecutorCore slow(&steps, kGangsAtWork, 4);
    Lines all;
    bool wants = false;  // a turn
    const auto look = [&] {
      for (std::string& line : steps.Take()) {
        wants = wants || line == "want turn";
        all.push_back(std::move(line));
      }
    };
    const auto go_on = [&](int most) {
      for (look(); wants && most > 0; --most, look()) {
        wants = false;
        slow.Turn();
      }
      return !wants;
    };
    const auto begins = [](const char* code) {
      return [code](const std::string& line) { return line.starts_with(code); };
    };
    RunAlone(slow, 20,
             {Call(1, {}, {0}), Call(2, {}, {1}), Call(3, {0, 1}, Registers(2, 12)),
              Call(4, {2}, {14})});
    bool idle = false;
    while (!idle && std::ranges::none_of(all, begins("x2 as"))) idle = go_on(1);
    idle = go_on(turns);
    slow.LaunchDone(NodeId(kFirstStep), absl::UnknownError("boom"), {});
    ASSERT_TRUE(go_on(10'000));
    const auto third = std::ranges::find_if(all, begins("x3 as"));
    const auto fourth = std::ranges::find_if(all, begins("x4 as"));
    EXPECT_TRUE(third < fourth || fourth == all.end()) << "after " << turns << " turns";
    ++(third == all.end() ? failed : made);
    for (const uint64_t node : {2, 4, 17}) {
      slow.LaunchDone(NodeId(kFirstStep + node), absl::OkStatus(), {});
      ASSERT_TRUE(go_on(10'000));
    }
    EXPECT_EQ(slow.num_nodes(), 0u) << "after " << turns << " turns";
    EXPECT_EQ(slow.num_shards(), 0u);
    if (idle) break;
  }
  EXPECT_GT(made, 0);
  EXPECT_GT(failed, 2);
}

TEST_F(SequencesTest, AnAbandonedSequenceBeginsNoFurtherStep) {
  devices = 2;
  Install(3, 1, {Call(1, {0}, {1}), Call(2, {1}, {2}, {1}), Output(0, 2, {2})});
  Arguments(1);
  Launch();
  EXPECT_THAT(shell.Take(), ElementsAre("x1 as s0 id 70 (10:0 10:1) -> s1"));
  core.OnCommand(AbandonLaunch{LaunchId(70), LaunchId(71), absl::DataLossError("another is lost")});
  core.OnCommand(DropExecutable{ExecutableId(9)});
  Done(0);
  EXPECT_THAT(shell.Take(), ElementsAre("drop s1:0 s1:1", "drop s4:0 s4:1"));
  EXPECT_EQ(Reported(), "through 1 failed 1[0]: DATA_LOSS: another is lost");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(SequencesTest, WhatDoesNotFitIsRefusedWhenItIsInstalled) {
  const std::vector<std::vector<Instruction>> bad = {{Call(1, {0}, {3})},
                                                     {Call(1, {-1}, {1})},
                                                     {Call(0, {0}, {1})},
                                                     {Output(1, 0)},
                                                     {Repeat(2, 1)},
                                                     {Repeat(-1, 1), Call(1, {0}, {1})},
                                                     {Branch(0, {}, {})},
                                                     {Branch(0, {1}, {1, 1}), Call(1, {0}, {1})},
                                                     {Set(0, 7)},
                                                     {Call(1, {0}, {1}, {9})},
                                                     {Call(1, {0}, {1}, {}, {1})},
                                                     {Repeat(2, -1), Call(1, {0}, {1})}};
  for (const auto& instructions : bad) {
    Install(3, 1, instructions);
    EXPECT_EQ(installed.code(), absl::StatusCode::kInvalidArgument);
  }
  Install(3, 1, {Repeat(2, 1), Call(1, {0}, {1})});
  EXPECT_TRUE(installed.ok());
}

}  // namespace
}  // namespace fairway
