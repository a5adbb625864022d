// SPDX-License-Identifier: Apache-2.0
// A core whose operations and turns are counted in units, and a neighbour of the busy session.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_TURNS_FIXTURE_FOR_TEST_H_
#define FAIRWAY_CONTROLLER_CLUSTER_TURNS_FIXTURE_FOR_TEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized_for_test.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executable_spec.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"

namespace fairway {

// The most units of an operation's own part, which is not interrupted, and a turn after it.
inline constexpr uint64_t kMost = 3000;

class TurnsTest : public ClusterTest {
 protected:
  void SetUp() override {
    Start();
    step_ = Define(1, {0}, {F32({4})}, {F32({4})});
    Define(2, {2}, {F32({4})}, {F32({4})});
    other_ = actions.Open(cluster);
    neighbours_step_ = cluster.executables().Bind(other_, 0, ExecutableId(2), {2}).value();
  }
  void TearDown() override {
    while (Turn()) {
    }
    EXPECT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }

  // Calls `operation`, and checks how many units it takes.
  template <typename F>
  auto Bounded(F operation) {
    const uint64_t before = cluster.units();
    auto result = operation();
    EXPECT_LE(cluster.units() - before, kMost);
    return result;
  }
  // Runs a turn, if one is wanted.
  bool Turn() {
    if (!std::exchange(actions.turn_wanted, false)) return false;
    return Bounded([&] {
      cluster.Turn();
      return true;
    });
  }
  // The neighbour puts an array and computes with it: its own device gets the commands at once.
  void ExpectTheNeighbourIsServed() {
    const uint64_t handle = next_++;
    const auto put = cluster.arrays().Put(
        other_, handle, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(2)}, {0});
    ASSERT_TRUE(put.ok());
    actions.Take();
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
    ASSERT_TRUE(
        cluster.executables().Execute(other_, neighbours_step_, {handle}, {}, {next_++}).ok());
    for (int turns = 0; turns < 3; ++turns) Turn();
    EXPECT_THAT(actions.lines, ::testing::Contains(::testing::StartsWith("e2 <- receive n")));
    EXPECT_THAT(actions.lines, ::testing::Contains(::testing::StartsWith("e2 <- prepare n")));
    actions.Take();
  }

  // Makes arrays 1 to `count` of one shard, which is put on device 0.
  void MakeViews(uint64_t count, bool ready = true) {
    if (ready) {
      PutReady(1, 0);
    } else {
      ASSERT_TRUE(cluster.arrays()
                      .Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0})
                      .ok());
    }
    for (uint64_t i = 2; i <= count; ++i)
      ASSERT_TRUE(cluster.arrays()
                      .Assemble(session, *cluster.arrays().Spec(session, 1), {1},
                                CopySemantics::kReuseInput, i)
                      .ok());
    handles_.resize(count);
    for (uint64_t i = 0; i < count; ++i) handles_[i] = i + 1;
  }
  // Handles of results.
  std::vector<uint64_t> Out() const {
    std::vector<uint64_t> out;
    for (const uint64_t handle : handles_) out.push_back(handle + (uint64_t{1} << 40));
    return out;
  }
  Cluster::Done Answer() {
    return [this](auto result) {
      answered_ = Describe(result.status());
      if (result.ok()) results_ = result->size();
    };
  }
  // Expects that the neighbour is served while a long request is under way. Then ends the request;
  // calls `in_between` once before its end.
  template <typename F>
  void ExpectItGoesOnInTurns(F in_between) {
    ASSERT_TRUE(cluster.sessions().Busy(session));
    ASSERT_TRUE(actions.turn_wanted);
    EXPECT_EQ(answered_, "");
    ExpectTheNeighbourIsServed();
    EXPECT_TRUE(cluster.sessions().Busy(session));
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    for (int turns = 0; turns < 10; ++turns) Turn();
    EXPECT_TRUE(cluster.sessions().Busy(session));
    in_between();
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
    while (cluster.sessions().Busy(session)) ASSERT_TRUE(Turn());
    ASSERT_EQ(Describe(cluster.inspection().CheckInvariants()), "OK");
  }

  // A program that goes to island b and back `rounds` times.
  static ProgramSource LongProgram(int rounds) {
    Program program;
    program.name = "long";
    program.slices = {{"a", 1}, {"b", 1}};
    ProgramBinding binding;
    binding.places = {0, 1};
    const ArraySpec type{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
    for (int c = 0; c < 2; ++c) {
      Computation computation;
      computation.code = std::make_shared<const std::string>("code");
      computation.parameters = computation.results = {type};
      program.computations.push_back(computation);
      binding.code[{c, c}] = {ExecutableId(c + 1), {{DType::kF32, Shape{{4}}, ""}}, {}, 64};
    }
    program.graphs.resize(1);
    auto& nodes = program.graphs[0].nodes;
    nodes.push_back({"", "", ArgumentNode{{0, type}, false}});
    for (int r = 0; r < rounds; ++r) {
      for (int c = 0; c < 2; ++c) {
        const ValueRef last{static_cast<int32_t>(nodes.size()) - 1, 0};
        nodes.push_back({"", "", ComputeNode{c, c, {last}}});
      }
    }
    program.graphs[0].results = {{static_cast<int32_t>(nodes.size()) - 1, 0}};
    const auto types = CheckProgram(program);
    EXPECT_TRUE(types.ok()) << types.status();
    const auto plan = Lower(program, *types, binding);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return {"long", *plan, {{0}, {2}}, false};
  }
  uint64_t BindLongProgram(int rounds) {
    return cluster.programs().Bind(session, 0, LongProgram(rounds)).value();
  }

  // Runs a chain of `steps` computations on array 1, which lies on device 0. Watches the last
  // result with token 9.
  void RunChain(uint64_t steps) {
    PutReady(1, 0);
    for (uint64_t i = 1; i <= steps; ++i) {
      ASSERT_TRUE(cluster.executables().Execute(session, step_, {i}, {}, {i + 1}).ok());
      while (Turn()) {
      }
    }
    cluster.arrays().Watch(session, 9, {steps + 1});
    actions.Take();
  }
  void Lose(ExecutorId executor) {
    Bounded([&] {
      cluster.fleet().ExecutorLost(executor, absl::UnavailableError("killed"));
      return true;
    });
  }

  uint64_t step_ = 0;
  SessionId other_;
  uint64_t neighbours_step_ = 0;
  uint64_t next_ = 1;  // the neighbour's next handle
  std::vector<uint64_t> handles_;
  std::string answered_;  // the answer to a long request
  size_t results_ = 0;
};

// A core whose turns do one item of work each.
class ShortTurnsTest : public ClusterTest {
 protected:
  static ClusterOptions Short() {
    ClusterOptions options = AtOnce();
    options.turn_units = 1;
    return options;
  }
  ShortTurnsTest() : ClusterTest(Short()) {}
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_TURNS_FIXTURE_FOR_TEST_H_
