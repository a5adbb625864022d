// SPDX-License-Identifier: Apache-2.0
// The turns of the executor's core: the work of one call is bounded, whatever event comes.
#include <algorithm>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "base/sanitized_for_test.h"
#include "worker/executor/executor_core_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kMany = kSanitized ? 10'000 : 100'000;
// A turn, and the longest work of these tests that cannot be interrupted.
constexpr uint64_t kMost = ExecutorCore::kTurnUnits + 20;

class ExecutorTurnsTest : public ExecutorCoreTest {
 protected:
  // Nodes 2 to kMany + 1 copy shard 0 of group 1, which node 1 receives.
  void CopyMany() {
    Receive(1, 1, 1, {Peer()});
    for (uint64_t n = 2; n < kMany + 2; ++n) Receive(n, n, n, {Local(1)});
    RunTurns();
    actions.Take();
  }
};

TEST_F(ExecutorTurnsTest, ManyThatWaitForOneShardAreToldInTurns) {
  CopyMany();
  Have(kMany + 5, kMany + 5);
  Send(7, 0, kMany + 5);
  core.ReceiveDone(NodeId(1), 0, absl::OkStatus());
  const size_t first = actions.Take().size();
  EXPECT_LT(first, ExecutorCore::kTurnUnits);
  core.OnPull(9, TransferId(7), 0);  // others are served in the meantime
  EXPECT_THAT(actions.Take(), ElementsAre(fmt::format("serve p9 {}:0", kMany + 5)));
  EXPECT_GT(RunTurns(), kMany / 1000);
  EXPECT_EQ(first + actions.Take().size(), kMany);
  EXPECT_LE(core.work().most(), kMost);
}

TEST_F(ExecutorTurnsTest, ManyThatWaitForAFailedShardFailInTurns) {
  CopyMany();
  core.ReceiveDone(NodeId(1), 0, absl::UnavailableError("gone"));
  EXPECT_GT(RunTurns(), kMany / 2000);
  // Each report tells of a bounded number of ends, which the controller handles in one go.
  uint64_t through = 0, failures = 0;
  for (const Report& report : TakeReports()) {
    EXPECT_LE(report.finished_through - through, ExecutorCore::kReportEnds);
    through = report.finished_through;
    failures += report.failures.size();
  }
  EXPECT_EQ(through, kMany + 1);
  EXPECT_EQ(failures, kMany + 1);
  EXPECT_LE(core.work().most(), kMost);
}

// Earlier, each cancel searched among all waiters.
TEST_F(ExecutorTurnsTest, ManyThatWaitForOneShardAreCancelledOneByOne) {
  CopyMany();
  const uint64_t before = core.work().units();
  for (uint64_t n = 2; n < kMany + 2; ++n) Cancel(n);
  RunTurns();
  EXPECT_LT(core.work().units() - before, 8 * kMany);
  core.ReceiveDone(NodeId(1), 0, absl::OkStatus());
  RunTurns();
  EXPECT_THAT(actions.Take(), Not(Contains("receive n2[0]")));
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(ExecutorTurnsTest, ManyCommandsAtOnceTakeTurnsAndKeepTheirOrder) {
  constexpr uint64_t kLater = kMany * 7 / 10;
  std::vector<uint64_t> groups;
  for (uint64_t n = 1; n <= kMany; ++n) {
    Prepare(n, n, {}, {n});
    Launch(n, n);
    groups.push_back(n);
  }
  EXPECT_LE(core.work().most(), kMost);
  EXPECT_LT(actions.lines.size(), ExecutorCore::kTurnUnits);
  // A launch of the controller counts as launched, even if it ends at once.
  EXPECT_EQ(core.num_launched(), kMany);
  EXPECT_EQ(core.highest_launch_id(), kMany);
  RunTurns();
  Lines lines = actions.Take();
  ASSERT_EQ(lines.size(), kMany);
  EXPECT_EQ(lines[kLater], fmt::format("launch n{0} id {0}", kLater + 1));
  Free(groups);
  RunTurns();
  lines = actions.Take();
  ASSERT_EQ(lines.size(), kMany);
  EXPECT_EQ(lines[kLater], fmt::format("drop {}:0", kLater + 1));
  EXPECT_LE(core.work().most(), kMost);
  for (uint64_t n = 1; n <= kMany; ++n) core.LaunchDone(NodeId(n), absl::OkStatus(), {});
  RunTurns();
  EXPECT_EQ(core.num_launched(), 0u);
}

TEST_F(ExecutorTurnsTest, AReceiveOfManyShardsBeginsInTurns) {
  std::vector<ShardSource> sources(4000, Peer());
  Receive(1, 1, 1, sources);
  EXPECT_LT(actions.lines.size(), ExecutorCore::kTurnUnits);
  RunTurns();
  EXPECT_EQ(actions.Take().size(), sources.size());
  EXPECT_LE(core.work().most(), 2 * ExecutorCore::kTurnUnits);
}

// A command finds the state after the consequences of earlier commands.
TEST_F(ExecutorTurnsTest, ACommandWaitsForWhatFollowsFromThoseBeforeIt) {
  CopyMany();
  for (uint64_t n = 2; n < kMany + 2; ++n) Send(n, 0, n);
  RunTurns();
  for (uint64_t n = 2; n < kMany + 2; ++n) core.OnPull(n, TransferId(n), 0);
  RunTurns();
  Cancel(1);  // each copy is woken, and so are those that pull it
  for (uint64_t n = 2; n < kMany + 2; ++n) core.OnCommand(EndSend{TransferId(n)});
  RunTurns();
  const Lines lines = actions.Take();
  EXPECT_THAT(lines, Contains(fmt::format("refuse p{}: UNKNOWN: poison", kMany / 2)));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("CANCELLED"))));
  EXPECT_EQ(core.num_pulls() + core.num_sends(), 0u);
}

