// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/cluster_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

// As in base/settings_file.cc.
#undef NDEBUG
#define TOML_ASSERT(expression) (void)0
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "base/config.h"
#include "base/host.h"
#include "base/nearest.h"
#include "base/settings_file.h"
#include "identity/plain_text.h"

namespace fairway {
namespace {

size_t LineOf(const toml::node& node) { return node.source().begin.line; }

// Names go into paths, units and scripts.
bool IsName(std::string_view name) {
  constexpr size_t kLongest = 63;
  return !name.empty() && name.size() <= kLongest && name[0] != '-' && name[0] != '.' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789-_.") == std::string_view::npos;
}

bool IsSshName(std::string_view name) {
  return !name.empty() && name[0] != '-' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789-_.@:/%[]") == std::string_view::npos;
}

bool IsFolder(std::string_view folder) {
  const bool rooted = folder.starts_with("~/") ? folder.size() > 2 : folder.size() > 1;
  return rooted && (folder[0] == '/' || folder.starts_with("~/")) &&
         folder.find("..") == std::string_view::npos &&
         folder.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789-_./",
             1) == std::string_view::npos;
}

// Reads the values of one table, and knows which were asked for.
class Table {
 public:
  Table(const toml::table& table, std::string where)
      : table_(table), where_(std::move(where)), line_(LineOf(table)) {}

  absl::StatusOr<std::string> String(const std::string& name) {
    const toml::node* const node = Find(name);
    if (node == nullptr) return "";
    if (const auto* text = node->as_string()) return text->get();
    return InvalidArgument("{}: {}{} is no string", LineOf(*node), where_, name);
  }
  absl::StatusOr<bool> Bool(const std::string& name) {
    const toml::node* const node = Find(name);
    if (node == nullptr) return false;
    if (const auto* truth = node->as_boolean()) return truth->get();
    return InvalidArgument("{}: {}{} is neither true nor false", LineOf(*node), where_, name);
  }
  const toml::node* Find(const std::string& name) {
    known_.push_back(name);
    return table_.get(name);
  }
  // After all: the first name that nobody asked for.
  absl::Status Unknown() const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::ranges::find(known_, name) != known_.end()) continue;
      const std::string nearest = Nearest(name, known_);
      return InvalidArgument("{}: unknown name {}{}{}", LineOf(node), where_, name,
                             nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
    }
    return absl::OkStatus();
  }
  size_t line() const { return line_; }

 private:
  const toml::table& table_;
  const std::string where_;
  const size_t line_;
  std::vector<std::string> known_;
};

// What `fairway cluster` itself says to daemons.
bool IsOurs(std::string_view name) {
  static const std::set<std::string_view> ours = {
      "name",           "controller", "island",     "island-workers", "bind",
      "data-directory", "tls-ca",     "tls-ca-key", "tls-key",        "tls-certificate"};
  return ours.contains(name);
}

absl::Status TakeSettings(const toml::node* node, const std::string& where,
                          std::map<std::string, std::string>& out) {
  if (node == nullptr) return absl::OkStatus();
  const toml::table* const table = node->as_table();
  if (table == nullptr) return InvalidArgument("{}: {} is no table", LineOf(*node), where);
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    if (IsOurs(name)) {
      return InvalidArgument("{}: {}.{}: `fairway cluster` itself sets it: leave it out",
                             LineOf(value), where, name);
    }
    if (value.is_table()) {
      return InvalidArgument("{}: {}.{} is a table, which no setting is", LineOf(value), where,
                             name);
    }
    std::ostringstream text;
    value.visit([&](const auto& typed) { text << typed; });
    out[name] = text.str();
  }
  return absl::OkStatus();
}

// "admin@10.0.0.2" -> "10.0.0.2"; empty: the name in it is no address.
std::string AddressIn(std::string ssh) {
  if (ssh.starts_with("ssh://")) ssh.erase(0, 6);
  ssh.erase(0, ssh.rfind('@') + 1);
  return IsAddress(ssh) ? ssh : "";
}

