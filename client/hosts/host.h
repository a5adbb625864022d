// SPDX-License-Identifier: Apache-2.0
// One host of a cluster, and what can be done there (remote.sh). Each function asks first, or the
// script does, and does nothing if it is done already. An error says what was tried.
#ifndef FAIRWAY_CLIENT_HOSTS_HOST_H_
#define FAIRWAY_CLIENT_HOSTS_HOST_H_

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/hosts/cluster_file.h"
#include "client/hosts/facts.h"
#include "client/hosts/local_file.h"
#include "client/hosts/ssh.h"

namespace fairway {

// Used by one thread at a time.
class Host {
 public:
  // `ssh` must outlive it. `folder`: as in the file.
  Host(Ssh& ssh, std::string name, bool sudo, std::string folder)
      : ssh_(ssh), name_(std::move(name)), sudo_(sudo), folder_(std::move(folder)) {}

  const std::string& name() const { return name_; }  // as ssh takes it
  // After Probe, as it was then.
  const Facts& facts() const { return facts_; }
  const std::string& folder() const { return facts_.folder; }

  absl::Status Probe();
  // Copies what is not there.
  absl::Status CopyRelease(const Package& package);
  absl::Status CopyPlugin(const Plugin& plugin);
  // Where the plugin was copied to.
  std::string PathOf(const Plugin& plugin) const;
  // Makes it the current release.
  absl::Status Switch(const std::string& release);

  absl::Status Init(const std::string& address);
  absl::Status WriteSettings(const std::string& daemon, const std::string& text);
  // Whether the release takes the settings. Changes nothing.
  absl::Status CheckSettings(const std::string& daemon, const std::string& text,
                             const std::string& release);
  // Replaces the certificate that Probe saw, if there was one. Returns false if there is another
  // one by now, so that nothing was done.
  absl::StatusOr<bool> Join(const std::string& worker, const std::string& controller,
                            const std::string& ca_hash, const std::string& token);

  // Returns whether it did not run before.
  absl::StatusOr<bool> StartDaemon(const Daemon& daemon, const std::string& release);
  // Returns whether it ran.
  absl::StatusOr<bool> StopDaemon(const Daemon& daemon);
  // Empty while the daemon may come up; else why not, as its log says.
  absl::StatusOr<std::string> WhyEnded(const std::string& daemon);

  // Removes releases and plugins that are used no longer; the release before stays, as does this
  // plugin.
  absl::Status Tidy(const Plugin& plugin);
  // Returns whether there was anything.
  absl::StatusOr<bool> Purge();

  // Calls a function of remote.sh. `variables`: lines of the shell before it.
  absl::StatusOr<std::string> Call(const std::string& call, const std::string& variables = "",
                                   std::chrono::seconds limit = std::chrono::minutes(3));

 private:
  // What is sent to `words` on the host's standard input, into `where`/.part-`part`.
  struct Source {
    std::string path, looks;
  };
  absl::Status Copy(const std::string& where, const std::string& words, const std::string& part,
                    const Source& source, const std::string& finish);

  Ssh& ssh_;
  const std::string name_;
  const bool sudo_;
  std::string folder_;
  Facts facts_;
};

// How long a stop by ssh may take: the time that the daemon has to end, as it was started or as the
// file says, whichever is more, and a while for the host's lock and to kill it.
std::chrono::seconds StopLimit(const DaemonFacts& running, const Daemon& daemon);

// A word that the shell takes as it is.
std::string Quoted(std::string_view text);

// Why a daemon ended, from the last lines of its log: the last error, or the last line.
std::string ReasonIn(std::string_view log);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_HOST_H_