// Millions of instructions that start nothing may follow a failed step.
TEST_F(ExecutorTurnsTest, SequencesTakeTurnsWithEachOtherAndWithCommands) {
  constexpr int64_t kRounds = kSanitized ? 10'000 : 50'000;
  Instruction repeat, run, set, output;
  repeat.op = Instruction::Op::kRepeat;
  repeat.count = kRounds;
  repeat.lengths = {2};
  run.executable = ExecutableId(1);
  run.inputs = {0};
  run.outputs = {1};
  run.types = {0};
  set.op = Instruction::Op::kSet;
  set.inputs = {1};
  set.outputs = {0};
  output.op = Instruction::Op::kOutput;
  output.inputs = {0};
  output.outputs = {0};
  auto sequence = std::make_shared<Sequence>();
  sequence->registers = 2;
  sequence->outputs = 1;
  sequence->types = {{DType::kF32, Shape{{4}}, ""}};
  sequence->instructions = {repeat, run, set, output};
  core.OnCommand(InstallSequence{ExecutableId(9), sequence});
  for (uint64_t n = 1; n <= 2; ++n) {
    Prepare(n, n, {n + 10}, {n + 20}, 9);
    fairway::Launch launch;
    launch.node = NodeId(n);
    launch.launch_id = LaunchId(n * kRounds);
    launch.failed = {{0, absl::UnknownError("boom")}};
    core.OnCommand(launch);
  }
  // If they ran one after another, they would end far apart.
  uint64_t ended_first = 0, turns = 0;
  for (; core.num_nodes() > 0; ++turns) {
    ASSERT_TRUE(std::exchange(actions.turn_wanted, false));
    core.Turn();
    if (core.num_nodes() <= 1 && ended_first == 0) ended_first = turns;
    if (turns != 20) continue;
    // Commands that come in the meantime get their turn.
    for (uint64_t n = 100; n < 200; ++n) Prepare(n, n, {}, {n});
    for (uint64_t n = 100; n < 200; ++n) Launch(n, 4 * kRounds + n);
    actions.Take();
    for (int i = 0; i < 8; ++i) core.Turn();
    EXPECT_THAT(actions.lines, Contains(fmt::format("launch n199 id {}", 4 * kRounds + 199)));
    for (uint64_t n = 100; n < 200; ++n) core.LaunchDone(NodeId(n), absl::OkStatus(), {});
    EXPECT_EQ(core.num_nodes(), 2u);
  }
  EXPECT_GT(turns, uint64_t{kRounds} / 250);
  EXPECT_GE(ended_first + 5, turns);
  EXPECT_LE(core.work().most(), kMost + 200);
}

// A launch waits for bytes, and others wait for what it makes: they may follow it once it starts.
class FollowersTest : public ExecutorTurnsTest {
 protected:
  // Node 1 makes these groups of a small upload, which node 3 receives.
  void LaunchAhead(std::vector<uint64_t> groups) {
    ShardSource upload;
    upload.kind = ShardSource::Kind::kInline;
    Receive(3, 1, kUpload, {upload});
    Prepare(1, 2, {kUpload}, std::move(groups));
    Launch(1, 1, true);
  }
  void BytesCome() { core.ReceiveDone(NodeId(3), 0, absl::OkStatus()); }
  static constexpr uint64_t kUpload = 10 * kMany;
};

