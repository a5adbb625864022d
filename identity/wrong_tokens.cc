// SPDX-License-Identifier: Apache-2.0
#include "identity/wrong_tokens.h"

#include <netinet/in.h>

#include <algorithm>
#include <utility>

namespace fairway {

std::chrono::milliseconds WrongTokens::Count(const std::string& address, Time now) {
  ForgetPast(now);
  auto found = windows_.find(address);
  bool slow = false;
  if (found != windows_.end()) {
    slow = ++found->second.count > kAtOnce;
  } else if (windows_.size() < kMostAddresses) {
    windows_[address] = {now + kWindow, 1};
    ends_.emplace_back(now + kWindow, address);
  } else {
    slow = true;  // it cannot be told how often this one was wrong
  }
  if (!slow || waiting_.size() >= kMostWaiting) return std::chrono::milliseconds(0);
  waiting_.push_back(now + kDelay);
  return kDelay;
}

void WrongTokens::ForgetPast(Time now) {
  // A clock that was set back would keep all of it longer.
  const auto past = [&](Time end, std::chrono::milliseconds length) {
    return end <= now || end > now + length;
  };
  while (!ends_.empty() && past(ends_.front().first, kWindow)) {
    windows_.erase(ends_.front().second);
    ends_.pop_front();
  }
  while (!waiting_.empty() && past(waiting_.front(), kDelay)) waiting_.pop_front();
}

}  // namespace fairway
