// SPDX-License-Identifier: Apache-2.0
// No table is moved as a whole when it grows: rehashing a million entries in one go would hold
// everybody up. The test watches the largest block that is allocated.
#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

#include <malloc.h>

#include "base/sanitized_for_test.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace {
size_t largest = 0;  // block that was allocated
int64_t held = 0;    // bytes that were allocated and not freed
}  // namespace

void* operator new(size_t bytes) {
  largest = std::max(largest, bytes);
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  held += static_cast<int64_t>(malloc_usable_size(block));
  return block;
}
void operator delete(void* block) noexcept {
  if (block != nullptr) held -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }

namespace fairway {
namespace {

constexpr size_t kMany = kSanitized ? 20000 : 100000;
constexpr size_t kMuch = 32 << 10;

ArraySpec Scalar() { return {DType::kF32, Shape{{}}, Sharding::SingleDevice(0, "")}; }

TEST(GrowthTest, ATableGrowsToManyArraysAndNoneOfThemMoves) {
  ArrayTable table;
  table.emplace(1, Array{Scalar(), {}, {}});
  const Array* const first = table.find(1);
  largest = 0;
  for (uint64_t handle = 2; handle <= kMany; ++handle)
    table.emplace(handle, Array{Scalar(), {}, {}});
  EXPECT_LT(largest, kMuch);
  EXPECT_EQ(table.find(1), first);
  EXPECT_EQ(table.size(), kMany);
  while (!table.empty()) table.TakeFirst();
  EXPECT_LT(largest, kMuch);
  EXPECT_EQ(table.find(1), nullptr);
}

TEST(GrowthTest, TheCoresTablesGrowAFewEntriesAtATime) {
  Recorder actions;
  Cluster cluster({}, &actions);
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("w", "i", 1)).ok());
  const SessionId session = actions.Open(cluster);
  largest = 0;
  for (uint64_t handle = 1; handle <= kMany / 2; ++handle) {
    const auto put = cluster.arrays().Put(session, handle, Scalar(), {0});
    ASSERT_TRUE(put.ok()) << put.status();
    cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(4)));
  }
  EXPECT_EQ(cluster.inspection().counts().groups, kMany / 2);
  constexpr uint64_t kNeverThere = 60000;
  ASSERT_TRUE(cluster.arrays().Put(session, kNeverThere, Scalar(), {0}).ok());
  for (uint64_t token = 1; token <= 5000; ++token)
    cluster.arrays().Watch(session, token, {kNeverThere});
  EXPECT_LT(largest, kMuch);
}

// What all shards have in common is there once: an array, and a gang that waits, take as much on
// 2,048 devices as on 1,024.
class ManyDevicesTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kOfAHost = 4, kMany = 20;
  static constexpr int64_t kMemory = 1 << 20;

  ManyDevicesTest() {
    const int hosts = GetParam() / kOfAHost;
    for (int host = 0; host < hosts; ++host) {
      ExecutorSpec spec = Worker(fmt::format("w{}", host), "i", kOfAHost, kMemory);
      spec.island_workers = hosts;
      EXPECT_TRUE(cluster_.fleet().ExecutorUp(spec).ok());
    }
    session_ = actions_.Open(cluster_);
    devices_.resize(GetParam());
    std::iota(devices_.begin(), devices_.end(), 0);
  }
  // Each device has a row.
  void Put(uint64_t handle) {
    std::vector<int64_t> rows(devices_.size());
    std::iota(rows.begin(), rows.end(), 0);
    const auto cut = Sharding::Tiled(devices_, {GetParam(), 1}, std::move(rows));
    ASSERT_TRUE(cut.ok()) << cut.status();
    const auto put = cluster_.arrays().Put(session_, handle,
                                           ArraySpec{DType::kF32, Shape{{GetParam(), 16}}, *cut},
                                           std::vector<int32_t>(devices_.size(), 0));
    ASSERT_TRUE(put.ok()) << put.status();
    cluster_.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(64)));
    Settle();
  }
  void Settle() {
    while (std::exchange(actions_.turn_wanted, false)) cluster_.Turn();
    actions_.Take();
  }

  Recorder actions_;
  Cluster cluster_{{}, &actions_};
  SessionId session_;
  std::vector<int32_t> devices_;
};

TEST_P(ManyDevicesTest, AnArrayHoldsFewBytes) {
  ASSERT_NO_FATAL_FAILURE(Put(1));
  const int64_t before = held;
  for (uint64_t i = 0; i < kMany; ++i) ASSERT_NO_FATAL_FAILURE(Put(2 + i));
  EXPECT_LE((held - before) / kMany, 2560);
}

// Any array may be the last that holds the lists that it shares.
TEST_P(ManyDevicesTest, AnArrayIsChargedAsIfItSharedNothing) {
  ASSERT_NO_FATAL_FAILURE(Put(1));
  const size_t before = cluster_.sessions().RecordRoom();
  ASSERT_NO_FATAL_FAILURE(Put(2));
  // Of each shard: its reference, its place and its shape.
  EXPECT_GE(before - cluster_.sessions().RecordRoom(), 88u * devices_.size());
}

TEST_P(ManyDevicesTest, AWaitingGangHoldsFewBytes) {
  ExecutableSpec spec;
  spec.id = ExecutableId(1);
  spec.name = "f";
  spec.island = IslandId(1);
  for (const VirtualDevice& device : cluster_.sessions().Devices(session_))
    spec.devices.push_back(device.device);
  spec.parameters = {F32({1, 16})};
  spec.outputs = {F32({kMemory / 4})};  // all of each device
  cluster_.executables().Define(std::move(spec));
  const uint64_t step = cluster_.executables().Bind(session_, 0, ExecutableId(1), devices_).value();
  ASSERT_NO_FATAL_FAILURE(Put(1));
  const auto call = [&](uint64_t result) {
    ASSERT_TRUE(cluster_.executables().Execute(session_, step, {1}, {}, {result}).ok());
    Settle();
  };
  ASSERT_NO_FATAL_FAILURE(call(2));
  const int64_t before = held;
  for (uint64_t i = 0; i < kMany; ++i) ASSERT_NO_FATAL_FAILURE(call(3 + i));
  EXPECT_EQ(cluster_.fleet().Islands().front().queued, size_t{kMany} + 1);
  EXPECT_LE((held - before) / kMany, 2560);
}

INSTANTIATE_TEST_SUITE_P(Devices, ManyDevicesTest, ::testing::Values(1024, 2048));

}  // namespace
}  // namespace fairway