// Earlier it was looked at once for each of these inputs, at all of them each time.
TEST_F(FollowersTest, ALaunchThatFollowsByManyInputsIsLookedAtOnce) {
  constexpr uint64_t kValues = 4000;
  std::vector<uint64_t> groups;
  for (uint64_t g = 1; g <= kValues; ++g) groups.push_back(g);
  LaunchAhead(groups);
  Prepare(2, 3, groups, {kValues + 1});
  Launch(2, 2, true);
  RunTurns();
  EXPECT_THAT(actions.Take(), ElementsAre("receive n3[0]"));
  const uint64_t before = core.work().units();
  BytesCome();
  RunTurns();
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 1", "launch n2 id 2"));
  EXPECT_GE(core.work().units() - before, kValues);
  EXPECT_LE(core.work().units() - before, 2 * kValues);
  EXPECT_LE(core.work().most(), kMost + kValues / 4);
}

TEST_F(FollowersTest, ManyCopiesOfWhatALaunchMakesAreLookedAtInTurnsWhenItStarts) {
  LaunchAhead({1});
  for (uint64_t n = 4; n < kMany + 4; ++n) Receive(n, n, n, {Local(1)});
  RunTurns();
  actions.Take();
  BytesCome();
  EXPECT_GE(RunTurns(), kMany / 4 / ExecutorCore::kTurnUnits);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 1"));
  EXPECT_LE(core.work().most(), kMost);
}

// Sequence 9 as node 1, whose argument, group 11, has failed.
class LongSequencesTest : public ExecutorTurnsTest {
 protected:
  static Instruction Of(Instruction::Op op, int64_t count, std::vector<int32_t> lengths) {
    Instruction in;
    in.op = op;
    in.count = count;
    in.lengths = std::move(lengths);
    return in;
  }
  // Returns the number of turns.
  uint64_t Run(std::vector<Instruction> instructions) {
    auto sequence = std::make_shared<Sequence>();
    sequence->registers = 2;
    sequence->types = {{DType::kF32, Shape{{4}}, ""}};
    sequence->instructions = std::move(instructions);
    core.OnCommand(InstallSequence{ExecutableId(9), sequence});
    Prepare(1, 1, {11}, {}, 9);
    fairway::Launch launch;
    launch.node = NodeId(1);
    launch.launch_id = LaunchId(1);
    launch.failed = {{0, absl::UnknownError("boom")}};
    core.OnCommand(launch);
    const auto turns = static_cast<uint64_t>(RunTurns());
    EXPECT_EQ(core.num_nodes(), 0u);
    EXPECT_LE(core.work().most(), kMost + 250);
    return turns;
  }
};

// A program may have 2^30 of them. Earlier they were one call.
TEST_F(LongSequencesTest, RoundsWithoutAStepAreTakenInTurns) {
  constexpr uint64_t kRounds = 4 * kMany;
  Instruction run;
  run.executable = ExecutableId(1);
  const uint64_t turns =
      Run({Of(Instruction::Op::kRepeat, kRounds, {2}), Of(Instruction::Op::kRepeat, 0, {1}), run});
  EXPECT_GE(turns, kRounds / ExecutorCore::kTurnUnits);
}

TEST_F(LongSequencesTest, TheBlocksOfABranchThatFailsCount) {
  constexpr uint64_t kRounds = kMany / 100, kBlock = 1000;
  std::vector<Instruction> instructions = {
      Of(Instruction::Op::kRepeat, kRounds, {static_cast<int32_t>(kBlock) + 1}),
      Of(Instruction::Op::kBranch, 0, {static_cast<int32_t>(kBlock)})};
  instructions[1].inputs = {0};
  for (uint64_t i = 0; i < kBlock; ++i) instructions.push_back(Of(Instruction::Op::kClear, 0, {}));
  EXPECT_GE(Run(std::move(instructions)), kRounds * kBlock / 4 / (ExecutorCore::kTurnUnits + 250));
}

// A call takes and makes at most 65,536 arrays.
class WideLaunchesTest : public ExecutorTurnsTest {
 protected:
  static constexpr uint64_t kValues = kSanitized ? 5'000 : 30'000;
  static std::vector<uint64_t> Groups(uint64_t first) {
    std::vector<uint64_t> groups(kValues);
    std::iota(groups.begin(), groups.end(), first);
    return groups;
  }
  // By several commands, of which none is long.
  void PrepareToMake(uint64_t node, const std::vector<uint64_t>& groups) {
    for (uint64_t from = 0; from < kValues; from += 1000) {
      const auto at = groups.begin() + static_cast<ptrdiff_t>(from);
      Prepare(node, node, {}, {at, at + 1000}, 1, from + 1000 < kValues);
    }
  }
  // A turn, and a part of a launch.
  void EveryTurnIsShort() const {
    EXPECT_LE(core.work().most(), kMost + ExecutorCore::kShardsAtOnce / 4);
  }
};

