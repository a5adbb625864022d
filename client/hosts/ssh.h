// SPDX-License-Identifier: Apache-2.0
// Commands on other hosts, by the system's `ssh`, which decides how a host is reached, who it is
// and who asks: its configuration, its known hosts, its agent. It never asks the user anything.
#ifndef FAIRWAY_CLIENT_HOSTS_SSH_H_
#define FAIRWAY_CLIENT_HOSTS_SSH_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fairway {

// All functions may be called from several threads at once.
class Ssh {
 public:
  // `config`: a configuration file for ssh; empty: the user's and the system's. NOT_FOUND: there is
  // no ssh; UNAVAILABLE: no directory for its sockets can be made.
  static absl::StatusOr<std::unique_ptr<Ssh>> Make(std::string config);
  // Closes the connections, which commands to the same host share.
  ~Ssh();
  Ssh(const Ssh&) = delete;
  Ssh& operator=(const Ssh&) = delete;

  // What the command reads: a text, or the file at `path`.
  struct Input {
    std::string text = {};
    std::string path = {};
  };

  // Runs `words`, which the other host's shell splits at spaces, and returns their standard output
  // when they end. UNAVAILABLE: the host cannot be reached, or does not let us in, with what to do;
  // DEADLINE_EXCEEDED: `limit` has passed; ABORTED: the command failed, and the
  // text is the last line that it wrote to standard error; RESOURCE_EXHAUSTED: it writes too much.
  absl::StatusOr<std::string> Run(const std::string& host, const std::string& words,
                                  const Input& input, std::chrono::seconds limit);

 private:
  Ssh(std::string program, std::string config, std::string sockets);
  std::vector<std::string> Command(const std::string& host) const;

  const std::string program_, config_, sockets_;
  std::mutex mutex_;
  std::set<std::string> used_;  // hosts that there may be a connection to
};

// What is to be said of an ssh that ended with code 255 after writing `text` to standard error.
std::string ExplainSsh(std::string_view host, std::string_view text);

// The last line of `text` that has something in it; "it said nothing" if none has.
std::string LastLine(std::string_view text);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_SSH_H_
