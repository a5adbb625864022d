// SPDX-License-Identifier: Apache-2.0
// When the devices of the sim runtime are free. No clock of its own.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_DEVICE_TIMES_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_DEVICE_TIMES_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace fairway {

// Owned by the sim runtime. Not thread-safe.
class DeviceTimes {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit DeviceTimes(int num_devices) : free_(static_cast<size_t>(num_devices)) {}

  // Notes that the executor got `launch` at `now`. Ids rise. The steps of a sequence have the ids
  // after its own.
  void Told(uint64_t launch, Time now);
  // Returns when the executor got this launch, or the sequence that it is a step of; `now` if that
  // is not known (any more).
  Time ToldAt(uint64_t launch, Time now) const;

  // Returns the earliest time, from `from` on, at which all these devices are free.
  Time Start(const std::vector<int>& devices, Time from) const;
  // Makes the devices busy from `start` on for `time`. Returns when they are free again (kEndOfTime
  // at the latest).
  Time Take(const std::vector<int>& devices, Time start, std::chrono::nanoseconds time);

  // Two centuries. Above it is room for differences between clocks.
  static constexpr Time kEndOfTime{std::chrono::hours(200L * 365 * 24)};
  // Launches that are remembered: more than an executor gets ahead.
  static constexpr size_t kRemembered = 4096;

 private:
  std::vector<Time> free_;
  std::deque<std::pair<uint64_t, Time>> told_;  // by id
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_SIM_DEVICE_TIMES_H_
