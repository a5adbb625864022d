// SPDX-License-Identifier: Apache-2.0
// The host of a process: its name, its addresses, and the memory and files that the process may
// use.
#ifndef FAIRWAY_BASE_HOST_H_
#define FAIRWAY_BASE_HOST_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/status.h"

namespace fairway {

// The name of this host, like `hostname`.
std::string HostName();

// "host:port", or "[v6]:port" for an IPv6 address.
std::string HostPort(const std::string& host, int port);
// The reverse. INVALID_ARGUMENT names the error.
absl::StatusOr<std::pair<std::string, int>> SplitHostPort(const std::string& host_port);

// Returns the HostPort of a controller whose address a user gave as "host:port", "host" (port
// 29000) or "[v6]:port", each with or without "grpc://", as in the Python package.
// INVALID_ARGUMENT: none of these.
absl::StatusOr<std::string> ControllerAddress(const std::string& text);

// Raises this process's limit of open files to its hard limit, because each connection takes a
// descriptor; the usual 1024 is for programs that call select(). Children inherit it.
void RaiseOpenFilesLimit();

// Returns the bytes of memory that this process and others beside it may use: the host's, or less
// if a control group around it has a lower limit, as containers have.
int64_t HostMemory(const std::string& groups = "/proc/self/cgroup",
                   const std::string& root = "/sys/fs/cgroup");

// The memory mappings of this process, and the kernel's limit for a process (vm.max_map_count).
// Counting 60,000 mappings takes 15 to 20 ms.
struct MemoryMappings {
  int64_t used = 0;
  int64_t most = 0;  // 0: not known
};
MemoryMappings CountMemoryMappings();

// What this process takes of its host.
struct ProcessUse {
  std::chrono::nanoseconds cpu{0};
  int64_t resident_bytes = 0;
};
ProcessUse UseOfThisProcess();

// Random, from the operating system; never 0.
Incarnation RandomIncarnation();

// 16 random bytes, which nobody can guess.
std::string RandomSecret();

}  // namespace fairway

#endif  // FAIRWAY_BASE_HOST_H_
