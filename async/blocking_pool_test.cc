// SPDX-License-Identifier: Apache-2.0
#include "async/blocking_pool.h"

#include <atomic>
#include <future>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(BlockingPool, OneThreadKeepsTheOrder) {
  std::vector<int> seen;
  {
    BlockingPool pool("ordered", 1);
    for (int i = 0; i < 1000; ++i) pool.Run([&seen, i] { seen.push_back(i); });
  }
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
}

TEST(BlockingPool, TwoThreadsRunSideBySide) {
  std::promise<void> first, second, done;  // they outlive the pool's threads
  BlockingPool pool("pair", 2);
  // Each closure waits for the other: with one thread this would never end.
  pool.Run([&] {
    first.set_value();
    second.get_future().wait();
  });
  first.get_future().wait();
  pool.Run([&] {
    second.set_value();
    done.set_value();
  });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
}

TEST(BlockingPool, OwnersTakeTurns) {
  std::vector<int> seen;  // of one thread
  {
    std::promise<void> go;
    BlockingPool pool("turns", 1);
    pool.Run([&] { go.get_future().wait(); }, 9);
    for (int i = 0; i < 3; ++i) pool.Run([&seen, i] { seen.push_back(10 + i); }, 1);
    for (int i = 0; i < 2; ++i) pool.Run([&seen, i] { seen.push_back(20 + i); }, 2);
    go.set_value();
  }
  EXPECT_THAT(seen, testing::ElementsAre(10, 20, 11, 21, 12));
}

TEST(BlockingPool, OneOwnerLeavesAThreadToOthers) {
  std::promise<void> go, done;
  const std::shared_future<void> gone = go.get_future().share();
  BlockingPool pool("spare", 2);
  for (int i = 0; i < 5; ++i) pool.Run([gone] { gone.wait(); }, 1);
  pool.Run([&] { done.set_value(); }, 2);
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
  go.set_value();
}

TEST(BlockingPool, DestructionRunsWhatIsQueued) {
  std::atomic<int> ran = 0;
  {
    BlockingPool pool("drain", 3);
    for (int i = 0; i < 500; ++i) pool.Run([&] { ++ran; });
  }
  EXPECT_EQ(ran, 500);
}

}  // namespace
}  // namespace fairway
