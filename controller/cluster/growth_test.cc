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

// What all shards have in common is there once: the bytes that a device adds.
TEST(GrowthTest, AWaitingGangHoldsFewBytesOfEachDevice) {
  constexpr int kHosts = 512, kOfAHost = 4, kDevices = kHosts * kOfAHost, kGangs = 20;
  constexpr int64_t kMemory = 1 << 20;
  Recorder actions;
  Cluster cluster({}, &actions);
  for (int host = 0; host < kHosts; ++host) {
    ExecutorSpec spec = Worker(fmt::format("w{}", host), "i", kOfAHost, kMemory);
    spec.island_workers = kHosts;
    ASSERT_TRUE(cluster.fleet().ExecutorUp(spec).ok());
  }
  const SessionId session = actions.Open(cluster);
  std::vector<int32_t> devices(kDevices);
  std::iota(devices.begin(), devices.end(), 0);
  ExecutableSpec spec;
  spec.id = ExecutableId(1);
  spec.name = "f";
  spec.island = IslandId(1);
  for (const VirtualDevice& device : cluster.sessions().Devices(session))
    spec.devices.push_back(device.device);
  spec.parameters = {F32({16})};
  spec.outputs = {F32({kMemory / 4})};  // all of each device
  cluster.executables().Define(std::move(spec));
  const uint64_t step = cluster.executables().Bind(session, 0, ExecutableId(1), devices).value();
  const auto put = cluster.arrays().Put(
      session, 1, ArraySpec{DType::kF32, Shape{{16}}, Sharding::Replicated(devices)},
      std::vector<int32_t>(kDevices, 0));
  ASSERT_TRUE(put.ok()) << put.status();
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(64)));
  const auto call = [&](uint64_t result) {
    ASSERT_TRUE(cluster.executables().Execute(session, step, {1}, {}, {result}).ok());
    while (std::exchange(actions.turn_wanted, false)) cluster.Turn();
    actions.Take();
  };
  ASSERT_NO_FATAL_FAILURE(call(2));
  const int64_t before = held;
  for (uint64_t i = 0; i < kGangs; ++i) ASSERT_NO_FATAL_FAILURE(call(3 + i));
  EXPECT_EQ(cluster.fleet().Islands().front().queued, size_t{kGangs} + 1);
  // The lists of shards of its argument and its result; 16 bytes a shard.
  EXPECT_LE((held - before) / kGangs, 2 * 16 * kDevices + 2048);
}

}  // namespace
}  // namespace fairway
