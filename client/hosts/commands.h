// SPDX-License-Identifier: Apache-2.0
// `fairway cluster`: a cluster on several hosts, by ssh.
#ifndef FAIRWAY_CLIENT_HOSTS_COMMANDS_H_
#define FAIRWAY_CLIENT_HOSTS_COMMANDS_H_

namespace fairway {

// argv[0] is "cluster", argv[1] the verb. Returns the exit code: 1 if a host failed.
int RunCluster(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_COMMANDS_H_
