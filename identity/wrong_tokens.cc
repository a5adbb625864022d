// SPDX-License-Identifier: Apache-2.0
#include "identity/wrong_tokens.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
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

std::string AddressOf(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  host = host.substr(0, host.find('%'));
  std::array<char, INET6_ADDRSTRLEN> text{};
  in6_addr address{};
  if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    ::inet_ntop(AF_INET, address.s6_addr + 12, text.data(), text.size());
    return text.data();
  }
  std::fill(address.s6_addr + 8, address.s6_addr + 16, uint8_t{0});
  ::inet_ntop(AF_INET6, &address, text.data(), text.size());
  return std::string(text.data()) + "/64";
}

}  // namespace fairway
