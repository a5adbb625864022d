// SPDX-License-Identifier: Apache-2.0
// What a process tells others about itself, and where it is.
#ifndef FAIRWAY_BASE_HOST_H_
#define FAIRWAY_BASE_HOST_H_

#include <string>

#include "base/ids.h"

namespace fairway {

// The name of this host, as in `hostname`.
std::string HostName();

// "host:port", or "[v6]:port" of an IPv6 address.
std::string HostPort(const std::string& host, int port);

// Random, from the operating system, and never 0.
Incarnation RandomIncarnation();

}  // namespace fairway

#endif  // FAIRWAY_BASE_HOST_H_
