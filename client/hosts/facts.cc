// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/facts.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/ranges.h>

#include "identity/certificates.h"

namespace fairway {
namespace {

// "NAME MADE RELEASE SETTINGS", where - stands for what is not there.
absl::Status TakeDaemon(const std::string& value, Facts& out) {
  const std::vector<std::string> words = absl::StrSplit(value, ' ');
  if (words.size() != 4) return InvalidArgument("'daemon={}'", value);
  const auto text = [](const std::string& word) { return word == "-" ? "" : word; };
  out.daemons[words[0]] = {words[1] == "yes", text(words[2]), text(words[3])};
  return absl::OkStatus();
}

// "NAME SECONDS".
absl::Status TakeLimit(const std::string& value, Facts& out) {
  const size_t space = std::min(value.find(' '), value.size());
  const auto daemon = out.daemons.find(value.substr(0, space));
  int32_t seconds = 0;
  if (daemon == out.daemons.end() || !absl::SimpleAtoi(value.substr(space), &seconds) ||
      seconds < 0)
    return InvalidArgument("'limit={}'", value);
  daemon->second.limit = std::chrono::seconds(seconds);
  return absl::OkStatus();
}

// "NAME PEM", with '|' for each end of a line.
void TakeCertificate(const std::string& value, Facts& out) {
  const auto daemon = out.daemons.find(value.substr(0, value.find(' ')));
  if (daemon == out.daemons.end()) return;
  daemon->second.certificate = value.substr(daemon->first.size() + 1);
  std::ranges::replace(daemon->second.certificate, '|', '\n');
}

// What probe says, apart from the folder, which is looked at by itself: some of it goes into
// scripts, and all of it may be shown.
const std::set<std::string_view> kNames = {"user",       "system",          "machine", "lacks",
                                           "unwritable", "current",         "has",     "daemon",
                                           "hidden",     "controller_user", "limit"};
constexpr std::string_view kMarks = "'-', '_', '.', '+', '/', '@' and '\\'";

bool IsPlain(std::string_view value) {
  return value.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789 -_.+/@\\") == std::string_view::npos;
}

}  // namespace

bool DaemonFacts::HasExpired() const {
  const auto facts = FactsOf(certificate);
  return facts.ok() && facts->end <= std::chrono::system_clock::now();
}

bool DaemonFacts::HasJoined() const { return made && FactsOf(certificate).ok() && !HasExpired(); }

DaemonFacts Facts::Of(const std::string& daemon) const {
  const auto found = daemons.find(daemon);
  return found == daemons.end() ? DaemonFacts{} : found->second;
}

Said ParseSaid(std::string_view text) {
  Said out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      out.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return out;
}

bool Says(std::string_view text, std::string_view name) {
  const Said said = ParseSaid(text);
  return std::ranges::find(said, std::pair(std::string(name), std::string("yes"))) != said.end();
}

absl::StatusOr<Facts> ParseFacts(std::string_view text) {
  Facts out;
  for (const auto& [name, value] : ParseSaid(text)) {
    if (kNames.contains(name) && !IsPlain(value)) {
      return InvalidArgument("'{}={}' has other characters than letters, digits, ' ', {}", name,
                             value, kMarks);
    }
    if (name == "folder") out.folder = value;
    if (name == "user") out.user = value;
    if (name == "system") out.system = value;
    if (name == "machine") out.machine = value;
    if (name == "hidden") out.hidden = true;
    if (name == "lacks") out.lacks.push_back(value);
    if (name == "unwritable") out.unwritable = value;
    if (name == "current") out.current = value;
    if (name == "has") out.has.insert(value);
    if (name == "daemon") FAIRWAY_RETURN_IF_ERROR(TakeDaemon(value, out));
    if (name == "certificate") TakeCertificate(value, out);
    if (name == "limit") FAIRWAY_RETURN_IF_ERROR(TakeLimit(value, out));
    if (name == "controller_user") out.controller_user = value;
    if (name == "free_kb") {
      if (!absl::SimpleAtoi(value, &out.free_bytes)) return InvalidArgument("'free_kb={}'", value);
      out.free_bytes *= 1024;
    }
  }
  if (out.folder.empty() || out.machine.empty()) return InvalidArgument("it says no folder");
  // It goes into scripts.
  if (out.folder.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789-_./") != std::string::npos) {
    return InvalidArgument(
        "its folder would be '{}', and may have letters, digits, '-', '_' and '.' only: name "
        "another one: folder = \"...\"",
        out.folder);
  }
  return out;
}

absl::Status CheckFacts(const Facts& facts, const Package& package, int64_t bytes) {
  if (facts.system != "Linux" || facts.machine != package.machine) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the package is for Linux on {}, and this host has {} on {}: give it a package of "
                 "its own, or leave it out",
                 package.machine, facts.system, facts.machine);
  }
  if (!facts.lacks.empty()) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        "it lacks the programs {}: install them (Debian: coreutils, gzip, tar, util-linux)",
        fmt::join(facts.lacks, ", "));
  }
  if (!facts.unwritable.empty()) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "user {} can make nothing in {}: name another folder, another user "
                 "(ssh = \"USER@HOST\"), or sudo = true",
                 facts.user, facts.unwritable);
  }
  if (facts.hidden) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "services do not see home folders, such as {}: name another folder, /opt/fairway "
                 "say",
                 facts.folder);
  }
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kSpare = 16 * kMiB;  // for keys, tokens and logs
  if (bytes > 0 && facts.free_bytes < bytes + kSpare) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "{} has {} MiB free, and what is to be copied takes {}: make room there, or name "
                 "another folder",
                 facts.folder, facts.free_bytes / kMiB, (bytes + kSpare) / kMiB);
  }
  return absl::OkStatus();
}

}  // namespace fairway