absl::Status TakeHost(Table& table, const std::string& what, Daemon& out) {
  FAIRWAY_ASSIGN_OR_RETURN(out.ssh, table.String("ssh"));
  FAIRWAY_ASSIGN_OR_RETURN(out.address, table.String("address"));
  if (!IsSshName(out.ssh)) {
    return InvalidArgument("{}: {} lacks ssh = \"[USER@]HOST\", as `ssh` takes it{}", table.line(),
                           what, out.ssh.empty() ? "" : ", and not '" + out.ssh + "'");
  }
  if (out.address.empty()) out.address = AddressIn(out.ssh);
  if (!IsAddress(out.address)) {
    return InvalidArgument(
        "{}: {} lacks address = \"IP\", at which the other hosts reach it: '{}' is no IP address",
        table.line(), what, out.address.empty() ? out.ssh : out.address);
  }
  return absl::OkStatus();
}

absl::StatusOr<Daemon> ReadWorker(const toml::table& node) {
  Table table(node, "worker.");
  Daemon out;
  FAIRWAY_ASSIGN_OR_RETURN(out.name, table.String("name"));
  if (!IsName(out.name) || out.name == kController) {
    return InvalidArgument(
        "{}: a [[worker]] takes name = \"...\" of at most 63 letters, digits, '-', '_' and '.', "
        "and not '{}'",
        table.line(), out.name);
  }
  FAIRWAY_RETURN_IF_ERROR(TakeHost(table, fmt::format("worker {}", out.name), out));
  FAIRWAY_ASSIGN_OR_RETURN(out.island, table.String("island"));
  if (out.island.empty()) out.island = out.name;
  if (!IsName(out.island))
    return InvalidArgument("{}: island '{}' is no name", table.line(), out.island);
  FAIRWAY_RETURN_IF_ERROR(TakeSettings(table.Find("settings"), "settings", out.settings));
  FAIRWAY_RETURN_IF_ERROR(table.Unknown());
  return out;
}

absl::Status ReadWorkers(const toml::node* node, ClusterFile& out) {
  const toml::array* const array = node == nullptr ? nullptr : node->as_array();
  if (array == nullptr || array->empty())
    return InvalidArgument("expected a [[worker]] for each worker, and there is none");
  std::set<std::string> names;
  for (const toml::node& entry : *array) {
    const toml::table* const table = entry.as_table();
    if (table == nullptr)
      return InvalidArgument("{}: worker is no [[worker]] table", LineOf(entry));
    FAIRWAY_ASSIGN_OR_RETURN(Daemon worker, ReadWorker(*table));
    if (!names.insert(worker.name).second)
      return InvalidArgument("{}: two workers have the name {}", LineOf(entry), worker.name);
    out.workers.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

// Those of [settings.controller] and [settings.worker]; a worker's own count before the latter.
absl::Status ReadSettingsOfAll(const toml::node* node, ClusterFile& out) {
  if (node == nullptr) return absl::OkStatus();
  if (!node->is_table()) return InvalidArgument("{}: settings is no table", LineOf(*node));
  Table table(*node->as_table(), "settings.");
  FAIRWAY_RETURN_IF_ERROR(
      TakeSettings(table.Find("controller"), "settings.controller", out.controller.settings));
  std::map<std::string, std::string> shared;
  FAIRWAY_RETURN_IF_ERROR(TakeSettings(table.Find("worker"), "settings.worker", shared));
  for (Daemon& worker : out.workers) worker.settings.insert(shared.begin(), shared.end());
  return table.Unknown();
}

std::string Lines(const std::map<std::string, std::string>& settings) {
  std::string out;
  for (const auto& [name, value] : settings) out += fmt::format("{} = {}\n", name, value);
  return out;
}

}  // namespace

std::chrono::seconds EndLimit(const Daemon& daemon) {
  constexpr std::chrono::seconds kBesides{50};
  std::chrono::milliseconds drain{10000};  // a worker's default
  if (const auto given = daemon.settings.find("drain-limit"); given != daemon.settings.end()) {
    std::string_view text = given->second;  // as TOML: '5s', or 5
    if (text.size() > 1 && (text.front() == '\'' || text.front() == '"'))
      text = text.substr(1, text.size() - 2);
    drain = ParseDuration(text).value_or(drain);  // the daemon refuses what is none
  }
  return std::chrono::ceil<std::chrono::seconds>(drain) + kBesides;
}

int ClusterFile::WorkersOf(std::string_view island) const {
  return static_cast<int>(
      std::ranges::count_if(workers, [&](const Daemon& w) { return w.island == island; }));
}

std::vector<std::string> ClusterFile::Islands() const {
  std::vector<std::string> out;
  for (const Daemon& worker : workers) {
    if (std::ranges::find(out, worker.island) == out.end()) out.push_back(worker.island);
  }
  return out;
}

absl::StatusOr<ClusterFile> ParseCluster(std::string_view text, const std::string& directory) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return InvalidArgument("{}: {}", parsed.error().source().begin.line,
                           parsed.error().description());
  }
  Table table(parsed.table(), "");
  ClusterFile out;
  FAIRWAY_ASSIGN_OR_RETURN(out.package, table.String("package"));
  FAIRWAY_ASSIGN_OR_RETURN(out.plugin, table.String("plugin"));
  FAIRWAY_ASSIGN_OR_RETURN(out.folder, table.String("folder"));
  FAIRWAY_ASSIGN_OR_RETURN(out.ssh_config, table.String("ssh-config"));
  FAIRWAY_ASSIGN_OR_RETURN(out.sudo, table.Bool("sudo"));
  if (out.package.empty()) {
    return InvalidArgument(
        "it lacks package = \"fairway-VERSION-linux-x86_64.tar.gz\", the tarball of a release");
  }
  for (std::string* path : {&out.package, &out.plugin, &out.ssh_config}) {
    if (!path->empty()) *path = (std::filesystem::path(directory) / *path).string();
  }
  if (!out.folder.empty() && !IsFolder(out.folder)) {
    return InvalidArgument(
        "folder is '{}', and not a path on the hosts that begins with / or ~/ and has letters, "
        "digits, '-', '_' and '.' only",
        out.folder);
  }
  const toml::node* const controller = table.Find("controller");
  if (controller == nullptr || !controller->is_table())
    return InvalidArgument("it lacks the table [controller], with ssh = \"[USER@]HOST\"");
  Table host(*controller->as_table(), "controller.");
  out.controller.name = kController;
  FAIRWAY_RETURN_IF_ERROR(TakeHost(host, "[controller]", out.controller));
  FAIRWAY_RETURN_IF_ERROR(host.Unknown());
  FAIRWAY_RETURN_IF_ERROR(ReadWorkers(table.Find("worker"), out));
  FAIRWAY_RETURN_IF_ERROR(ReadSettingsOfAll(table.Find("settings"), out));
  FAIRWAY_RETURN_IF_ERROR(table.Unknown());
  return out;
}

