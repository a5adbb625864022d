// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/sim/device_times.h"

#include <algorithm>

namespace fairway {

void DeviceTimes::Told(uint64_t launch, Time now) {
  while (!told_.empty() && told_.back().first >= launch) told_.pop_back();
  told_.emplace_back(launch, now);
  if (told_.size() > kRemembered) told_.pop_front();
}

DeviceTimes::Time DeviceTimes::ToldAt(uint64_t launch, Time now) const {
  const auto above =
      std::upper_bound(told_.begin(), told_.end(), launch,
                       [](uint64_t id, const auto& entry) { return id < entry.first; });
  return above == told_.begin() ? now : std::prev(above)->second;
}

DeviceTimes::Time DeviceTimes::Start(const std::vector<int>& devices, Time from) const {
  for (const int device : devices) from = std::max(from, free_[static_cast<size_t>(device)]);
  return from;
}

DeviceTimes::Time DeviceTimes::Take(const std::vector<int>& devices, Time start,
                                    std::chrono::nanoseconds time) {
  const Time end = start > kEndOfTime || time > kEndOfTime - start ? kEndOfTime : start + time;
  for (const int device : devices) {
    Time& free = free_[static_cast<size_t>(device)];
    free = std::max(free, end);
  }
  return end;
}

}  // namespace fairway
