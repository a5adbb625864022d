// SPDX-License-Identifier: Apache-2.0
// How programs come and go: a slice at a time, and counted against their session's share.
#include "base/sanitized_for_test.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/placed_program.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kRounds = kSanitized ? 1200 : 3000;

class BindTest : public TurnsTest {
 protected:
  void SetUp() override {
    TurnsTest::SetUp();
    PutReady(1, 0);
    AllTurns();
    room_ = cluster.sessions().RecordRoom();
    defined_ = cluster.inspection().counts().executables;
  }
  std::shared_ptr<PlacedProgram> Placed(ProgramSource source) {
    auto placed = PlaceProgram(std::move(source), cluster.sessions().SharedDevices(session));
    EXPECT_TRUE(placed.ok()) << placed.status();
    placed_ = *placed;
    return *std::move(placed);
  }
  // Begins to bind a program of `rounds` steps as handle `out`.
  void Begin(int rounds, uint64_t out) {
    Bounded([&] {
      cluster.programs().Bind(session, 1, out, Placed(LongProgram(rounds)));
      return true;
    });
  }
  // Runs turns until there is nothing left to do. Returns how many it ran.
  int AllTurns() {
    int turns = 0;
    for (; Turn(); ++turns) EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    return turns;
  }
  // Makes another handle for array 1.
  absl::Status MakeView(uint64_t handle) {
    return cluster.arrays()
        .Assemble(session, *cluster.arrays().Spec(session, 1), {1}, CopySemantics::kReuseInput,
                  handle)
        .status();
  }
  // Expects that programs hold nothing any more.
  void ExpectNothingIsLeft() {
    cluster.sessions().Close(other_);
    cluster.sessions().Close(session);
    AllTurns();
    EXPECT_EQ(cluster.sessions().RecordRoom(), ClusterOptions().record_memory);
    EXPECT_EQ(cluster.inspection().counts().executables, defined_);
    EXPECT_TRUE(placed_.expired());
  }

  size_t room_ = 0;
  size_t defined_ = 0;
  std::weak_ptr<PlacedProgram> placed_;
};

TEST_F(BindTest, AProgramIsBoundInSeveralTurnsAndItsSessionGoesOnMeanwhile) {
  Begin(kRounds, 50);
  EXPECT_EQ(actions.bound, "");
  EXPECT_FALSE(cluster.sessions().Busy(session));
  ExpectTheNeighbourIsServed();
  ASSERT_TRUE(cluster.executables().Execute(session, step_, {1}, {}, {2}).ok());
  EXPECT_EQ(actions.bound, "");
  EXPECT_GT(AllTurns(), 2);
  EXPECT_EQ(actions.bound, "handle 50");
  EXPECT_TRUE(cluster.programs().Run(session, 50, {1}, {}, {3}).ok());
}

TEST_F(BindTest, CodeIsInUseWhileAProgramIsBoundThatRunsIt) {
  Begin(kRounds, 50);
  ASSERT_EQ(actions.bound, "");
  EXPECT_TRUE(cluster.executables().Release(session, step_).ok());
  EXPECT_TRUE(cluster.executables().InUse().contains(ExecutableId(1)));
  AllTurns();
  EXPECT_EQ(actions.bound, "handle 50");
}

TEST_F(BindTest, AProgramIsGivenUpInSeveralTurnsAndItsSessionWaits) {
  Begin(kRounds, 50);
  AllTurns();
  EXPECT_LT(cluster.sessions().RecordRoom(), room_);
  EXPECT_TRUE(Bounded([&] { return cluster.programs().Release(session, 50); }).ok());
  EXPECT_TRUE(cluster.sessions().Busy(session));
  ExpectTheNeighbourIsServed();
  EXPECT_TRUE(cluster.sessions().Busy(session));
  EXPECT_GT(AllTurns(), 2);
  EXPECT_EQ(cluster.programs().Release(session, 50).code(), absl::StatusCode::kNotFound);
  ExpectNothingIsLeft();
}

TEST_F(BindTest, TheNextOperationFindsAllOfAReleasedProgramGivenUp) {
  Begin(kRounds, 50);
  AllTurns();
  cluster.executables().Release(session, {50}, [](auto) {});
  EXPECT_TRUE(cluster.sessions().Busy(session));
  EXPECT_LT(cluster.sessions().RecordRoom(), room_);
  EXPECT_TRUE(cluster.arrays().Delete(session, {1}).ok());
  EXPECT_FALSE(cluster.sessions().Busy(session));
  EXPECT_EQ(cluster.sessions().RecordRoom(), room_);
  ExpectNothingIsLeft();
}

TEST_F(BindTest, ASessionThatEndsInTheMiddleOfABindLeavesNothing) {
  Begin(kRounds, 50);
  ASSERT_TRUE(cluster.programs().Reserve(session, 2, "next", 10 * kMiB).ok());
  Turn();
  Bounded([&] {
    cluster.sessions().Close(session);
    return true;
  });
  EXPECT_TRUE(actions.turn_wanted);
  ExpectTheNeighbourIsServed();
  AllTurns();
  EXPECT_EQ(actions.bound, "");
  ExpectNothingIsLeft();
}

