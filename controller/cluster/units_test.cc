// SPDX-License-Identifier: Apache-2.0
// What work of the core counts, in units.
#include <numeric>
#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::StartsWith;

// A core whose uploads go to executors at once.
class UnitsTest : public ::testing::Test {
 protected:
  static ClusterOptions Options() {
    ClusterOptions options;
    options.stored_array_bytes = -1;
    return options;
  }
  Recorder actions;
  Cluster cluster{Options(), &actions};
};

// To put a shard, and to name it to its executor, takes half a microsecond each.
TEST_F(UnitsTest, APutToManyDevicesCountsItsShards) {
  constexpr int kDevices = 500;
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("w", "i", kDevices)).ok());
  const SessionId session = actions.Open(cluster);
  std::vector<int32_t> devices(kDevices);
  std::iota(devices.begin(), devices.end(), 0);
  const uint64_t before = cluster.units();
  const auto put = cluster.arrays().Put(
      session, 1, ArraySpec{DType::kF32, Shape{{4}}, Sharding::Replicated(devices)},
      std::vector<int32_t>(kDevices, 0));
  ASSERT_TRUE(put.ok());
  const uint64_t made = cluster.units();
  EXPECT_GE(made - before, kDevices / 2);
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(16)));
  EXPECT_THAT(actions.lines, testing::Contains(StartsWith("e1 <- receive")));
  EXPECT_GE(cluster.units() - made, kDevices / 2);
}

// The bytes are copied into a message, and the message into a frame.
TEST_F(UnitsTest, BytesThatGoWithACommandCount) {
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("w", "i", 1)).ok());
  const SessionId session = actions.Open(cluster);
  const auto put = cluster.arrays().Put(
      session, 1, ArraySpec{DType::kF32, Shape{{16384}}, Sharding::SingleDevice(0)}, {0});
  ASSERT_TRUE(put.ok());
  const uint64_t before = cluster.units();
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(64 << 10)));
  EXPECT_THAT(actions.lines, testing::Contains(StartsWith("e1 <- receive")));
  EXPECT_GE(cluster.units() - before, 16u);
}

// Each blob of an upload is looked for among the shards of its node.
TEST_F(UnitsTest, TheBytesOfOneOfManyShardsCountTheShards) {
  constexpr int kDevices = 4096;
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("w", "i", kDevices)).ok());
  const SessionId session = actions.Open(cluster);
  std::vector<int32_t> devices(kDevices);
  std::iota(devices.begin(), devices.end(), 0);
  const auto put = cluster.arrays().Put(
      session, 1, ArraySpec{DType::kF32, Shape{{4}}, Sharding::Replicated(devices)}, devices);
  ASSERT_TRUE(put.ok());
  const uint64_t before = cluster.units();
  cluster.arrays().ProvideUpload(put->upload, kDevices - 1, BytesRef(Blob::Make(16)));
  EXPECT_GE(cluster.units() - before, kDevices / 256);
}

// What a report tells counts where it is read, though what follows is left to a turn.
TEST(ReportUnitsTest, TheEndsAndBytesOfAReportCount) {
  ClusterOptions options;
  options.stored_array_bytes = -1;
  options.turn_units = 1;
  Recorder actions;
  Cluster cluster(options, &actions);
  const ExecutorId executor = cluster.fleet().ExecutorUp(Worker("w", "i", 1)).value();
  const SessionId session = actions.Open(cluster);
  const auto turn = [&] {
    while (std::exchange(actions.turn_wanted, false)) cluster.Turn();
  };
  const auto put = cluster.arrays().Put(
      session, 1, ArraySpec{DType::kF32, Shape{{16384}}, Sharding::SingleDevice(0)}, {0});
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(64 << 10)));
  constexpr uint64_t kCopies = 400;
  for (uint64_t i = 0; i < kCopies; ++i) {
    cluster.arrays().Copy(session, {1}, std::nullopt, std::nullopt, CopySemantics::kAlwaysCopy,
                          {i + 2}, [](const auto&) {});
    turn();
  }
  Report report;
  for (const auto& [who, seq] : actions.seq) report.finished.push_back(seq);
  ASSERT_GE(report.finished.size(), kCopies);
  uint64_t before = cluster.units();
  cluster.fleet().OnReport(executor, Incarnation(7), report);
  EXPECT_GE(cluster.units() - before, kCopies / 4);
  turn();
  report = {};
  report.inlined.push_back({{GroupId(1), 0}, BytesRef(Blob::Make(64 << 10))});
  before = cluster.units();
  cluster.fleet().OnReport(executor, Incarnation(7), report);
  EXPECT_GE(cluster.units() - before, 16u);
}

}  // namespace
}  // namespace fairway
