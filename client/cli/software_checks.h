// SPDX-License-Identifier: Apache-2.0
// Checks of programs, packages and plugins, for `fairway doctor`. Each starts disposable processes,
// and blocks.
#ifndef FAIRWAY_CLIENT_CLI_SOFTWARE_CHECKS_H_
#define FAIRWAY_CLIENT_CLI_SOFTWARE_CHECKS_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/finding.h"
#include "client/cli/process.h"

namespace fairway {

// The daemons beside this program are of its version.
void CheckDaemonVersions(const Report& report);

// The packages fairway, jax and jaxlib of a Python fit each other and this program. `python`: a
// path, or a name in PATH.
void CheckPython(const std::string& python, const Report& report);

struct PluginPlace {
  std::string path;
  std::string kind = "cpu";
  int devices = 1;
  std::string preload;  // with commas between
  // Where the worker's user is seen, most telling first: its key, its settings file.
  std::vector<std::string> of_daemons;
};

// The user that opens a plugin for a process of user `self`. Only root has a choice: it takes the
// daemons' user, since a plugin does what it likes with what its user may do. nullopt: `self`.
std::optional<ChildUser> UserForPlugin(uid_t self, const std::vector<std::string>& of_daemons);

// The plugin is a library for this processor, and a worker's process can load it and finds devices.
// That process may crash, hang, or write anything.
void CheckPlugin(const PluginPlace& plugin, std::chrono::milliseconds limit, const Report& report);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_SOFTWARE_CHECKS_H_
