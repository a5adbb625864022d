// SPDX-License-Identifier: Apache-2.0
// Room for an older node, among many that could give it: no turn looks at all of them.
#include <algorithm>
#include <utility>

#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::StartsWith;

// More than the three turns look at in which a neighbour is served.
constexpr uint64_t kPreparedNodes = kSanitized ? 16000 : 24000;
// Nodes that are looked at for one unit.
constexpr uint64_t kNodesPerUnit = 4;

// An island of two devices. Many launches are prepared on the first one, and wait for bytes that do
// not come.
class VictimsTest : public TurnsTest {
 protected:
  static constexpr int64_t kMemory = 64 * (static_cast<int64_t>(kPreparedNodes) + 2);
  static ArraySpec Floats(int64_t bytes, int32_t device) {
    return {DType::kF32, Shape{{bytes / 4}}, Sharding::SingleDevice(device)};
  }
  void SetUp() override {
    TurnsTest::SetUp();
    island_ = cluster.fleet().ExecutorUp(Worker("wv", "iv", 2, kMemory)).value();
    session = actions.Open(cluster);
    late_ = cluster.arrays().Put(session, 1, Floats(kMemory / 2, 5), {0})->upload;
    ASSERT_TRUE(cluster.arrays().Put(session, 2, Floats(64, 0), {0}).ok());
  }
  // Prepares `count` launches on the device that make an array each.
  void Prepare(uint64_t count, int32_t device) {
    const uint64_t id = next_code_++;
    const ArraySpec pending = Floats(64, device);
    const uint64_t input = next_array_++;
    ASSERT_TRUE(cluster.arrays().Put(session, input, pending, {0}).ok());
    const uint64_t code = Define(id, {device}, {F32({16})}, {F32({16})});
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(cluster.executables().Execute(session, code, {input}, {}, {next_array_++}).ok());
      Turns();
    }
    Installed(island_, id);
    Turns();
    actions.Take();
  }
  void Fill(int64_t bytes, int32_t device) {
    const auto put = cluster.arrays().Put(session, next_array_++, Floats(bytes, device), {0});
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(bytes)));
    Turns();
    End(island_, put->upload.value);
    actions.Take();
  }
  // Gives the older put its bytes: it waits for memory from now on.
  void Provide() {
    Bounded([&] {
      cluster.arrays().ProvideUpload(late_, 0, BytesRef(Blob::Make(kMemory / 2)));
      return true;
    });
  }
  void Tick(int64_t now_ms) {
    Bounded([&] {
      cluster.Tick(now_ms);
      return true;
    });
    Turns();
  }
  void Turns() {
    while (Turn()) {
    }
  }

  ExecutorId island_;
  NodeId late_;
  uint64_t next_code_ = 100, next_array_ = 1000;
};

// Arrays have the memory that it lacks, so none of the prepared launches helps. All are looked at,
// when it begins to wait and in ticks.
TEST_F(VictimsTest, WhoCouldMakeRoomIsFoundOutInSeveralTurns) {
  Fill(kMemory / 2 + 64, 5);
  Prepare(kPreparedNodes, 4);
  const uint64_t before = cluster.units();
  Provide();
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  Turns();
  EXPECT_GE(cluster.units() - before, kPreparedNodes / kNodesPerUnit);
  cluster.arrays().Watch(session, 9, {1});
  int64_t now = 0;
  for (; now <= 1900; now += 100) Tick(now);
  EXPECT_THAT(actions.Take(), ::testing::IsEmpty());
  for (; now <= 3000; now += 100) Tick(now);
  EXPECT_THAT(actions.Take(), Contains(::testing::HasSubstr("watched 9: RESOURCE_EXHAUSTED")));
}

// Those that help were prepared first, so they are found last. Nothing is launched meanwhile.
TEST_F(VictimsTest, RoomIsMadeByTheLastOnesThatAreLookedAt) {
  Fill(kMemory / 2 - 64 * 10, 5);
  Prepare(20, 5);
  Prepare(kPreparedNodes, 4);
  Provide();
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  EXPECT_TRUE(actions.turn_wanted);
  Turns();
  const auto lines = actions.Take();
  EXPECT_THAT(lines, Contains(StartsWith(fmt::format("e{} <- receive n{} ", island_, late_))));
  const auto cancelled = std::ranges::count_if(
      lines, [](const std::string& line) { return line.find("cancel n") != std::string::npos; });
  EXPECT_EQ(cancelled, 10);
}

