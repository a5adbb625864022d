// SPDX-License-Identifier: Apache-2.0
// How the executor's core runs sequences: golden dialogues. Groups and nodes of steps are numbered
// from 2^63; here they are printed as s0, s1, ...
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/executor/executor_core.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;
using Op = Instruction::Op;

constexpr uint64_t kFirstStep = uint64_t{1} << 63;

std::string Number(uint64_t id) {
  return id < kFirstStep ? fmt::format("{}", id) : fmt::format("s{}", id - kFirstStep);
}
std::string Name(const ShardRef& ref) {
  return fmt::format("{}:{}", Number(ref.group.value), ref.shard);
}

class Recorder : public ExecutorActions {
 public:
  void Load(const InstallExecutable&) override {}
  void Unload(ExecutableId id) override { Add("unload x{}", id); }
  void StartLaunch(const PrepareLaunch& node, const Launch& launch) override {
    Lines in, out;
    for (const auto& device : node.inputs) {
      for (const ShardRef& ref : device) in.push_back(Name(ref));
    }
    for (const GroupPart& part : node.outputs) out.push_back(Number(part.group.value));
    Add("x{} as {} id {} ({}) -> {}{}{}", node.executable, Number(node.node.value),
        launch.launch_id, fmt::join(in, " "), fmt::join(out, " "), launch.ahead ? " ahead" : "",
        launch.non_donatable.empty() ? "" : fmt::format(" keep {}", launch.non_donatable));
  }
  void StartReceive(const PrepareReceive&, size_t) override {}
  void Share(ShardRef from, ShardRef to) override { Add("share {} as {}", Name(from), Name(to)); }
  void Read(NodeId node, const std::vector<ShardRef>& shards) override {
    Lines names;
    for (const ShardRef& ref : shards) names.push_back(Name(ref));
    Add("read for n{}: {}", node, fmt::join(names, " "));
  }
  void WantTurn() override { Add("want turn"); }
  void LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) override {
    Add("left out {} to {}: {}", first, last, Describe(cause));
  }
  void Serve(uint64_t pull, const PrepareSend::Item& item) override {
    Add("serve p{} {}", pull, Name(item.shard));
  }
  void RefusePull(uint64_t, absl::Status) override {}
  void Drop(const std::vector<ShardRef>& shards) override {
    Lines names;
    for (const ShardRef& ref : shards) names.push_back(Name(ref));
    Add("drop {}", fmt::join(names, " "));
  }
  void ReportWanted() override {}
  Lines Take() { return std::exchange(lines_, {}); }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  Lines lines_;
};

Instruction Call(uint64_t executable, std::vector<int32_t> in, std::vector<int32_t> out,
                 std::vector<int32_t> clears = {}, std::vector<int32_t> donates = {}) {
  Instruction run;
  run.executable = ExecutableId(executable);
  run.inputs = std::move(in);
  run.outputs = std::move(out);
  run.types.assign(run.outputs.size(), 0);
  run.clears = std::move(clears);
  run.donates = std::move(donates);
  return run;
}
Instruction Output(int32_t number, int32_t reg, std::vector<int32_t> clears = {}) {
  Instruction output;
  output.op = Op::kOutput;
  output.inputs = {reg};
  output.outputs = {number};
  output.clears = std::move(clears);
  return output;
}
Instruction Set(int32_t to, int32_t from, std::vector<int32_t> clears = {}) {
  Instruction set;
  set.op = Op::kSet;
  set.inputs = {from};
  set.outputs = {to};
  set.clears = std::move(clears);
  return set;
}
Instruction Repeat(int64_t count, int32_t length) {
  Instruction repeat;
  repeat.op = Op::kRepeat;
  repeat.count = count;
  repeat.lengths = {length};
  return repeat;
}
Instruction Branch(int32_t reg, std::vector<int32_t> outputs, std::vector<int32_t> lengths) {
  Instruction branch;
  branch.op = Op::kBranch;
  branch.inputs = {reg};
  branch.types.assign(outputs.size(), 0);
  branch.outputs = std::move(outputs);
  branch.lengths = std::move(lengths);
  return branch;
}

