// SPDX-License-Identifier: Apache-2.0
#include "client/cli/diagnose_parts.h"

#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/host.h"
#include "client/cli/admin_client.h"
#include "client/cli/child_output.h"
#include "client/cli/http_get.h"
#include "client/cli/log_files.h"
#include "client/cli/logs.h"
#include "client/cli/process.h"
#include "client/cli/state_root.h"
#include "client/cli/status_text.h"
#include "client/cpp/credentials.h"

extern char** environ;

namespace fairway {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// The doctor looks at all for a minute at most.
constexpr seconds kDoctorLimit{75}, kCommandLimit{30}, kLateBy{5};
constexpr size_t kLongestOutput = 2 * kLongestPart;
constexpr char kMostObjects[] = "--limit=1000", kMostLines[] = "--lines=500";

// With which `fairway doctor` says that something does not work.
constexpr int kExitFound = 1;

using Words = std::vector<std::string>;

// What the command prints. If it fails, its last line is the error. `also`: the exit code with
// which what it has printed counts, too; 0: there is none.
absl::StatusOr<std::string> OutputOf(const Words& command, seconds limit, int also) {
  FAIRWAY_ASSIGN_OR_RETURN(ChildOutput ran,
                           RunForOutput(command, limit, Variables::kAll, kLongestOutput));
  if (ran.cut) ran.output += "\n(it printed more, which is left out)\n";
  const bool exited = !ran.late && WIFEXITED(ran.wait_status);
  if (ran.Succeeded() || (also != 0 && exited && WEXITSTATUS(ran.wait_status) == also))
    return ran.output.empty() ? "(nothing)\n" : std::move(ran.output);
  while (!ran.output.empty() && ran.output.back() == '\n') ran.output.pop_back();
  return Error(absl::StatusCode::kUnavailable, "{}; it ended by {}",
               ran.output.substr(ran.output.rfind('\n') + 1),
               ran.late ? "its time limit" : DescribeExit(ran.wait_status));
}

Part OfCommand(std::string name, Words words, seconds limit = kCommandLimit, int also = 0) {
  std::string what = fmt::format("{}", fmt::join(words, " "));
  if (words[0] == "fairway") words[0] = ProgramDirectory() + "/fairway";
  return {std::move(name), std::move(what), limit + kLateBy,
          [words = std::move(words), limit, also] { return OutputOf(words, limit, also); }};
}

Words ReachWords(const Reach& reach) {
  Words out = {"--controller=" + reach.controller};
  if (!reach.tls_ca.empty()) out.push_back("--tls-ca=" + reach.tls_ca);
  if (!reach.token_file.empty()) out.push_back("--token-file=" + reach.token_file);
  return out;
}

Words Joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Words DoctorWords(const Place& place) {
  Words out = {"fairway",
               "doctor",
               "--data-directory=" + place.flags.data_directory,
               "--plugin=" + place.flags.plugin,
               "--plugin-kind=" + place.flags.plugin_kind,
               "--python=" + place.flags.python};
  for (const std::string& file : place.flags.configs) out.push_back("--config=" + file);
  if (!place.flags.names_controller) return out;
  return Joined(out, ReachWords(place.flags.reach));
}

absl::StatusOr<std::string> Versions() {
  utsname kernel{};
  ::uname(&kernel);
  std::string out =
      fmt::format("fairway {}\n{} {} {} {}\n{} processors, memory {}\n", FAIRWAY_VERSION,
                  kernel.sysname, kernel.release, kernel.version, kernel.machine,
                  ::sysconf(_SC_NPROCESSORS_ONLN), BytesText(HostMemory()));
  std::ifstream system("/etc/os-release");
  for (std::string line; std::getline(system, line);) {
    if (line.starts_with("PRETTY_NAME=")) out += line.substr(line.find('=') + 1) + "\n";
  }
  return out;
}

// The variables that have to do with Fairway and JAX.
absl::StatusOr<std::string> Environment() {
  std::vector<std::string> lines;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const char* const begin : {"FAIRWAY_", "JAX_", "XLA_", "IFRT_", "CUDA_", "NCCL_"}) {
      if (text.starts_with(begin)) lines.emplace_back(text);
    }
  }
  std::ranges::sort(lines);
  return lines.empty() ? "(no variable of Fairway, JAX, XLA or CUDA)\n"
                       : fmt::format("{}\n", fmt::join(lines, "\n"));
}

