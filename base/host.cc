// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <unistd.h>

#include <random>

#include <fmt/format.h>

namespace fairway {

std::string HostName() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string HostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Incarnation RandomIncarnation() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) value = uint64_t{device()} << 32 | device();
  return Incarnation(value);
}

}  // namespace fairway
