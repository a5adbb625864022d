// SPDX-License-Identifier: Apache-2.0
// Ticks look at what waits, some of it each time, however many sessions wait.
#include <algorithm>
#include <string>
#include <vector>

#include "controller/cluster/turns_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr uint64_t kSessions = kSanitized ? 3000 : 6000;

ArraySpec Floats(int64_t bytes, int32_t device) {
  return {DType::kF32, Shape{{bytes / 4}}, Sharding::SingleDevice(device)};
}

// A device is full, and sessions wait for 64 bytes of it each.
class TicksTest : public ClusterTest {
 protected:
  static ClusterOptions WithTurns(uint64_t units) {
    ClusterOptions options = AtOnce();
    options.turn_units = units;
    return options;
  }
  explicit TicksTest(uint64_t turn_units = 1000) : ClusterTest(WithTurns(turn_units)) {}

  void Fill() {
    Start(1024);
    const auto put = cluster.arrays().Put(session, 1, Floats(1024, 0), {0});
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(1024)));
    RunTurns();
    End(a, put->upload.value);
  }
  void Wait(uint64_t sessions) {
    for (uint64_t i = 0; i < sessions; ++i) {
      const SessionId other = actions.Open(cluster);
      const auto put = cluster.arrays().Put(other, 1, Floats(64, 0), {0});
      cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(64)));
      RunTurns();
      cluster.arrays().Watch(other, 9, {1});
    }
    RunTurns();
    actions.Take();
  }
  uint64_t UnitsOfTick(int64_t now_ms) {
    const uint64_t before = cluster.units();
    cluster.Tick(now_ms);
    return cluster.units() - before;
  }
  // How many have failed since.
  size_t Failed() {
    return static_cast<size_t>(std::ranges::count_if(actions.Take(), [](const auto& line) {
      return line.find("watched 9: RESOURCE_EXHAUSTED") != std::string::npos;
    }));
  }
};

TEST_F(TicksTest, ATickLooksAtSomeOfTheSessionsThatWaitForMemory) {
  Fill();
  Wait(kSessions);
  for (int64_t now = 0; now < 2000; now += 100) {
    EXPECT_LE(UnitsOfTick(now), 500u);
    RunTurns();
  }
  EXPECT_EQ(Failed(), 0u);
}

// Of one node each.
class ShortTicksTest : public TicksTest {
 protected:
  ShortTicksTest() : TicksTest(1) {}
};

TEST_F(ShortTicksTest, AllThatWaitInVainFail) {
  constexpr size_t kFew = 20;
  Fill();
  Wait(kFew);
  int64_t now = 0;
  for (; now < 2000; now += 100) {
    cluster.Tick(now);
    RunTurns();
  }
  EXPECT_EQ(Failed(), 0u);
  size_t failed = 0;
  for (int ticks = 0; ticks < 400 && failed < kFew; ++ticks, now += 100) {
    cluster.Tick(now);
    RunTurns();
    failed += Failed();
  }
  EXPECT_EQ(failed, kFew);
}

}  // namespace
}  // namespace fairway
