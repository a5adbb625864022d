// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/registry.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

class RegistryTest : public testing::Test {
 protected:
  // Adds an executor with `devices` devices on an island that is to have `workers` executors.
  Executor& Add(uint32_t island, int32_t devices, int32_t workers = 1) {
    Island& on = registry_.islands[IslandId(island)];
    on.id = IslandId(island);
    on.name = "i" + std::to_string(island);
    registry_.island_by_name.emplace(on.name, on.id);
    ++on.up;
    const ExecutorId id(registry_.next_executor++);
    Executor& executor = registry_.executors[id];
    executor.id = id;
    executor.island = on.id;
    executor.up = true;
    executor.spec.worker = "w" + std::to_string(id.value);
    registry_.executor_of_worker.emplace(executor.spec.worker, id);
    executor.spec.num_devices = devices;
    executor.spec.island_workers = workers;
    executor.first_device = registry_.NewDevices(static_cast<uint32_t>(devices));
    for (int32_t i = 0; i < devices; ++i)
      registry_.device_owner[executor.first_device.value + i] = &executor;
    on.executors.push_back(id);
    registry_.UpdateOpen(on);
    return executor;
  }
  void Forget(Executor& executor) {
    const auto devices = static_cast<uint32_t>(executor.spec.num_devices);
    for (uint32_t i = 0; i < devices; ++i)
      registry_.device_owner[executor.first_device.value + i] = nullptr;
    registry_.free_devices.emplace(devices, executor.first_device.value);
    registry_.executor_of_worker.erase(executor.spec.worker);
    Island& island = registry_.islands.at(executor.island);
    --island.up;
    registry_.UpdateOpen(island);
    registry_.island_by_name.erase(registry_.islands.at(executor.island).name);
    registry_.islands.erase(executor.island);
    registry_.executors.erase(executor.id);
  }

  Registry registry_;
};

TEST_F(RegistryTest, EachDeviceBelongsToOneExecutor) {
  Executor& a = Add(1, 2);
  Executor& b = Add(2, 3);
  EXPECT_EQ(registry_.ExecutorOf(DeviceId(1)), &a);
  EXPECT_EQ(registry_.ExecutorOf(DeviceId(2)), &a);
  EXPECT_EQ(registry_.ExecutorOf(DeviceId(5)), &b);
  EXPECT_TRUE(registry_.CheckRegistry().ok());
}

TEST_F(RegistryTest, NumbersOfForgottenDevicesAreGivenToAnExecutorWithAsMany) {
  const DeviceId first = Add(1, 2).first_device;
  Add(2, 3);
  Forget(registry_.executors.begin()->second);
  EXPECT_TRUE(registry_.CheckRegistry().ok());
  EXPECT_EQ(Add(3, 1).first_device, DeviceId(6));
  EXPECT_EQ(Add(4, 2).first_device, first);
  EXPECT_TRUE(registry_.CheckRegistry().ok());
}

TEST_F(RegistryTest, AnIslandIsUpWhenAllItsExecutorsAre) {
  Executor& a = Add(1, 1, 2);
  Island& island = registry_.islands.at(IslandId(1));
  EXPECT_FALSE(registry_.IslandUp(island));
  Add(1, 1, 2);
  EXPECT_TRUE(registry_.IslandUp(island));
  a.up = false;
  EXPECT_FALSE(registry_.CheckRegistry().ok());  // one that is down is counted
  --island.up;
  EXPECT_FALSE(registry_.CheckRegistry().ok());  // new sessions still see it
  registry_.UpdateOpen(island);
  EXPECT_TRUE(registry_.CheckRegistry().ok());
  EXPECT_FALSE(registry_.IslandUp(island));
}

TEST_F(RegistryTest, NewSessionsSeeIslandsThatAreUpAndNotCordoned) {
  EXPECT_FALSE(registry_.AnyOpen().ok());
  Add(2, 1);
  Add(1, 1);
  EXPECT_TRUE(registry_.AnyOpen().ok());
  EXPECT_EQ(registry_.open_islands.begin()->first, "i1");
  for (auto& [id, island] : registry_.islands) {
    registry_.cordons[island.name] = {};
    EXPECT_FALSE(registry_.CheckRegistry().ok());
    registry_.UpdateOpen(island);
    EXPECT_TRUE(registry_.CheckRegistry().ok());
  }
  EXPECT_TRUE(registry_.open_islands.empty());
  EXPECT_EQ(registry_.AnyOpen().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RegistryTest, TheCheckFindsADeviceOfTwoAndAnExecutorThatNobodyLists) {
  Executor& a = Add(1, 1);
  Executor& b = Add(2, 1);
  registry_.device_owner[b.first_device.value] = &a;
  EXPECT_FALSE(registry_.CheckRegistry().ok());
  registry_.device_owner[b.first_device.value] = &b;
  registry_.islands.at(IslandId(2)).executors.clear();
  EXPECT_FALSE(registry_.CheckRegistry().ok());
}

}  // namespace
}  // namespace fairway
