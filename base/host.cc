// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <unistd.h>

#include <random>

namespace fairway {

std::string HostName() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

Incarnation RandomIncarnation() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) value = uint64_t{device()} << 32 | device();
  return Incarnation(value);
}

}  // namespace fairway
