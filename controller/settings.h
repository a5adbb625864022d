// SPDX-License-Identifier: Apache-2.0
// The settings of fairway-controller (docs/settings.md).
#ifndef FAIRWAY_CONTROLLER_SETTINGS_H_
#define FAIRWAY_CONTROLLER_SETTINGS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/config.h"
#include "controller/cluster/options.h"
#include "identity/tls_flags.h"

namespace fairway {

inline constexpr char kControllerProgram[] = "fairway-controller";

// What each of them means is in settings.cc, where `--help` and docs/settings.md have it from.
struct ControllerFlags {
  std::string bind = "127.0.0.1";
  int port = 29000;
  int http_port = 29001;
  std::vector<std::string> http_names;
  int link_port = 29002;
  int data_port = 29003;
  std::chrono::milliseconds executor_deadline{60000};
  std::chrono::milliseconds link_grace{3000};
  int relay_fan_out = 0;
  std::chrono::milliseconds island_timeout{60000};
  std::chrono::milliseconds forget_after{3600000};
  std::chrono::milliseconds callback_limit{60000};
  int launches_ahead = ClusterOptions().max_gangs_per_device;
  int64_t transit_memory = int64_t{768} << 20;
  int64_t record_memory = int64_t{768} << 20;
  std::string spool_directory = "/tmp";
  std::string log_level = "info";
  std::string log_dir;
  std::string data_directory;
  std::string tls_ca_key;
  std::chrono::milliseconds worker_certificate_life{std::chrono::hours(30 * 24)};
  TlsFiles tls;
  int life_fd = -1;
  int notify_fd = -1;
};

// The settings as they are, and how they are read again.
struct ControllerSettings {
  ControllerFlags flags;
  std::vector<std::string> args;
  std::map<std::string, std::string> values;  // Config::Values
};

// Reads the settings that `settings->args`, the environment and the file have. `reload`: the files
// that they name have been read, and are not tried again.
Config::Outcome ReadSettings(ControllerSettings* settings, bool reload = false);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SETTINGS_H_