absl::StatusOr<std::string> Metrics(const Reach& reach) {
  FAIRWAY_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, AdminClient(reach).GetStatus());
  std::string at = status.http_address();
  if (at.empty()) return Error(absl::StatusCode::kUnavailable, "this controller has no HTTP port");
  if (const size_t scheme = at.find("://"); scheme != std::string::npos) at.erase(0, scheme + 3);
  FAIRWAY_ASSIGN_OR_RETURN(const auto http, SplitHostPort(at));
  FAIRWAY_ASSIGN_OR_RETURN(const std::string controller, ControllerAddress(reach.controller));
  FAIRWAY_ASSIGN_OR_RETURN(const auto place, SplitHostPort(controller));
  FAIRWAY_ASSIGN_OR_RETURN(const auto texts,
                           client::ReadClientTexts(reach.tls_ca, reach.token_file, true));
  return HttpGet({place.first, http.second, texts.authorities, texts.token}, "/metrics");
}

// The folder of the cluster that `fairway up` started last for this user.
absl::StatusOr<std::string> LogsOfUp() {
  std::error_code error;
  std::pair<fs::file_time_type, std::string> latest = {fs::file_time_type::min(), ""};
  for (fs::directory_iterator it(StateRoot(), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (it->is_directory(gone) && !it->is_symlink(gone))
      latest = std::max(latest, {it->last_write_time(gone), it->path().string()});
  }
  if (latest.second.empty())
    return Error(absl::StatusCode::kNotFound, "{} has no cluster of `fairway up`", StateRoot());
  return LogsIn(latest.second);
}

void AddSettings(const Place& place, std::vector<Part>& parts) {
  for (const DaemonSettings& daemon : place.daemons) {
    parts.push_back({fmt::format("settings-{}-{}.txt", parts.size(), daemon.table),
                     fmt::format("--print-config of [{}] in {}", daemon.table, daemon.file),
                     kLateBy, [printed = daemon.printed]() -> absl::StatusOr<std::string> {
                       if (!printed.empty()) return printed;
                       return Error(absl::StatusCode::kUnavailable,
                                    "its program does not take these settings: see doctor.txt");
                     }});
  }
}

void AddLogs(const Place& place, std::vector<Part>& parts) {
  const DaemonSettings* const controller = place.Of("controller");
  const std::string folder = controller != nullptr ? controller->Value("log-dir") : "";
  if (!folder.empty()) {
    parts.push_back({"logs-here.txt", "the latest files in " + folder, kCommandLimit,
                     [folder] { return LogsIn(folder); }});
  }
  parts.push_back({"logs-up.txt", "the latest cluster in " + StateRoot(), kCommandLimit, LogsOfUp});
  parts.push_back(OfCommand("logs-journal.txt",
                            {"/usr/bin/journalctl", "--no-pager", "-n", "1000", "-o", "short-iso",
                             "-u", "fairway-controller", "-u", "fairway-worker"}));
}

}  // namespace

std::vector<Part> PartsOf(const Place& place) {
  const Words reach = ReachWords(place.flags.reach);
  std::vector<Part> out;
  out.push_back({"versions.txt", "this program and its system", kLateBy, Versions});
  out.push_back({"environment.txt", "variables of this process", kLateBy, Environment});
  const Words doctor = DoctorWords(place);
  out.push_back(OfCommand("doctor.txt", doctor, kDoctorLimit, kExitFound));
  AddSettings(place, out);
  const auto ask = [&](std::string name, const Words& words, int also = 0) {
    out.push_back(
        OfCommand(std::move(name), Joined(Joined({"fairway"}, words), reach), kCommandLimit, also));
  };
  ask("status.txt", {"status", "-o", "wide"});
  ask("status.json", {"status", "-o", "json"});
  for (const char* const kind : {"sessions", "arrays", "programs", "transfers", "nodes"})
    ask(fmt::format("{}.json", kind), {"get", kind, "-o", "json", kMostObjects});
  for (const char* const kind : {"islands", "workers", "devices"})
    ask(fmt::format("{}.txt", kind), {"get", kind, "-o", "wide"});
  out.push_back({"metrics.txt", "/metrics of the controller", kCommandLimit,
                 [reach = place.flags.reach] { return Metrics(reach); }});
  ask("logs.txt", {"logs", kMostLines}, kExitSomeLogs);
  AddLogs(place, out);
  return out;
}

}  // namespace fairway
