// SPDX-License-Identifier: Apache-2.0
// What the controller's host is asked for: the state of its cluster, and tokens for workers.
#ifndef FAIRWAY_CLIENT_HOSTS_CONTROLLER_HOST_H_
#define FAIRWAY_CLIENT_HOSTS_CONTROLLER_HOST_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/hosts/host.h"

namespace fairway {

// What the controller says of a worker.
struct WorkerState {
  std::string island;
  bool up = false;           // its executor is registered
  bool island_up = false;    // and all of its island are
  uint64_t incarnation = 0;  // of its latest executor
  int devices = 0;
  std::string last_error;
};

struct ClusterState {
  std::string version;
  std::string link;  // where it takes workers
  std::map<std::string, WorkerState> workers;

  // Of a worker that the controller does not know: as if it had never been up.
  WorkerState Of(const std::string& worker) const;
};

// `json`: of `fairway status -o json`. INVALID_ARGUMENT: it is not.
absl::StatusOr<ClusterState> ParseState(std::string_view json);

// HOST:PORT where the controller of the file takes clients.
std::string ClientAddress(const Daemon& controller);

// Asks the controller. ABORTED: it does not answer.
absl::StatusOr<ClusterState> AskState(Host& host, const Daemon& controller);

struct JoinToken {
  std::string ca_hash, token;
};
// `text`: what the function `tokens` of remote.sh says. Worker -> what it takes to join.
absl::StatusOr<std::map<std::string, JoinToken>> ParseTokens(std::string_view text);

// A token for each of these workers, that counts once, for ten minutes.
absl::StatusOr<std::map<std::string, JoinToken>> MakeTokens(
    Host& host, const Daemon& controller, const std::vector<std::string>& workers);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_CONTROLLER_HOST_H_
