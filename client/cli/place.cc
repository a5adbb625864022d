// SPDX-License-Identifier: Apache-2.0
#include "client/cli/place.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/config.h"
#include "base/host.h"
#include "base/settings_file.h"
#include "client/cli/child_output.h"
#include "client/cli/default_plugin.h"
#include "client/cli/process.h"

namespace fairway {
namespace {

constexpr char kWhat[] = "settings";
constexpr std::chrono::seconds kDaemonLimit{10};
constexpr std::chrono::seconds kAllLimit{20};

std::vector<std::string> PrintConfigOf(const std::string& table, const std::string& file) {
  const std::string programs = ProgramDirectory();
  std::vector<std::string> out = {table == "up" ? programs + "/fairway"
                                                : fmt::format("{}/fairway-{}", programs, table)};
  if (table == "up") out.emplace_back("up");
  out.push_back("--config=" + file);
  out.emplace_back("--print-config");
  return out;
}

// Of the lines "--name=value  (origin)".
std::map<std::string, std::string> ValuesIn(const std::string& printed) {
  std::map<std::string, std::string> out;
  std::istringstream in(printed);
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('='), origin = line.rfind("  (");
    if (!line.starts_with("--") || equals == std::string::npos || origin == std::string::npos ||
        origin < equals)
      continue;
    out[line.substr(2, equals - 2)] = line.substr(equals + 1, origin - equals - 1);
  }
  return out;
}

// As the file has them, without defaults.
std::map<std::string, std::string> ValuesOf(const std::vector<FileSetting>& settings) {
  std::map<std::string, std::string> out;
  for (const FileSetting& setting : settings)
    out[setting.name] = fmt::format("{}", fmt::join(setting.values, ","));
  return out;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

DaemonSettings ReadDaemon(const std::string& table, const std::vector<FileSetting>& settings,
                          const std::string& file, const Report& report) {
  DaemonSettings out{.table = table, .file = file, .values = ValuesOf(settings), .printed = {}};
  const std::string check = fmt::format("correct it, and try it: fairway config check {}", file);
  const auto ran = RunForOutput(PrintConfigOf(table, file), kDaemonLimit,
                                table == "up" ? Variables::kAll : Variables::kNotOfFairway);
  if (!ran.ok()) {
    report(Skip(kWhat, fmt::format("[{}] in {}: {}", table, file, Text(ran.status()))));
  } else if (ran->Succeeded()) {
    out.printed = ran->output;
    out.values = ValuesIn(ran->output);
    report(Pass(kWhat, fmt::format("[{}] in {} is taken by its program", table, file)));
  } else if (ran->late || !WIFEXITED(ran->wait_status)) {
    report(Fail(kWhat,
                fmt::format("[{}] in {}: its program {}", table, file,
                            ran->late ? "does not end" : DescribeExit(ran->wait_status)),
                check));
  } else {
    report(Fail(kWhat, FirstLine(ran->output), check));
  }
  return out;
}

bool IsThere(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0;
}

void TakeIfEmpty(std::string& value, const std::string& from) {
  if (value.empty()) value = from;
}

// A controller of this host is the one to ask, unless a flag names another.
void CompleteByController(const DaemonSettings& controller, PlaceFlags& flags) {
  TakeIfEmpty(flags.data_directory, controller.Value("data-directory"));
  if (flags.names_controller) return;
  std::string host = controller.Value("bind", "127.0.0.1");
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  const std::string port = controller.Value("port", "29000");
  if (port == "0" || port.find_first_not_of("0123456789") != std::string::npos || port.size() > 5)
    return;
  flags.reach.controller = HostPort(host, std::stoi(port));
  flags.names_controller = true;
  TakeIfEmpty(flags.reach.tls_ca, controller.Value("tls-ca"));
}

}  // namespace

std::string DaemonSettings::Value(const std::string& name, const std::string& otherwise) const {
  const auto found = values.find(name);
  return found == values.end() || found->second.empty() ? otherwise : found->second;
}

const DaemonSettings* Place::Of(std::string_view table) const {
  const auto found = std::ranges::find(daemons, table, &DaemonSettings::table);
  return found == daemons.end() ? nullptr : &*found;
}

void DeclarePlace(Config& config, PlaceFlags* flags) {
  DeclareReach(config, &flags->reach);
  config.Flag("config", &flags->configs,
              "Settings file of daemons of this host; may be given several times. Default: "
              "/etc/fairway/controller.toml and worker.toml, if they are there");
  config.Flag("data-directory", &flags->data_directory,
              "The controller's data directory; default: as its settings say");
  config.Flag("plugin", &flags->plugin,
              "Path of a PJRT plugin; default: as the settings of the worker say, or the one that "
              "`fairway up` takes");
  config.Variable("plugin", "FAIRWAY_PJRT_PLUGIN");
  config.Flag("plugin-kind", &flags->plugin_kind, "Which options --plugin has: cpu or cuda");
  config.Flag("python", &flags->python,
              "The Python whose packages (fairway, jax, jaxlib) are looked at; empty: none");
}

std::vector<std::string> SettingsFilesOf(const PlaceFlags& flags) {
  if (!flags.configs.empty()) return flags.configs;
  std::vector<std::string> out;
  for (const char* const file : {"/etc/fairway/controller.toml", "/etc/fairway/worker.toml"}) {
    if (IsThere(file)) out.emplace_back(file);
  }
  return out;
}

std::vector<DaemonSettings> ReadDaemons(const std::vector<std::string>& files,
                                        const Report& report) {
  std::vector<DaemonSettings> out;
  if (files.empty()) report(Skip(kWhat, "no --config, and none in /etc/fairway"));
  for (const std::string& file : files) {
    const auto tables = ReadSettings(file);
    if (!tables.ok()) {
      const std::string text = Text(tables.status());
      const char* const command =
          text.find("chmod o-w") != std::string::npos ? "chmod o-w" : "fairway config check";
      report(Fail(kWhat, text, fmt::format("{} {}", command, file)));
      continue;
    }
    if (tables->empty()) report(Pass(kWhat, fmt::format("{} has no settings", file)));
    for (const auto& [table, settings] : *tables)
      out.push_back(ReadDaemon(table, settings, file, report));
  }
  return out;
}

Place FindPlace(PlaceFlags flags, Checked* checked) {
  const auto daemons = std::make_shared<std::vector<DaemonSettings>>();
  const std::vector<std::string> files = SettingsFilesOf(flags);
  *checked = RunChecks({{kWhat, kAllLimit, [daemons, files](const Report& report) {
                           *daemons = ReadDaemons(files, report);
                         }}});
  Place out{.flags = std::move(flags), .daemons = {}};
  if (checked->all_ended) out.daemons = *daemons;
  if (const DaemonSettings* const controller = out.Of("controller"))
    CompleteByController(*controller, out.flags);
  for (const char* const table : {"worker", "up"}) {
    const DaemonSettings* const daemon = out.Of(table);
    if (daemon == nullptr || !out.flags.plugin.empty()) continue;
    out.flags.plugin = daemon->Value("plugin");
    out.flags.plugin_kind = daemon->Value("plugin-kind", "cpu");
  }
  const DaemonSettings* const worker = out.Of("worker");
  const bool needs_none = worker != nullptr && worker->Value("runtime", "pjrt") != "pjrt";
  if (out.flags.plugin.empty() && !needs_none) out.flags.plugin = DefaultPlugin();
  return out;
}

}  // namespace fairway
