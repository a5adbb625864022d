// SPDX-License-Identifier: Apache-2.0
// The core accepts only what can be sent to an executor, and believes an executor only about what
// that executor holds.
#include "controller/cluster/command_bytes.h"

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/programs.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

size_t BytesOf(const Command& command) { return EncodeCommand(command).value().size(); }

// The largest numbers that can occur.
TEST(CommandBytesTest, NoCommandIsLarger) {
  constexpr size_t kArguments = 5'000, kResults = 4'000, kDevices = 64;
  const Shape shape{std::vector<int64_t>(kMaxRank, INT64_MAX)};
  auto sequence = std::make_shared<Sequence>();
  sequence->name = std::string(1000, 'n');
  sequence->registers = sequence->outputs = INT32_MAX;
  sequence->types.assign(2'000, {DType::kF32, shape, std::string(256, 'k')});
  Instruction in;
  in.op = Instruction::Op::kClear;
  in.executable = ExecutableId(UINT64_MAX);
  in.inputs = in.outputs = in.types = in.clears = in.donates = in.lengths = {INT32_MAX, INT32_MAX};
  in.count = INT64_MAX;
  sequence->instructions.assign(100'000, in);
  ExecutableSpec spec;
  spec.parameters.resize(kArguments);
  spec.outputs.resize(kResults);
  for (ValueType& type : spec.outputs) {
    type.shard = shape;
    type.memory_kind = std::string(256, 'k');
  }
  spec.sequence = sequence;
  const size_t most = CommandBytes(spec, kDevices);

  EXPECT_LE(BytesOf(InstallSequence{ExecutableId(UINT64_MAX), sequence}), most);
  PrepareLaunch prepare;
  prepare.node = NodeId(UINT64_MAX);
  prepare.devices.assign(kDevices, INT32_MAX);
  prepare.inputs.assign(kDevices, ShardRefs(kArguments, ShardRef{GroupId(UINT64_MAX), INT32_MAX}));
  const GroupPart part{GroupId(UINT64_MAX),
                       DType::kF32,
                       std::string(256, 'k'),
                       {kDevices, LocalShard{INT32_MAX, INT32_MAX, shape}}};
  prepare.outputs.assign(kResults, part);
  EXPECT_LE(BytesOf(prepare), most);
  Launch launch;
  launch.node = NodeId(UINT64_MAX);
  launch.inline_shards.assign(kResults * kDevices, ShardRef{GroupId(UINT64_MAX), INT32_MAX});
  const absl::Status error = absl::DataLossError(std::string(TextShare(kArguments), 'x'));
  for (size_t a = 0; a < kArguments; ++a) {
    launch.failed.push_back({INT32_MAX, error});
    launch.non_donatable.push_back(INT32_MAX);
  }
  EXPECT_LE(BytesOf(launch), most);
}

TEST(CommandBytesTest, TooManyResultsAreRefused) {
  ExecutableSpec spec;
  spec.name = "f";
  spec.outputs.resize(kMaxOutputs + 1);
  EXPECT_THAT(Describe(CheckCommands(spec, 1, kMaxCommandBytes)),
              HasSubstr("RESOURCE_EXHAUSTED: f has 1048577 results, an executor takes at most "
                        "1048576 of one launch: put them into fewer, larger arrays"));
}

class TooLargeTest : public ClusterTest {
 protected:
  static ClusterOptions Small() {
    ClusterOptions options = AtOnce();
    options.command_bytes = (16 << 20) + (100 << 10);
    return options;
  }
  TooLargeTest() : ClusterTest(Small()) {}
};

TEST_F(TooLargeTest, WhatAnExecutorCannotBeSentFailsAlone) {
  Start();
  PutReady(1, 0);
  const std::vector<ValueType> many(5'000, F32({4}));
  const uint64_t large = Define(1, {0}, {F32({4})}, many);
  const uint64_t small = Define(2, {0}, {F32({4})}, {F32({4})});
  const auto failed =
      cluster.executables().Execute(session, large, {1}, {.non_donatable = {}, .watch = 7}, {});
  ASSERT_TRUE(failed.ok()) << failed.status();
  RunTurns();
  EXPECT_THAT(actions.Take(),
              ::testing::ElementsAre(HasSubstr(
                  "s1 watched 7: RESOURCE_EXHAUSTED: f1 is too large to be sent to an executor: "
                  "with 1 arguments, 5000 results and 1 devices one message would have up to ")));
  ASSERT_TRUE(cluster.executables().Execute(session, small, {1}, {}, {2}).ok());
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- prepare")));
  Installed(a, 2);
  End(a, failed->node.value + 1);
}

TEST_F(ClusterTest, ManyFailedArgumentsShareTheRoomForTheirTexts) {
  constexpr int32_t kMany = 10'000;
  Start();
  PutReady(1, 0);
  Define(1, {0}, {F32({4})}, {F32({4})});
  const ArraySpec type{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  Program program;
  program.name = "p";
  program.slices = {{"a", 1}};
  Computation computation;
  computation.code = std::make_shared<const std::string>("code");
  computation.parameters = computation.results = {type};
  program.computations.push_back(computation);
  program.graphs.resize(1);
  Graph& graph = program.graphs[0];
  for (int32_t a = 0; a < kMany; ++a)
    graph.nodes.push_back({"", "", ArgumentNode{{0, type}, false}});
  for (int32_t a = 0; a < kMany; ++a) {
    graph.nodes.push_back({"", "", ComputeNode{0, 0, {{a, 0}}}});
    graph.results.push_back({kMany + a, 0});
  }
  ProgramBinding binding;
  binding.code[{0, 0}] = {ExecutableId(1), {{DType::kF32, Shape{{4}}, ""}}, {}, 64};
  binding.places = {0};
  const auto plan = Lower(program, *CheckProgram(program), binding);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto bound = cluster.programs().Bind(session, 0, {"p", *plan, {{0}}, false});
  ASSERT_TRUE(bound.ok()) << bound.status();
  const absl::Status error = absl::UnknownError(std::string(kMaxErrorText, 'x'));
  const auto broken = cluster.arrays().MakeError(session, 2, type, error);
  ASSERT_TRUE(broken.ok());
  std::vector<uint64_t> arguments(kMany, 2);
  arguments[0] = 1;
  std::vector<uint64_t> results;
  for (int32_t a = 0; a < kMany; ++a) results.push_back(100 + a);
  ASSERT_TRUE(cluster.programs().Run(session, *bound, arguments, {}, results).ok());
  RunTurns();
  Installed(a, 1);
  Installed(a, uint64_t{1} << 62);
  RunTurns();
  size_t bytes = 0;
  for (const std::string& line : actions.Take()) {
    if (line.starts_with("e1 <- launch")) bytes += line.size();
  }
  EXPECT_GT(bytes, size_t{1} << 20);
  EXPECT_LT(bytes, kTextBytes + size_t{kMany} * 150);
}

TEST_F(ClusterTest, AnExecutorIsBelievedOnlyAboutWhatItHolds) {
  Start();
  const uint64_t f = Define(1, {0}, {}, {F32({4})});
  ASSERT_TRUE(
      cluster.executables().Execute(session, f, {}, {.non_donatable = {}, .watch = 7}, {1}).ok());
  Installed(b, 1);  // that executor was never asked to
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("<- launch"))));
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- launch n1")));
  Report lies;
  lies.finished_through = UINT64_MAX;
  lies.finished = {1, 2, UINT64_MAX};
  lies.failures = {{1, absl::UnknownError("no"), -1, -1},
                   {1, absl::UnknownError("no"), 0, 5},
                   {2, absl::UnknownError("no"), INT32_MAX, INT32_MAX}};
  lies.inlined = {{{GroupId(1), 0}, Bytes(std::string(16, 'x'))},
                  {{GroupId(1), 99}, Bytes("x")},
                  {{GroupId(99), 0}, Bytes("x")}};
  lies.installed = {{ExecutableId(99), absl::UnknownError("no")}};
  cluster.fleet().OnReport(b, Incarnation(7), lies);
  cluster.fleet().OnReport(a, Incarnation(8), lies);  // a report of an earlier incarnation
  EXPECT_THAT(actions.Take(), IsEmpty());
  // A report about an output that its node does not have.
  Report odd;
  odd.finished = {1};
  odd.failures = {{1, absl::UnknownError("no"), 77, -1}};
  odd.inlined = {{{GroupId(1), 0}, Bytes(std::string(16, 'y'))}};
  cluster.fleet().OnReport(a, Incarnation(7), odd);
  EXPECT_THAT(actions.Take(), Contains("s1 watched 7: OK"));
  cluster.arrays().Fetch(session, 8, 1);
  EXPECT_THAT(actions.Take(), Contains("s1 fetched 8: yyyyyyyyyyyyyyyy"));
}

}  // namespace
}  // namespace fairway
