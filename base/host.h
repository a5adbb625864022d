// SPDX-License-Identifier: Apache-2.0
// What a process tells others about itself, where it is, and what it may take of its host.
#ifndef FAIRWAY_BASE_HOST_H_
#define FAIRWAY_BASE_HOST_H_

#include <cstdint>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/status.h"

namespace fairway {

// The name of this host, as in `hostname`.
std::string HostName();

// "host:port", or "[v6]:port" of an IPv6 address.
std::string HostPort(const std::string& host, int port);
// The reverse. INVALID_ARGUMENT names what is wrong.
absl::StatusOr<std::pair<std::string, int>> SplitHostPort(const std::string& host_port);

// The HostPort of a controller whose address a user gave as "host:port", "host" (port 29000), or
// "[v6]:port", each with or without "grpc://": what the Python package takes. INVALID_ARGUMENT: it
// is none of these.
absl::StatusOr<std::string> ControllerAddress(const std::string& text);

// Raises this process's limit of open files to its hard limit: each connection takes a descriptor,
// and the usual 1024 is for programs that call select(). Children inherit it.
void RaiseOpenFilesLimit();

// Bytes of memory that this process and those beside it may use: the host's, or less where a
// control group that it is in says so, as a container's limit does.
int64_t HostMemory(const std::string& groups = "/proc/self/cgroup",
                   const std::string& root = "/sys/fs/cgroup");

// The memory mappings of this process, and how many the kernel gives one (vm.max_map_count). 60,000
// of them take 15 to 20 ms to count.
struct MemoryMappings {
  int64_t used = 0;
  int64_t most = 0;  // 0: not known
};
MemoryMappings CountMemoryMappings();

// Random, from the operating system, and never 0.
Incarnation RandomIncarnation();

}  // namespace fairway

#endif  // FAIRWAY_BASE_HOST_H_
