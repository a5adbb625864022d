// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/slots.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "worker/executor/runtime/pjrt/device_threads.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway::pjrt {
namespace {

TEST(SlotsTest, NobodyHasDevicesForItselfWhileSomethingIsUnderWayThere) {
  Slots slots(3, Slots::kGangsOnCpu);
  for (const auto& taken : {std::vector<int>{1}, std::vector<int>{1, 2}}) {
    slots.Take(taken);
    EXPECT_FALSE(slots.TakeAlone({0, 1}));
    slots.Give(taken);
    EXPECT_TRUE(slots.TakeAlone({0, 1}));
    EXPECT_FALSE(slots.TakeAlone({1, 2}));
    slots.LetOthersIn({0, 1});
    slots.Give({0, 1});
  }
}

TEST(SlotsTest, OthersWaitForWhoeverHasADeviceForItselfUnlessTheyPass) {
  Slots slots(3, Slots::kGangsOnCpu);
  ASSERT_TRUE(slots.TakeAlone({0, 1}));
  slots.Take({1}, /*passes=*/true);
  slots.Take({2});
  std::atomic<bool> let_in = false, began = false;
  std::thread other([&] {
    began = true;
    slots.Take({1});
    EXPECT_TRUE(let_in);
  });
  EXPECT_TRUE(test::Eventually([&] { return began.load(); }));
  let_in = true;
  slots.LetOthersIn({0, 1});
  other.join();
}

TEST(DeviceThreadsTest, AllPartsOfAGangRunAtOnce) {
  DeviceThreads threads(4);
  for (const auto& devices : {std::vector<int>{2, 0, 3}, std::vector<int>{1}}) {
    std::atomic<size_t> here = 0;
    std::vector<std::thread::id> on(devices.size());
    threads.Run(devices, [&](size_t i) {
      on[i] = std::this_thread::get_id();
      ++here;
      EXPECT_TRUE(test::Eventually([&] { return here == devices.size(); }));
    });
    EXPECT_EQ(here, devices.size());
    EXPECT_EQ(on[0], std::this_thread::get_id());
  }
}

}  // namespace
}  // namespace fairway::pjrt