// Sequence x9 over `devices` devices, as node 5 with seq 1; argument a is group 10 + a, output o is
// group 20 + o.
class SequencesTest : public ::testing::Test {
 protected:
  void Install(int32_t registers, int32_t outputs, std::vector<Instruction> instructions) {
    auto sequence = std::make_shared<Sequence>();
    sequence->name = "test";
    sequence->registers = registers;
    sequence->outputs = outputs;
    sequence->types = {{DType::kF32, Shape{{4}}, ""}};
    sequence->instructions = std::move(instructions);
    core.OnCommand(InstallSequence{ExecutableId(9), sequence});
    installed = core.TakeReport().installed.at(0).status;
    num_outputs = outputs;
  }
  void Arguments(int count) {
    for (int a = 0; a < count; ++a) {
      PrepareReceive command;
      command.node = NodeId(100 + a);
      command.seq = 0;
      command.out = {GroupId(10 + a), DType::kF32, "", {}};
      for (int d = 0; d < devices; ++d) {
        command.out.shards.push_back({d, d, Shape{{4}}});
        command.sources.push_back({ShardSource::Kind::kInline, {}, "", {}, 0, nullptr});
      }
      core.OnCommand(command);
      for (int d = 0; d < devices; ++d) core.ReceiveDone(command.node, d, absl::OkStatus());
    }
    core.TakeReport();
    num_arguments = count;
  }
  void Launch(std::vector<ShardRef> inlined = {}, std::vector<int32_t> keep = {}) {
    fairway::Launch launch;
    launch.inline_shards = std::move(inlined);
    launch.non_donatable = std::move(keep);
    Launch(std::move(launch));
  }
  void Launch(fairway::Launch launch) {
    PrepareLaunch prepare;
    prepare.node = NodeId(5);
    prepare.seq = 1;
    prepare.executable = ExecutableId(9);
    for (int d = 0; d < devices; ++d) {
      prepare.devices.push_back(d);
      auto& row = prepare.inputs.emplace_back();
      for (int a = 0; a < num_arguments; ++a) row.push_back({GroupId(10 + a), d});
    }
    for (int o = 0; o < num_outputs; ++o) {
      prepare.outputs.push_back({GroupId(20 + o), DType::kF32, "", {}});
      for (int d = 0; d < devices; ++d) prepare.outputs.back().shards.push_back({d, d, Shape{{4}}});
    }
    core.OnCommand(prepare);
    launch.node = NodeId(5);
    launch.launch_id = LaunchId(70);
    launch.gang = devices > 1;
    core.OnCommand(std::move(launch));
  }
  void Done(uint64_t step, absl::Status status = absl::OkStatus()) {
    core.LaunchDone(NodeId(kFirstStep + step), status, {});
  }
  std::string Reported() {
    const Report report = core.TakeReport();
    std::string text = fmt::format("through {}", report.finished_through);
    for (const auto& f : report.failures)
      text += fmt::format(" failed {}[{}]{}: {}", f.seq, f.output,
                          f.argument < 0 ? "" : fmt::format(" by argument {}", f.argument),
                          Describe(f.status));
    for (const auto& i : report.inlined) text += fmt::format(" inline {}", Name(i.shard));
    return text;
  }
  Report::Inlined Bytes(ShardRef ref, int32_t value) {
    auto bytes = Blob::Make(sizeof value);
    std::memcpy(bytes->data(), &value, sizeof value);
    return {ref, std::move(bytes)};
  }

  int devices = 1;
  int num_arguments = 0;
  int num_outputs = 0;
  absl::Status installed;
  Recorder shell;
  ExecutorCore core{&shell};
};

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
  Done(2);  // before the end of what makes its inputs is heard of
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

// The loop belongs to others too.
TEST_F(SequencesTest, ManyRoundsBehindAFailureTakeTurns) {
  devices = 2;  // a gang waits for what it takes
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

// With all of each text they would not fit into one message.
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
  EXPECT_EQ(shell.Take().size(), ExecutorCore::kStepsAtWork);
  Done(0);
  EXPECT_EQ(shell.Take().size(), 1u);
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

// A sequence that other executors run too: they may wait for what is left out here.
class SharedSequencesTest : public SequencesTest {
 protected:
  SharedSequencesTest() {
    InstallExecutable shared;
    shared.executable = ExecutableId(3);
    shared.members = {{"here", Incarnation(1)}, {"there", Incarnation(2)}};
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
  // Without what is dropped.
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

TEST_F(SequencesTest, AFailedArgumentFailsWhatNeedsItAndNothingElse) {
  for (const int n : {1, 2}) {
    SCOPED_TRACE(n);
    devices = n;
    // Outputs: 0 of arguments 0 and 1, 1 of argument 1, 2 of argument 2.
    Install(6, 3,
            {Call(1, {0, 1}, {3}, {0}), Call(2, {1}, {4}, {1}), Call(3, {2}, {5}, {2}),
             Output(0, 3, {3}), Output(1, 4, {4}), Output(2, 5, {5})});
    Arguments(3);
    core.OnCommand(FreeGroups{{GroupId(10)}});  // nothing of it needs to be here
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