TEST_F(BindTest, ASessionThatEndsInTheMiddleOfAReleaseLeavesNothing) {
  for (const uint64_t handle : {50, 51}) {
    Begin(kRounds, handle);
    AllTurns();
  }
  ASSERT_TRUE(cluster.programs().Release(session, 51).ok());
  cluster.sessions().Close(session);
  EXPECT_GT(AllTurns(), 3);
  ExpectNothingIsLeft();
}

TEST_F(BindTest, AHandleThatWasTakenMeanwhileIsNotBound) {
  Begin(kRounds, 50);
  ASSERT_TRUE(MakeView(50).ok());
  AllTurns();
  EXPECT_THAT(actions.bound, HasSubstr("ALREADY_EXISTS: handle 50 is in use"));
  ExpectNothingIsLeft();
}

TEST_F(BindTest, WhatAProgramHoldsIsCountedUntilItIsReleased) {
  const ProgramSource source = LongProgram(10);
  const size_t bytes = PlacedBytes(source);
  EXPECT_GT(bytes, 20 * sizeof(Instruction));
  const auto handle = cluster.programs().Bind(session, 0, source);
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(cluster.sessions().RecordRoom(), room_ - bytes);
  EXPECT_TRUE(cluster.programs().Release(session, *handle).ok());
  EXPECT_EQ(cluster.sessions().RecordRoom(), room_);
}

TEST_F(BindTest, WhatRunsOfAReleasedProgramNeedIsCountedUntilTheyHaveEnded) {
  ASSERT_TRUE(cluster.arrays()
                  .Put(session, 2, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0})
                  .ok());
  const auto program = cluster.programs().Bind(session, 0, LongProgram(1));
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(cluster.programs().Run(session, *program, {2}, {}, {3}).ok());
  ASSERT_TRUE(cluster.arrays().Destruct(session, {2, 3}).ok());
  ASSERT_TRUE(cluster.programs().Release(session, *program).ok());
  EXPECT_LT(cluster.sessions().RecordRoom(), room_);
  EXPECT_GT(cluster.inspection().counts().executables, defined_);
  EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  cluster.arrays().ProvideUpload(NodeId(2), 0, absl::AbortedError("no bytes"));
  AllTurns();
  EXPECT_EQ(cluster.sessions().RecordRoom(), room_);
  ExpectNothingIsLeft();
}

TEST_F(BindTest, OneSessionsProgramsAndArraysHoldAsMuchAsIsLeftToOthers) {
  const size_t half = room_ / 2;
  ASSERT_TRUE(cluster.programs().Reserve(session, 1, "p", half - kMiB).ok());
  EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  // It has as much as is left: it gets no more programs and arrays.
  const absl::Status refused = cluster.programs().Reserve(session, 2, "q", 2 * kMiB);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(refused),
              AllOf(HasSubstr("program q: it takes 2.0 MiB of the controller's memory"),
                    HasSubstr("--record-memory"), HasSubstr("release programs and arrays")));
  EXPECT_FALSE(cluster.programs().Reserve(session, 1, "p", half + kMiB).ok());
  EXPECT_EQ(cluster.sessions().RecordRoom(), room_ - half + kMiB);
  ASSERT_TRUE(cluster.programs().Reserve(session, 2, "q", kMiB - 600).ok());
  EXPECT_THAT(Text(cluster.programs().Bind(session, 0, LongProgram(100)).status()),
              HasSubstr("program long: it takes"));
  const auto put =
      cluster.arrays().Put(session, 2, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  EXPECT_THAT(Text(put.status()), HasSubstr("0 programs, which hold 383 MiB more"));
  // Another session finds some room, and finds the room again that it gives back.
  EXPECT_TRUE(cluster.programs().Reserve(other_, 1, "r", half / 2 - kMiB).ok());
  EXPECT_TRUE(cluster.programs().Reserve(session, 1, "p", 0).ok());
  EXPECT_TRUE(cluster.programs().Bind(session, 0, LongProgram(100)).ok());
  EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
}

// Every device exists, those of a slice are of one island, and their number is right.
TEST_F(BindTest, AProgramIsPlacedOnlyOnDevicesThatThereAre) {
  for (const auto& [devices, text] : {std::pair(std::vector<int32_t>{0}, "there is no device 9"),
                                      {std::vector<int32_t>{0, 2}, "span the devices of 2 islands"},
                                      {std::vector<int32_t>{0, 1}, "2 devices were given"}}) {
    ProgramSource source = LongProgram(1);
    source.slices[0] = devices;
    if (devices.size() == 1) source.slices[1] = {9};
    EXPECT_THAT(
        Text(PlaceProgram(std::move(source), cluster.sessions().SharedDevices(session)).status()),
        HasSubstr(text));
  }
}

}  // namespace
}  // namespace fairway
