// SPDX-License-Identifier: Apache-2.0
// The file of `fairway cluster`: TOML that says which hosts a cluster has, and what each runs.
//
//   package = "fairway-0.1.0-linux-x86_64.tar.gz"
//   plugin = "xla_cpu_pjrt.so"
//
//   [controller]
//   ssh = "10.0.0.1"
//
//   [[worker]]
//   name = "w0"
//   ssh = "admin@10.0.0.2"
//   island = "island0"
//   settings = { devices = 4 }
//
//   [settings.worker]
//   log-level = "debug"
#ifndef FAIRWAY_CLIENT_HOSTS_CLUSTER_FILE_H_
#define FAIRWAY_CLIENT_HOSTS_CLUSTER_FILE_H_

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fairway {

// A daemon that a host is to run.
struct Daemon {
  std::string name;     // of a worker; "controller" of the controller
  std::string ssh;      // its host, as ssh takes it
  std::string address;  // at which others reach it
  std::string island;   // of a worker
  // Names of its settings -> values as TOML. Those that the file gives.
  std::map<std::string, std::string> settings;
};

// How long the daemon may take to end: its --drain-limit, and a while for its processes.
std::chrono::seconds EndLimit(const Daemon& daemon);

inline constexpr std::string_view kController = "controller";

struct ClusterFile {
  std::string package;     // path of the tarball here
  std::string plugin;      // path of a PJRT plugin here, for all workers; empty: none is copied
  std::string folder;      // on the hosts; empty: /opt/fairway for root, else ~/.local/fairway
  std::string ssh_config;  // path of a configuration file for ssh; empty: its own
  bool sudo = false;       // what is done on hosts is done by `sudo -n`
  Daemon controller;
  std::vector<Daemon> workers;

  // How many workers have the island.
  int WorkersOf(std::string_view island) const;
  // In the order of the file, each once.
  std::vector<std::string> Islands() const;
};

// Reads the text of a file that lies in `directory`: paths in it are relative to that.
// INVALID_ARGUMENT: it is no TOML, lacks something, has something unknown, or a value that cannot
// be; the text begins with "LINE: " where there is one.
absl::StatusOr<ClusterFile> ParseCluster(std::string_view text, const std::string& directory);

// Reads the file at `path`. The errors of ParseCluster, and those of ReadTrusted
// (base/settings_file.h).
absl::StatusOr<ClusterFile> ReadCluster(const std::string& path);

// The settings file of the controller, whose files are in `folder`.
std::string ControllerSettings(const ClusterFile& cluster, std::string_view folder);
// That of a worker. `link`: where the controller takes workers. `plugin`: the path of the copied
// one; empty: there is none.
std::string WorkerSettings(const ClusterFile& cluster, const Daemon& worker,
                           std::string_view folder, std::string_view link, std::string_view plugin);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_CLUSTER_FILE_H_
