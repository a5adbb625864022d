// SPDX-License-Identifier: Apache-2.0
// Settings files: TOML 1.0 with one table for each program that reads settings.
//
//   [controller]
//   bind = "10.0.0.1"
//   executor-deadline = "2m"
//
//   [worker]
//   devices = 4
//   preload = ["/opt/a.so", "/opt/b.so"]
//
// The names are those of the program's flags. Their values are read as if a flag had them.
#ifndef FAIRWAY_BASE_SETTINGS_FILE_H_
#define FAIRWAY_BASE_SETTINGS_FILE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fairway {

struct FileSetting {
  std::string name;
  std::vector<std::string> values;  // one, unless it is an array
  bool array = false;
  size_t line = 0;  // in the file, from 1
};

// Names of tables, and what each has.
using SettingsTables = std::map<std::string, std::vector<FileSetting>>;

// The tables that a file may have.
inline constexpr std::string_view kSettingsTables[] = {"controller", "up", "worker"};

// Reads the text of a file. INVALID_ARGUMENT: it is no TOML, has something outside of the tables or
// a table that no program reads, or a value that no flag can have; the text begins with "LINE: ".
absl::StatusOr<SettingsTables> ParseSettings(std::string_view text);

// Returns all bytes of the file at `path`, which says what programs do. INVALID_ARGUMENT: it is no
// regular file that can be read, has over 1 MiB, or other users may write it (they could make the
// daemons load code).
absl::StatusOr<std::string> ReadTrusted(const std::string& path);

// Reads the file at `path`. The errors of ReadTrusted, and those of ParseSettings, which then begin
// with the path.
absl::StatusOr<SettingsTables> ReadSettings(const std::string& path);

}  // namespace fairway

#endif  // FAIRWAY_BASE_SETTINGS_FILE_H_
