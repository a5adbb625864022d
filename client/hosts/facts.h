// SPDX-License-Identifier: Apache-2.0
// What a host says of itself (remote.sh, `probe`).
#ifndef FAIRWAY_CLIENT_HOSTS_FACTS_H_
#define FAIRWAY_CLIENT_HOSTS_FACTS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/hosts/local_file.h"

namespace fairway {

// Of one daemon that was set up on the host.
struct DaemonFacts {
  bool made = false;             // it has its certificate and its key
  std::string release;           // which it runs; empty: it does not run
  std::string settings;          // SHA-256 of its settings file, in hexadecimal digits; empty: none
  std::string certificate = {};  // of a worker, as PEM; empty: none
  std::chrono::seconds limit{};  // which it has to end, as it was started; 0: not known

  // Whether the worker has a certificate that is over by this host's clock.
  bool HasExpired() const;
  // Whether the worker has what it takes to be let in: a certificate that is not over, and its key.
  bool HasJoined() const;
};

struct Facts {
  std::string folder, user, system, machine;
  bool hidden = false;             // its services cannot see the folder
  std::vector<std::string> lacks;  // programs
  std::string unwritable;          // the folder in which nothing can be made; empty: all is well
  int64_t free_bytes = 0;
  std::string current;        // release; empty: none
  std::set<std::string> has;  // "releases/NAME", "plugins/NAME"
  std::map<std::string, DaemonFacts> daemons;
  std::string controller_user;  // whose the controller's files are; empty: there are none

  // Of a daemon that is not there: as if nothing had been made.
  DaemonFacts Of(const std::string& daemon) const;
};

// NAME=VALUE lines. Others are no fault: a login may say something of its own.
using Said = std::vector<std::pair<std::string, std::string>>;
Said ParseSaid(std::string_view text);
// Whether there is a line NAME=yes.
bool Says(std::string_view text, std::string_view name);

// INVALID_ARGUMENT: what came is no answer of `probe`.
absl::StatusOr<Facts> ParseFacts(std::string_view text);

// What stops these files from being copied and run there, with what to do; OK: nothing that can be
// seen. `bytes`: what they need on the disk.
absl::Status CheckFacts(const Facts& facts, const Package& package, int64_t bytes);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_FACTS_H_
