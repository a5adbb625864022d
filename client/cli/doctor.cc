// SPDX-License-Identifier: Apache-2.0
#include "client/cli/doctor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/config.h"
#include "client/cli/controller_checks.h"
#include "client/cli/host_checks.h"
#include "client/cli/kinds.h"
#include "client/cli/software_checks.h"
#include "identity/tls_identity.h"

namespace fairway {
namespace {

using std::chrono::seconds;

constexpr seconds kFilesLimit{10}, kControllerLimit{40}, kSoftwareLimit{20};
constexpr seconds kPluginLimit{30}, kPluginCheckLimit{35};
constexpr std::chrono::milliseconds kConnectTimeout{5000};
const std::vector<std::string> kOutputs = {"text", "json"};

int Number(const std::string& text, int otherwise) {
  int out = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), out);
  return wrong == std::errc() && end == text.data() + text.size() ? out : otherwise;
}

void CheckPorts(const DaemonSettings& controller, const Report& report) {
  const std::string host = controller.Value("bind", "127.0.0.1");
  for (const auto& [flag, usual] :
       {std::pair("port", 29000), {"http-port", 29001}, {"link-port", 29002}, {"data-port", 29003}})
    CheckPort(flag, host, Number(controller.Value(flag), usual), "fairway-controller", report);
}

// The folders of a controller. The data directory may be given without its settings.
void CheckFolders(const Place& place, const Report& report) {
  const std::string& data = place.flags.data_directory;
  if (data.empty()) {
    report(Skip("data directory", "no settings of a controller name one"));
  } else {
    CheckFolder("data directory", data, /*secret=*/true, report);
  }
  const DaemonSettings* const controller = place.Of("controller");
  if (controller == nullptr) return;
  CheckFolder("spool directory", controller->Value("spool-directory", "/tmp"), false, report);
  const std::string logs = controller->Value("log-dir");
  if (!logs.empty()) CheckFolder("log directory", logs, false, report);
}

// The daemons' own certificates. Whether they can be used is their settings' check.
void CheckOwnCertificates(const Place& place, const Report& report) {
  for (const DaemonSettings& daemon : place.daemons) {
    const std::string path = daemon.Value("tls-certificate");
    if (path.empty() || daemon.printed.empty()) continue;
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const std::string soon = ExpiryWarning(text.str(), std::chrono::system_clock::now());
    const std::string what = fmt::format("certificate of this {}", daemon.table);
    if (soon.empty()) {
      report(Pass(what, path + " does not expire soon"));
    } else {
      report(Warn(what, fmt::format("{} {}", path, soon),
                  daemon.table == "controller"
                      ? "fairway issue --controller --from DIRECTORY"
                      : "it renews itself while it runs; if it does, see why not: journalctl -u "
                        "fairway-worker"));
    }
  }
}

void CheckLink(const DaemonSettings& worker, const Report& report) {
  CheckAddress("controller's link", worker.Value("controller", "127.0.0.1:29002"),
               "start the controller there, name its workers' port by --controller of the worker "
               "(29002 by default), or let it through the firewall",
               kConnectTimeout, report);
}

// A worker's host has no use for the address at which a client looks by default.
bool HasController(const Place& place) {
  return place.flags.names_controller || place.Of("worker") == nullptr;
}

PluginPlace PluginOf(const Place& place) {
  PluginPlace out{
      .path = place.flags.plugin, .kind = place.flags.plugin_kind, .preload = {}, .of_daemons = {}};
  // Not the controller's: its user reads the CA's key, and the plugin does what its user may.
  if (const DaemonSettings* const worker = place.Of("worker")) {
    for (const std::string& file : {worker->Value("tls-key"), worker->file})
      if (!file.empty()) out.of_daemons.push_back(file);
  }
  for (const DaemonSettings& daemon : place.daemons) {
    if (daemon.table == "controller" || daemon.Value("plugin") != out.path) continue;
    out.devices = Number(daemon.Value("devices"), 1);
    out.preload = daemon.Value("preload");
    break;
  }
  return out;
}

}  // namespace

void Examine(const Place& place, Checked* checked) {
  std::vector<Check> checks;
  if (HasController(place)) {
    checks.push_back({"controller", kControllerLimit, [reach = place.flags.reach](auto& report) {
                        CheckController(reach, report);
                      }});
  }
  if (const DaemonSettings* const worker = place.Of("worker")) {
    checks.push_back({"controller's link", kControllerLimit,
                      [worker = *worker](auto& report) { CheckLink(worker, report); }});
  }
  checks.push_back({"versions of the daemons", kSoftwareLimit, CheckDaemonVersions});
  checks.push_back({"Python package", kSoftwareLimit,
                    [python = place.flags.python](auto& report) { CheckPython(python, report); }});
  checks.push_back({"plugin", kPluginCheckLimit, [plugin = PluginOf(place)](auto& report) {
                      CheckPlugin(plugin, kPluginLimit, report);
                    }});
  if (const DaemonSettings* const controller = place.Of("controller")) {
    checks.push_back({"ports", kFilesLimit, [controller = *controller](auto& report) {
                        CheckPorts(controller, report);
                      }});
  }
  checks.push_back(
      {"folders", kFilesLimit, [place](auto& report) { CheckFolders(place, report); }});
  checks.push_back({"certificates of daemons", kFilesLimit,
                    [place](auto& report) { CheckOwnCertificates(place, report); }});
  const bool cuda = !place.flags.plugin.empty() && place.flags.plugin_kind == "cuda";
  checks.push_back({"limits", kFilesLimit, [cuda](auto& report) { CheckLimits(cuda, report); }});
  checks.push_back({"kernel", kFilesLimit, CheckKernel});
  Checked found = RunChecks(std::move(checks));
  checked->all_ended = checked->all_ended && found.all_ended;
  std::ranges::move(found.findings, std::back_inserter(checked->findings));
}

int RunDoctor(int argc, const char* const* argv) {
  PlaceFlags flags;
  std::string output = "text";
  Config config("fairway doctor",
                "Looks for what commonly keeps a cluster from working: the controller's address, "
                "TLS, tokens, clocks, versions, ports, plugins, disks, limits. It says PASS, WARN, "
                "FAIL or SKIP for each, and how to mend it. It changes nothing, and may run on a "
                "client's, a controller's or a worker's host. It ends with 1 if anything fails.");
  DeclarePlace(config, &flags);
  config.Flag("output", &output, "text or json");
  config.ShortName("output", 'o');
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (std::ranges::find(kOutputs, output) == kOutputs.end()) {
    fmt::print(stderr, "fairway doctor: {}\n", NoSuch("--output", output, kOutputs));
    return kExitUsage;
  }
  flags.names_controller = config.source("controller") != Config::Source::kDefault;
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);  // a plugin that crashes leaves no file
  Checked checked;
  Examine(FindPlace(std::move(flags), &checked), &checked);
  fmt::print("{}", output == "json" ? JsonText(FindingsJson(checked.findings))
                                    : FindingsText(checked.findings));
  std::fflush(stdout);
  const int code = AnyFails(checked.findings) ? 1 : 0;
  if (!checked.all_ended) ::_exit(code);
  return code;
}

}  // namespace fairway