absl::StatusOr<ClusterFile> ReadCluster(const std::string& path) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string text, ReadTrusted(path));
  absl::StatusOr<ClusterFile> out =
      ParseCluster(text, std::filesystem::absolute(path).parent_path().string());
  if (!out.ok()) return InvalidArgument("{}: {}", path, BoundedText(Text(out.status())));
  return out;
}

std::string ControllerSettings(const ClusterFile& cluster, std::string_view folder) {
  return fmt::format(
      "[controller]\nbind = '{0}'\ndata-directory = '{1}/controller/data'\n"
      "tls-ca = '{1}/controller/ca.pem'\ntls-ca-key = '{1}/controller/ca.key'\n"
      "tls-certificate = '{1}/controller/controller.pem'\n"
      "tls-key = '{1}/controller/controller.key'\n{2}",
      cluster.controller.address, folder, Lines(cluster.controller.settings));
}

std::string WorkerSettings(const ClusterFile& cluster, const Daemon& worker,
                           std::string_view folder, std::string_view link,
                           std::string_view plugin) {
  std::map<std::string, std::string> settings = worker.settings;
  settings.try_emplace("data-bind", fmt::format("'{}'", HostPort(worker.address, 0)));
  if (!plugin.empty()) settings.try_emplace("plugin", fmt::format("'{}'", plugin));
  return fmt::format(
      "[worker]\nname = '{0}'\nisland = '{1}'\nisland-workers = {2}\ncontroller = '{3}'\n"
      "tls-ca = '{4}/workers/{0}/ca.pem'\ntls-certificate = '{4}/workers/{0}/worker.pem'\n"
      "tls-key = '{4}/workers/{0}/worker.key'\n{5}",
      worker.name, worker.island, cluster.WorkersOf(worker.island), link, folder, Lines(settings));
}

}  // namespace fairway
