// SPDX-License-Identifier: Apache-2.0
// No table is moved as a whole when it grows: rehashing a million entries in one go would hold
// everybody up. The test watches the largest block that is allocated.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/sanitized_for_test.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace {
size_t largest = 0;  // block that was allocated
}

void* operator new(size_t bytes) {
  largest = std::max(largest, bytes);
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

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

}  // namespace
}  // namespace fairway
