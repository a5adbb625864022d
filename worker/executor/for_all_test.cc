// SPDX-License-Identifier: Apache-2.0
// The executor's core: launches that all executors of a gang get as one command.
#include "worker/executor/executor_core_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of code 5, this executor has positions 4 and 6 of its list; shards 4 and 6 of the second result
// are the same.
LaunchAll InstalledForAll(ExecutorCore& core, uint64_t node, uint64_t entry) {
  InstallExecutable install;
  install.executable = ExecutableId(5);
  install.devices = {1, 0};
  install.positions = {4, 6};
  install.outputs = {Part(0, {4, 6}), Part(0, {4, 6})};
  install.distinct = {true, true, true, false};
  core.OnCommand(install);
  core.InstallDone(ExecutableId(5), absl::OkStatus());
  LaunchAll all;
  all.node = NodeId(node);
  all.launch_id = LaunchId(70 + node);
  all.executable = ExecutableId(5);
  all.outputs = {GroupId(20), GroupId(21)};
  all.inline_outputs = {0, 1};
  all.entry = entry;
  return all;
}

TEST_F(ExecutorCoreTest, ALaunchForAllIsDerivedFromTheCodeAndEndsItsEntry) {
  LaunchAll all = InstalledForAll(core, 3, 900);
  EXPECT_EQ(Reported(), "through 0 also [] x5: OK");
  PrepareReceive receive;  // group 10, shards 4 and 6
  receive.node = NodeId(1);
  receive.seq = 1;
  receive.out = Part(10, {4, 6});
  receive.sources.resize(2);
  receive.sources[0].kind = receive.sources[1].kind = ShardSource::Kind::kInline;
  core.OnCommand(receive);
  for (size_t i = 0; i < 2; ++i) core.ReceiveDone(NodeId(1), i, absl::OkStatus());
  EXPECT_EQ(Reported(), "through 1 also []");
  actions.Take();
  all.inputs = {GroupId(10)};
  core.OnCommand(all);
  EXPECT_THAT(actions.Take(), ElementsAre("launch n3 id 73"));
  EXPECT_EQ(core.num_launched(), 1u);
  EXPECT_EQ(core.highest_launch_id(), 73u);
  EXPECT_EQ(actions.started.devices, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(actions.started.inputs[1][0], (ShardRef{GroupId(10), 6}));
  EXPECT_EQ(actions.started.outputs[1].group, GroupId(21));
  EXPECT_EQ(actions.started.outputs[1].shards[0].shard, 4);
  EXPECT_EQ(actions.launched.inline_shards,
            (std::vector<ShardRef>{{GroupId(20), 4}, {GroupId(20), 6}, {GroupId(21), 4}}));
  core.LaunchDone(NodeId(3), absl::OkStatus(), {});
  EXPECT_EQ(Reported(), "through 1 also [] entries [900] no news");
  EXPECT_EQ(core.num_nodes(), 0u);
}

TEST_F(ExecutorCoreTest, AFailureOfALaunchForAllIsHeardBeforeItsEntryEnds) {
  core.OnCommand(InstalledForAll(core, 3, 900));
  core.LaunchDone(NodeId(3), absl::UnknownError("broken"), {});
  EXPECT_EQ(Reported(), "through 0 also [] failed n3: UNKNOWN: broken x5: OK");
  core.OnCommand(FailureHeard{NodeId(4)});
  EXPECT_EQ(Reported(), "through 0 also []");
  core.OnCommand(FailureHeard{NodeId(3)});
  EXPECT_EQ(Reported(), "through 0 also [] entries [900] no news");
  core.OnCommand(FailureHeard{NodeId(3)});
  EXPECT_EQ(Reported(), "through 0 also []");
}

TEST_F(ExecutorCoreTest, ALaunchForAllOfCodeThatIsNotHereIsAContradiction) {
  LaunchAll all = InstalledForAll(core, 3, 900);
  core.OnCommand(all);
  core.OnCommand(DropExecutable{ExecutableId(5)});
  all.node = NodeId(4);
  all.entry = 901;
  core.OnCommand(all);
  EXPECT_THAT(Reported(), HasSubstr("failed n4: INTERNAL: node 4: it is known already, or its "
                                    "code was installed otherwise"));
}

}  // namespace
}  // namespace fairway
