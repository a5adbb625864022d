// SPDX-License-Identifier: Apache-2.0
// All hosts of a cluster's file, and what is known of each.
#ifndef FAIRWAY_CLIENT_HOSTS_FLEET_H_
#define FAIRWAY_CLIENT_HOSTS_FLEET_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "client/hosts/cluster_file.h"
#include "client/hosts/host.h"
#include "client/hosts/ssh.h"

namespace fairway {

// A host, the daemons that it is to run, and what became of it in this command.
struct Site {
  Host host;
  std::vector<Daemon> daemons = {};
  std::vector<std::string> done = {};  // "installed 0.1.0-1a2b3c4d5e6f"
  std::string note = {};               // what the user should know besides
  absl::Status failed = {};            // once: the host is left alone from then on

  bool Has(std::string_view daemon) const;
  // "10.0.0.2 (w0, w1)"
  std::string Name() const;
};

class Fleet {
 public:
  // `command`: how the user typed it, "fairway cluster up"; it begins what is printed of failures.
  // The errors of Ssh::Make.
  static absl::StatusOr<std::unique_ptr<Fleet>> Make(std::string command, ClusterFile file);

  const ClusterFile& file() const { return file_; }
  // The site of the controller is one of them.
  std::vector<std::unique_ptr<Site>>& sites() { return sites_; }
  Site& controller() { return *sites_.front(); }
  Site& Of(std::string_view worker);

  // Calls `work` for each site that has not failed, up to 16 at a time. An error is printed at
  // once, and kept in the site.
  void ForEach(const std::function<absl::Status(Site&)>& work);
  // The same for these.
  void ForEach(const std::vector<Site*>& sites, const std::function<absl::Status(Site&)>& work);
  void Fail(Site& site, absl::Status why);
  // One line for each site that has not failed: what was done, or "no change".
  void PrintDone();
  int Failed() const;

 private:
  Fleet(std::string command, ClusterFile file, std::unique_ptr<Ssh> ssh);

  const std::string command_;
  const ClusterFile file_;
  std::unique_ptr<Ssh> ssh_;
  std::vector<std::unique_ptr<Site>> sites_;
  std::mutex printing_;
};

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_FLEET_H_
