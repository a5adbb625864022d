// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/execution_ends.h"

namespace fairway {

uint64_t ExecutionEnds::Begin(const std::vector<int32_t>& devices) {
  const uint64_t number = next_number_++;
  Execution& execution = executions_[number];
  execution.devices = devices;
  for (const int32_t device : devices) {
    const auto [last, first] = last_.try_emplace(device, number);
    if (first || last->second == number) continue;
    Execution& earlier = executions_.at(last->second);
    last->second = number;
    if (!earlier.behind.empty() && earlier.behind.back() == number) continue;
    earlier.behind.push_back(number);
    ++executions_.at(number).before;
  }
  return number;
}

void ExecutionEnds::Ended(uint64_t number, absl::Status status) {
  const auto it = executions_.find(number);
  if (it == executions_.end() || it->second.status.has_value()) return;
  it->second.status = std::move(status);
  if (it->second.before == 0) due_.push_back(number);
}

std::optional<std::pair<uint64_t, absl::Status>> ExecutionEnds::Next() {
  if (due_.empty()) return std::nullopt;
  const auto it = executions_.find(due_.front());
  due_.pop_front();
  const uint64_t number = it->first;
  const Execution execution = std::move(it->second);
  executions_.erase(it);
  for (const int32_t device : execution.devices) {
    const auto last = last_.find(device);
    if (last != last_.end() && last->second == number) last_.erase(last);
  }
  for (const uint64_t later : execution.behind) {
    Execution& waiting = executions_.at(later);
    if (--waiting.before == 0 && waiting.status.has_value()) due_.push_back(later);
  }
  return std::pair(number, *execution.status);
}

}  // namespace fairway
