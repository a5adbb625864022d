// SPDX-License-Identifier: Apache-2.0
// Commands that executors do not take: their session waits, and then gets an error.
#include <string>
#include <utility>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// 128 KiB of commands; each upload's has 16 KiB.
class CommandsTest : public ClusterTest {
 protected:
  static constexpr int64_t kUpload = 16 << 10;
  static ClusterOptions Small() {
    ClusterOptions options = AtOnce();
    options.command_memory = 128 << 10;
    options.least_commands = 1 << 10;
    options.command_grace_ms = 5000;
    return options;
  }
  explicit CommandsTest(ClusterOptions options = Small()) : ClusterTest(std::move(options)) {}
  void SetUp() override {
    Start();
    actions.weigh = [](const Command& command) -> int64_t {
      return std::holds_alternative<PrepareReceive>(command) ? kUpload : 100;
    };
  }
  void Put(SessionId of, uint64_t handle, int32_t device) {
    const auto put = cluster.arrays().Put(
        of, handle, {DType::kF32, Shape{{kUpload / 4}}, Sharding::SingleDevice(device)}, {0});
    ASSERT_TRUE(put.ok()) << put.status();
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(kUpload)));
    RunTurns();
  }
  // The uploads that were sent to the executor since.
  size_t Sent(ExecutorId executor) {
    return std::ranges::count_if(actions.Take(), [&](const std::string& line) {
      return line.starts_with(fmt::format("e{} <- receive", executor));
    });
  }
  void Tick(int64_t now_ms) {
    cluster.Tick(now_ms);
    RunTurns();
    EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }
  bool Waits(SessionId of) const { return cluster.sessions().BacklogOf(of).commands_wait; }
};

TEST_F(CommandsTest, ASessionHasNoMoreOnTheWayThanItLeavesToOthers) {
  for (uint64_t handle = 1; handle <= 20; ++handle) Put(session, handle, 0);
  const size_t sent = Sent(a);
  EXPECT_GE(sent, 3u);
  EXPECT_LE(sent, 4u);  // half of 128 KiB
  const int64_t counted = cluster.inspection().counts().command_bytes;
  EXPECT_LE(counted, 64 << 10);

  // Another one finds some, on another executor and on the same.
  const SessionId other = actions.Open(cluster);
  Put(other, 1, 2);
  EXPECT_EQ(Sent(b), 1u);
  Put(other, 2, 0);
  EXPECT_EQ(Sent(a), 1u);

  // When the executor has taken them, the next ones follow, in order.
  actions.charges.clear();
  Tick(100);
  EXPECT_EQ(Sent(a), sent);
  EXPECT_EQ(cluster.inspection().counts().command_bytes, counted);
}

TEST_F(CommandsTest, WhileItHasMoreNoMoreOfItsRequestsAreRead) {
  Put(session, 1, 0);
  EXPECT_FALSE(Waits(session));
  actions.weigh = [](const Command&) -> int64_t { return 100 << 10; };
  Put(session, 2, 0);
  EXPECT_TRUE(Waits(session));
  actions.charges.clear();
  EXPECT_FALSE(Waits(session));
}

TEST_F(CommandsTest, ANodeThatWaitsTooLongFails) {
  for (uint64_t handle = 1; handle <= 20; ++handle) Put(session, handle, 0);
  const size_t sent = Sent(a);
  cluster.arrays().Watch(session, 7, {20});
  Tick(1000);
  Tick(5900);
  EXPECT_THAT(actions.Take(), IsEmpty());
  Tick(6000);
  for (int64_t now = 11000; now < 200000; now += 5000) Tick(now);
  EXPECT_THAT(
      actions.Take(),
      Contains(
          AllOf(StartsWith("s1 watched 7: RESOURCE_EXHAUSTED: put of f32[4096]: its commands take"),
                HasSubstr("It has waited for 5 s. An executor may be stopped"))));
  // What was sent goes on.
  EXPECT_EQ(sent, Sent(a) + sent);
}

// One on each of many devices, whose executor takes nothing.
TEST_F(CommandsTest, ManyNodesThatWaitTooLongFailInSeveralTicks) {
  constexpr int32_t kDevices = 1000;
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wm", "im", kDevices)).ok());
  session = actions.Open(cluster);
  for (int32_t i = 0; i < kDevices; ++i) Put(session, 1 + static_cast<uint64_t>(i), 4 + i);
  const uint64_t waiting = cluster.inspection().counts().nodes;
  EXPECT_GT(waiting, 900u);
  cluster.Tick(0);
  RunTurns();
  for (int64_t now = 5000; now < 7500; now += 100) {
    const uint64_t before = cluster.units();
    cluster.Tick(now);
    EXPECT_LE(cluster.units() - before, 2500u);
    RunTurns();
  }
  EXPECT_LT(cluster.inspection().counts().nodes, 10u);
}