// Earlier each of these was one call.
TEST_F(WideLaunchesTest, BeginAndEndInTurns) {
  const std::vector<uint64_t> first = Groups(1), second = Groups(kValues + 1);
  PrepareToMake(1, first);
  Launch(1, 1);
  RunTurns();
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 1"));
  Done(1);
  for (uint64_t from = 0; from < kValues; from += 1000) {
    const auto at = static_cast<ptrdiff_t>(from);
    Prepare(2, 2, {first.begin() + at, first.begin() + at + 1000},
            {second.begin() + at, second.begin() + at + 1000}, 1, from + 1000 < kValues);
  }
  Launch(2, 2, /*ahead=*/true);
  Prepare(3, 3, {}, {9 * kMany});
  Launch(3, 3);
  EXPECT_GE(RunTurns(), static_cast<int>(kValues / 4000));
  // The wide one waited for the end of the first.
  EXPECT_THAT(actions.Take(), ElementsAre("launch n3 id 3", "launch n2 id 2"));
  core.LaunchDone(NodeId(2), absl::UnknownError("boom"), {});
  RunTurns();
  EXPECT_EQ(core.num_launched(), 1u);
  EXPECT_THAT(Reported(), HasSubstr("through 2 also [] failed 2: UNKNOWN: boom"));
  EveryTurnIsShort();
}

// The commands of others do not wait until all outputs have ended.
TEST_F(WideLaunchesTest, CommandsGoBetweenThePartsOfAnEnd) {
  const std::vector<uint64_t> first = Groups(1);
  PrepareToMake(1, first);
  Launch(1, 1);
  RunTurns();
  actions.Take();
  // It goes ahead of the end that it waits for.
  Prepare(2, 2, {first.back()}, {9 * kMany});
  Done(1);
  Launch(2, 2, /*ahead=*/true);
  Prepare(3, 3, {}, {9 * kMany + 1});
  Launch(3, 3);
  core.Turn();
  EXPECT_THAT(actions.Take(), ElementsAre("launch n3 id 3"));
  Done(3);
  EXPECT_EQ(Reported(), "through 0 also [3]");
  Prepare(1, 4, {}, {});
  core.Turn();
  EXPECT_THAT(Reported(),
              HasSubstr("4: INTERNAL: node 1: it is prepared again before it has ended"));
  RunTurns();
  EXPECT_THAT(actions.Take(), ElementsAre("launch n2 id 2"));
  Done(2);
  EXPECT_EQ(Reported(), "through 4 also []");
  EveryTurnIsShort();
}

TEST_F(WideLaunchesTest, AreCancelledInTurns) {
  Prepare(1, 1, {}, {});
  const std::vector<uint64_t> groups = Groups(1);
  PrepareToMake(2, groups);
  RunTurns();
  Cancel(2);
  Prepare(2, 3, {}, {1});  // its next attempt
  RunTurns();
  EXPECT_EQ(core.num_shards(), 1u);
  EXPECT_THAT(Reported(), HasSubstr("also [2]"));
  EveryTurnIsShort();
}

