// SPDX-License-Identifier: Apache-2.0
// What of a cluster is on this host, for `fairway doctor`: by its flags and by settings files.
#ifndef FAIRWAY_CLIENT_CLI_PLACE_H_
#define FAIRWAY_CLIENT_CLI_PLACE_H_

#include <map>
#include <string>
#include <vector>

#include "client/cli/finding.h"
#include "client/cli/reach.h"

namespace fairway {

// What flags say.
struct PlaceFlags {
  Reach reach;
  bool names_controller = false;     // --controller is not the default
  std::vector<std::string> configs;  // settings files of daemons
  std::string data_directory;
  std::string plugin;
  std::string plugin_kind = "cpu";
  std::string python = "python3";
};
// Declares the flags of `fairway doctor` but for --output.
void DeclarePlace(Config& config, PlaceFlags* flags);

// The settings of a daemon of this host, as it would have them at its start.
struct DaemonSettings {
  std::string table;  // "controller", "worker" or "up"
  std::string file;
  std::map<std::string, std::string> values;  // by flag; with defaults, if the daemon takes them
  std::string printed;                        // what its --print-config prints
  std::string Value(const std::string& name, const std::string& otherwise = "") const;
};

struct Place {
  PlaceFlags flags;
  std::vector<DaemonSettings> daemons;
  // The first one of that table; nullptr: this host has none.
  const DaemonSettings* Of(std::string_view table) const;
};

// The settings files that --config names; if it names none, those of the Debian package that are
// there.
std::vector<std::string> SettingsFilesOf(const PlaceFlags& flags);

// Reads the files, and reports of each whether its daemons take it. Blocks.
std::vector<DaemonSettings> ReadDaemons(const std::vector<std::string>& files,
                                        const Report& report);

// Reads the settings, then completes the flags by them: where the controller is, its CA, its data
// directory, the plugin. `findings` gets what was found.
Place FindPlace(PlaceFlags flags, Checked* checked);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PLACE_H_