// A tick looks at one node.
class ShortTicksOfCommandsTest : public CommandsTest {
 protected:
  static ClusterOptions Short() {
    ClusterOptions options = Small();
    options.turn_units = 1;
    return options;
  }
  ShortTicksOfCommandsTest() : CommandsTest(Short()) {}
};

TEST_F(ShortTicksOfCommandsTest, AllNodesThatWaitTooLongFail) {
  constexpr int32_t kDevices = 12;
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wm", "im", kDevices)).ok());
  session = actions.Open(cluster);
  for (int32_t i = 0; i < kDevices; ++i) Put(session, 1 + static_cast<uint64_t>(i), 4 + i);
  const uint64_t waiting = cluster.inspection().counts().nodes;
  EXPECT_GE(waiting, 8u);
  int64_t now = 0;
  for (; now < 5000; now += 100) Tick(now);
  EXPECT_EQ(cluster.inspection().counts().nodes, waiting);
  for (; now < 15000; now += 100) Tick(now);
  EXPECT_LE(cluster.inspection().counts().nodes, 4u);  // their commands were sent
}

TEST_F(CommandsTest, WhatEndsWorkNeverWaits) {
  for (uint64_t handle = 1; handle <= 20; ++handle) Put(session, handle, 0);
  actions.Take();
  cluster.sessions().Close(session);
  RunTurns();
  EXPECT_THAT(actions.Take(), Contains(StartsWith("e1 <- cancel n")));
  // What is on its way counts although its session has ended; a later one gets half of what is
  // left.
  const int64_t left = (128 << 10) - cluster.inspection().counts().command_bytes;
  session = actions.Open(cluster);
  for (uint64_t handle = 1; handle <= 20; ++handle) Put(session, handle, 0);
  const size_t sent = Sent(a);
  EXPECT_GE(sent, 1u);
  EXPECT_LE(static_cast<int64_t>(sent) * kUpload, left / 2);
  actions.charges.clear();
  EXPECT_EQ(cluster.inspection().counts().command_bytes, 0);
}

TEST_F(CommandsTest, OneLargeCommandMayExceedTheMemory) {
  actions.weigh = [](const Command&) -> int64_t { return 1 << 20; };
  ExecutableSpec spec;
  spec.id = ExecutableId(9);
  spec.name = "large";
  spec.island = cluster.sessions().IslandOf(session, {0}).value();
  spec.devices = {cluster.sessions().Devices(session)[0].device};
  spec.outputs = {F32({4})};
  spec.code = std::make_shared<const std::string>(1 << 20, 'x');
  cluster.executables().Define(std::move(spec));
  const uint64_t f = cluster.executables().Bind(session, 0, ExecutableId(9), {0}).value();
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {1}).ok());
  EXPECT_THAT(actions.Take(), Contains("e1 <- install x9"));
  EXPECT_TRUE(Waits(session));
}

class TightTest : public CommandsTest {
 protected:
  void SetUp() override { Start(384); }
};

// The commands that take the younger node back leave no room for those of the older one.
TEST_F(TightTest, RoomInMemoryIsForTheNodeThatItWasMadeForAlsoWhenCommandsHaveNone) {
  PutReady(1, 0);  // 64 bytes
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})}, /*temp=*/128);
  const ArraySpec small{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  const ArraySpec large{DType::kF32, Shape{{32}}, Sharding::SingleDevice(0)};
  const NodeId late = cluster.arrays().Put(session, 2, large, {0})->upload;
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());
  Installed(a, 1);
  const SessionId other = actions.Open(cluster);
  const NodeId younger = cluster.arrays().Put(other, 1, small, {0})->upload;
  cluster.arrays().ProvideUpload(younger, 0, BytesRef(Blob::Make(16)));
  actions.Take();
  actions.weigh = [](const Command& command) -> int64_t {
    return std::holds_alternative<CancelNode>(command) ? (128 << 10) - 512 : 1;
  };
  cluster.arrays().ProvideUpload(late, 0, BytesRef(Blob::Make(128)));
  RunTurns();
  const Lines lines = actions.Take();
  EXPECT_THAT(lines, Contains(HasSubstr(fmt::format("cancel n{}", younger))));
  EXPECT_THAT(lines, Contains(HasSubstr(fmt::format("receive n{}", late))));
}

}  // namespace
}  // namespace fairway
