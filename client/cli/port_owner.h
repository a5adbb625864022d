// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_PORT_OWNER_H_
#define FAIRWAY_CLIENT_CLI_PORT_OWNER_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/status.h"

namespace fairway {

struct PortOwner {
  pid_t pid = 0;        // 0: a process whose files this user may not see
  std::string program;  // the name of its file
};

// Who listens at a TCP port in this network namespace, so that nobody else can at the IP address
// `host`, as /proc tells; nullopt: nobody. INVALID_ARGUMENT: `host` is no IP address. UNAVAILABLE:
// /proc does not tell.
absl::StatusOr<std::optional<PortOwner>> FindPortOwner(const std::string& host, int port);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PORT_OWNER_H_
