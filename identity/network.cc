// SPDX-License-Identifier: Apache-2.0
#include "identity/network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace fairway {

std::string NetworkOf(std::string host) {
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
