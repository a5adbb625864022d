// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/sim/device_times.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using namespace std::chrono_literals;
using Time = DeviceTimes::Time;

constexpr Time At(std::chrono::nanoseconds time) { return Time{} + time; }

TEST(DeviceTimesTest, ALaunchBeginsWhenAllItsDevicesAreFree) {
  DeviceTimes times(3);
  EXPECT_EQ(times.Start({0, 1, 2}, At(5ms)), At(5ms));
  EXPECT_EQ(times.Take({0}, At(5ms), 10ms), At(15ms));
  EXPECT_EQ(times.Take({1}, At(5ms), 20ms), At(25ms));
  EXPECT_EQ(times.Start({0}, At(6ms)), At(15ms));
  EXPECT_EQ(times.Start({0, 1}, At(6ms)), At(25ms));
  EXPECT_EQ(times.Start({2}, At(6ms)), At(6ms));
  EXPECT_EQ(times.Start({0}, At(16ms)), At(16ms));
}

TEST(DeviceTimesTest, AStepOfASequenceCountsFromTheLaunchOfTheSequence) {
  DeviceTimes times(1);
  EXPECT_EQ(times.ToldAt(7, At(9ms)), At(9ms)) << "never told";
  times.Told(10, At(1ms));
  times.Told(20, At(2ms));  // a sequence of up to 5 steps
  times.Told(25, At(3ms));
  EXPECT_EQ(times.ToldAt(9, At(9ms)), At(9ms));
  EXPECT_EQ(times.ToldAt(10, At(9ms)), At(1ms));
  EXPECT_EQ(times.ToldAt(20, At(9ms)), At(2ms));
  EXPECT_EQ(times.ToldAt(24, At(9ms)), At(2ms));
  EXPECT_EQ(times.ToldAt(25, At(9ms)), At(3ms));
}

TEST(DeviceTimesTest, WhatWasToldIsForgottenInTheEnd) {
  DeviceTimes times(1);
  for (uint64_t id = 1; id <= DeviceTimes::kRemembered + 1; ++id) times.Told(id, At(1ms));
  EXPECT_EQ(times.ToldAt(1, At(9ms)), At(9ms));
  EXPECT_EQ(times.ToldAt(2, At(9ms)), At(1ms));
}

TEST(DeviceTimesTest, TimesBeyondAllBoundsEndAtTheEndOfTime) {
  DeviceTimes times(1);
  const Time end = times.Take({0}, At(1h), std::chrono::nanoseconds::max());
  EXPECT_EQ(end, DeviceTimes::kEndOfTime);
  EXPECT_EQ(times.Take({0}, end, 1h), DeviceTimes::kEndOfTime);
}

}  // namespace
}  // namespace fairway
