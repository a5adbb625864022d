// SPDX-License-Identifier: Apache-2.0
// Checks of the host, for `fairway doctor`. Each blocks, and changes nothing.
#ifndef FAIRWAY_CLIENT_CLI_HOST_CHECKS_H_
#define FAIRWAY_CLIENT_CLI_HOST_CHECKS_H_

#include <string>

#include "client/cli/finding.h"

namespace fairway {

// Open files, processes and threads, memory mappings, and memory, as this process has them. `cuda`:
// also what NCCL takes beside them, which are locked memory and /dev/shm.
void CheckLimits(bool cuda, const Report& report);

// What confines compile processes: Landlock and seccomp.
void CheckKernel(const Report& report);

// A folder that a daemon writes: that it is there and can be written, and how much room it has.
// `what`: "data directory". `secret`: it is its user's alone.
void CheckFolder(const std::string& what, const std::string& path, bool secret,
                 const Report& report);

// A port at which a daemon is to listen at the IP address `host`: free, `owner`'s already, or
// taken, and by whom. `flag`: its name.
void CheckPort(const std::string& flag, const std::string& host, int port, const std::string& owner,
               const Report& report);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_HOST_CHECKS_H_