// The arguments and results of a sequence, and what its steps read and make.
TEST_F(WideLaunchesTest, SequencesAndTheirStepsAreMadeInTurns) {
  constexpr auto kCount = static_cast<int32_t>(kValues);
  std::vector<int32_t> arguments(kCount), made(kCount), ends(kCount);
  std::iota(arguments.begin(), arguments.end(), 0);
  std::iota(made.begin(), made.end(), kCount);
  std::iota(ends.begin(), ends.end(), 2 * kCount);
  const auto step = [](const std::vector<int32_t>& in, const std::vector<int32_t>& out) {
    Instruction run;
    run.executable = ExecutableId(1);
    run.inputs = run.clears = in;
    run.outputs = out;
    run.types.assign(out.size(), 0);
    return run;
  };
  auto sequence = std::make_shared<Sequence>();
  sequence->registers = 3 * kCount;
  sequence->outputs = 1;
  sequence->types = {{DType::kF32, Shape{{4}}, ""}};
  Instruction output;
  output.op = Instruction::Op::kOutput;
  output.inputs = {ends.back()};
  output.outputs = {0};
  sequence->instructions = {step(arguments, made), step(made, ends), output};
  core.OnCommand(InstallSequence{ExecutableId(9), sequence});
  const std::vector<uint64_t> groups = Groups(1);
  PrepareToMake(1, groups);
  Launch(1, 1);
  RunTurns();
  Done(1);
  for (uint64_t from = 0; from < kValues; from += 1000) {
    const auto at = groups.begin() + static_cast<ptrdiff_t>(from);
    const bool more = from + 1000 < kValues;
    Prepare(2, 2, {at, at + 1000},
            more ? std::vector<uint64_t>() : std::vector<uint64_t>{kValues + 1}, 9, more);
  }
  Launch(2, 2, /*ahead=*/true);
  RunTurns();
  // The second step waits for what the first makes.
  Lines lines = actions.Take();
  ASSERT_THAT(lines, ElementsAre("launch n1 id 1", HasSubstr("id 2"), HasSubstr("id 3")));
  const auto node = [&](size_t line) {
    return NodeId(std::stoull(lines[line].substr(std::string("launch n").size())));
  };
  core.LaunchDone(node(2), absl::OkStatus(), {});
  RunTurns();
  core.LaunchDone(node(1), absl::OkStatus(), {});
  EXPECT_GE(RunTurns(), static_cast<int>(kValues / 4000));
  lines = actions.Take();
  EXPECT_EQ(std::ranges::count_if(lines,
                                  [](const std::string& line) { return line.starts_with("drop"); }),
            static_cast<ptrdiff_t>(2 * kValues));
  EXPECT_EQ(core.num_nodes(), 0u);
  EXPECT_EQ(core.num_shards(), kValues + 1);
  EveryTurnIsShort();
}

// A report that did not fit into a frame used to end the link, and the island's data with it.
TEST_F(ExecutorTurnsTest, ALongReportIsSentInParts) {
  constexpr uint64_t kLaunches = 5'000;
  const absl::Status error = absl::UnknownError(std::string(kMaxErrorText, 'x'));
  for (uint64_t n = 1; n <= kLaunches; ++n) Prepare(n, n, {}, {n});
  for (uint64_t n = 1; n <= kLaunches; ++n) Launch(n, n);
  RunTurns();
  for (uint64_t n = 1; n <= kLaunches; ++n) core.LaunchDone(NodeId(n), error, {});
  RunTurns();
  uint64_t through = 0, failures = 0;
  const std::vector<Report> reports = TakeReports();
  for (const Report& report : reports) {
    size_t bytes = 0;
    for (const Report::Failure& failure : report.failures) {
      bytes += failure.status.message().size();
      // The failures of a node are in the report of its end.
      EXPECT_GT(failure.seq, through);
      EXPECT_LE(failure.seq, report.finished_through);
    }
    EXPECT_LE(bytes, ExecutorCore::kReportBytes + kMaxErrorText);
    failures += report.failures.size();
    through = report.finished_through;
  }
  EXPECT_EQ(through, kLaunches);
  EXPECT_EQ(failures, kLaunches);
  EXPECT_EQ(reports.size(), 3u);
}

// Ends that follow each other are one record, however long the node before them runs.
TEST_F(ExecutorTurnsTest, ANodeThatNeverEndsLeavesOneRecordOfThoseThatEndAfterIt) {
  for (uint64_t n = 1; n <= kMany; ++n) Prepare(n, n, {}, {n});
  for (uint64_t n = 1; n <= kMany; ++n) Launch(n, n);
  RunTurns();
  for (uint64_t n = 2; n <= kMany; n += 2) Done(n);  // each second one
  EXPECT_EQ(core.ended_records(), kMany / 2);
  for (uint64_t n = 3; n < kMany; n += 2) Done(n);
  RunTurns();
  EXPECT_EQ(core.ended_records(), 1u);
  for (const Report& report : TakeReports()) EXPECT_EQ(report.finished_through, 0u);
  Done(1);
  EXPECT_EQ(core.ended_records(), 0u);
  EXPECT_EQ(core.TakeReport().finished_through, kMany);
}

TEST_F(ExecutorTurnsTest, ResetForgetsWhatWaits) {
  for (uint64_t n = 1; n <= kMany; ++n) Prepare(n, n, {}, {n});
  Launch(1, 1);
  EXPECT_EQ(core.num_launched(), 1u);
  core.Reset();
  actions.Take();
  core.Turn();  // the core asked for it before
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_EQ(core.num_launched() + core.num_nodes() + core.num_shards(), 0u);
  actions.turn_wanted = false;
  Prepare(1, 1, {}, {1});
  Launch(1, 2);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n1 id 2"));
}

}  // namespace
}  // namespace fairway