// Copies of what the victim makes are prepared elsewhere. They are taken back before it, and are
// queued again after it.
TEST_F(VictimsTest, WhatReadsAVictimIsTakenBackInSeveralTurns) {
  Fill(kMemory / 2, 5);
  Prepare(1, 5);
  const uint64_t result = next_array_ - 1;
  for (uint64_t i = 0; i < kPreparedNodes / 4; ++i) {
    cluster.arrays().Copy(session, {result}, {{2}}, std::nullopt, CopySemantics::kAlwaysCopy,
                          {next_array_++}, [](const auto&) {});
    Turns();
  }
  actions.Take();
  Provide();
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  EXPECT_TRUE(actions.turn_wanted);
  ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  Turns();
  const auto lines = actions.Take();
  const auto first = [&](const std::string& text) {
    return std::ranges::find_if(lines, [&](const auto& line) { return line.starts_with(text); });
  };
  const auto victim = first(fmt::format("e{} <- cancel n", island_));
  const auto again = first(fmt::format("e{} <- receive n", b));
  EXPECT_LT(victim - lines.begin(), again - lines.begin());
  EXPECT_NE(again, lines.end());
  EXPECT_NE(first(fmt::format("e{} <- receive n{} ", island_, late_)), lines.end());
}

// Much runs that was there before it, on other devices, and does not help. How much of it a tick
// looks at is bounded and counts; what else is under way is found out in turns.
TEST_F(VictimsTest, OfWhatRunsATickLooksAtSome) {
  constexpr int32_t kDevices = 70;
  const ExecutorId executor =
      cluster.fleet().ExecutorUp(Worker("wr", "ir", kDevices, 4096)).value();
  session = other_ = actions.Open(cluster);
  uint64_t running = 0;
  for (int32_t d = 1; d < kDevices; ++d) {
    const uint64_t code = Define(1000 + static_cast<uint64_t>(d), {6 + d}, {}, {F32({16})});
    for (int i = 0; i < ClusterOptions().max_singles_per_device; ++i, ++running)
      ASSERT_TRUE(cluster.executables().Execute(session, code, {}, {}, {next_array_++}).ok());
    Turns();
    Installed(executor, 1000 + static_cast<uint64_t>(d));
    Turns();
  }
  EXPECT_GT(running, 2000u);
  session = actions.Open(cluster);
  island_ = executor;
  Fill(4096, 6);
  const uint64_t large = Define(2000, {6}, {}, {F32({256})});
  for (uint64_t handle = 1; handle <= 2; ++handle) {
    ASSERT_TRUE(cluster.executables().Execute(session, large, {}, {}, {handle}).ok());
    cluster.arrays().Watch(session, handle, {handle});
  }
  Turns();
  actions.Take();
  for (int64_t now = 0; now < 2000; now += 100) Tick(now);
  const uint64_t before = cluster.units();
  Tick(2000);
  EXPECT_GE(cluster.units() - before, 250u);
  Tick(2100);
  const auto lines = actions.Take();
  for (const uint64_t token : {1, 2})
    EXPECT_THAT(
        lines,
        Contains(::testing::HasSubstr(fmt::format("watched {}: RESOURCE_EXHAUSTED", token))));
}

// A client gives an array up after some turns of the search for what is under way.
class GivenUpTest : public ShortTurnsTest, public ::testing::WithParamInterface<int> {};

// A copy to another island reads the array, and will free its memory when it ends.
TEST_P(GivenUpTest, AnArrayThatIsGivenUpWhileNodesAreLookedAtIsCountedOn) {
  Start(1024);
  const auto put =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{200}}, Sharding::SingleDevice(0)}, {0});
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(800)));
  RunTurns();
  End(a, put->upload.value);
  RunTurns();
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, {{2}}, std::nullopt, CopySemantics::kAlwaysCopy, {2})
                  .ok());
  RunTurns();
  const SessionId other = actions.Open(cluster);
  const auto waits =
      cluster.arrays().Put(other, 3, {DType::kF32, Shape{{200}}, Sharding::SingleDevice(0)}, {0});
  cluster.arrays().ProvideUpload(waits->upload, 0, BytesRef(Blob::Make(800)));
  cluster.arrays().Watch(other, 9, {3});
  for (const int64_t now : {0, 2000}) {
    RunTurns();
    actions.Take();
    cluster.Tick(now);
  }
  for (int turns = 0; turns < GetParam(); ++turns) {
    if (std::exchange(actions.turn_wanted, false)) cluster.Turn();
  }
  ASSERT_TRUE(cluster.arrays().Destruct(session, {1}).ok());
  for (const int64_t now : {2100, 2200, 2300}) {
    RunTurns();
    cluster.Tick(now);
  }
  RunTurns();
  EXPECT_THAT(actions.Take(), ::testing::IsEmpty());
  End(b, put->upload.value + 1);
  RunTurns();
  EXPECT_THAT(actions.Take(),
              Contains(StartsWith(fmt::format("e1 <- receive n{} ", waits->upload))));
}
INSTANTIATE_TEST_SUITE_P(Turns, GivenUpTest, ::testing::Range(0, 12));

}  // namespace
}  // namespace fairway
