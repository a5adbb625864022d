// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/host.h"

#include <algorithm>

#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "base/host.h"
#include "client/hosts/remote.h"

namespace fairway {
namespace {

constexpr std::chrono::hours kCopyLimit{1};

// A name for what is being copied, which nobody else chooses.
std::string PartName() { return fmt::format("{:016x}", RandomIncarnation()); }

}  // namespace

std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += R"('\'')" : out += c;
  return out + "'";
}

std::string ReasonIn(std::string_view log) {
  std::string last = "its log is empty";
  for (const auto view : absl::StrSplit(absl::string_view(log.data(), log.size()), '\n')) {
    const std::string line(view);
    if (line.empty() || line == "ended=yes") continue;
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    const bool is_line = parsed.is_object() && parsed.contains("msg") && parsed["msg"].is_string();
    last = LastLine(is_line ? parsed["msg"].get<std::string>() : line);
    if (is_line && parsed.contains("level") && parsed["level"] == "error") break;
  }
  return last;
}

std::chrono::seconds StopLimit(const DaemonFacts& running, const Daemon& daemon) {
  return std::max(running.limit, EndLimit(daemon)) + std::chrono::minutes(3);
}

absl::StatusOr<std::string> Host::Call(const std::string& call, const std::string& variables,
                                       std::chrono::seconds limit) {
  // The call is in braces, so that it is not begun if the connection ends within it. It reads
  // nothing, since what it would read is this script.
  const Ssh::Input script{.text = fmt::format("folder={}\n{}{}\n{{ {} </dev/null\n}}\n",
                                              Quoted(folder_), variables, kRemoteScript, call)};
  return ssh_.Run(name_, sudo_ ? "sudo -n sh -s" : "sh -s", script, limit);
}

absl::Status Host::Probe() {
  const auto said = Call("probe");
  if (!said.ok()) {
    if (absl::IsAborted(said.status()) && sudo_ &&
        Text(said.status()).find("sudo:") != std::string::npos) {
      return Error(absl::StatusCode::kPermissionDenied,
                   "sudo does not let this user in without a password ({}): give it a rule with "
                   "NOPASSWD there, or leave sudo = true out",
                   Text(said.status()));
    }
    return absl::IsAborted(said.status()) ? Annotate(said.status(), "cannot look at it")
                                          : said.status();
  }
  auto facts = ParseFacts(*said);
  if (!facts.ok()) return Annotate(facts.status(), "its answer is not understood");
  facts_ = *std::move(facts);
  folder_ = facts_.folder;
  return absl::OkStatus();
}

absl::Status Host::Copy(const std::string& where, const std::string& words, const std::string& part,
                        const Source& source, const std::string& finish) {
  FAIRWAY_RETURN_IF_ERROR(Call(fmt::format("prepare {} {}", where, part)).status());
  absl::Status copied =
      ssh_.Run(name_, (sudo_ ? "sudo -n " : "") + words, {.path = source.path}, kCopyLimit)
          .status();
  if (copied.ok()) copied = CheckUnchanged(source.path, source.looks);
  if (!copied.ok()) {
    (void)Call(fmt::format("forget_part {} {}", where, part));  // else a later copy does it
    return copied;
  }
  return Call(finish).status();
}

absl::Status Host::CopyRelease(const Package& package) {
  if (facts_.has.contains("releases/" + package.release)) return absl::OkStatus();
  const std::string part = PartName();
  facts_.has.insert("releases/" + package.release);  // if it fails, the host is left alone
  return Annotate(
      Copy("releases",
           fmt::format("tar -xzf - --strip-components=1 --no-same-owner -C {}/releases/.part-{}",
                       folder(), part),
           part, {package.path, package.looks},
           fmt::format("finish_release {} {}", part, package.release)),
      fmt::format("cannot install {}", package.release));
}

absl::Status Host::CopyPlugin(const Plugin& plugin) {
  if (plugin.digits.empty() || facts_.has.contains("plugins/" + plugin.digits))
    return absl::OkStatus();
  const std::string part = PartName();
  return Annotate(
      Copy("plugins",
           fmt::format("dd of={}/plugins/.part-{}/plugin.so bs=1M status=none", folder(), part),
           part, {plugin.path, plugin.looks},
           fmt::format("finish_plugin {} {}", part, plugin.digits)),
      fmt::format("cannot copy the plugin {}", plugin.path));
}

std::string Host::PathOf(const Plugin& plugin) const {
  return plugin.digits.empty() ? ""
                               : fmt::format("{}/plugins/{}/plugin.so", folder(), plugin.digits);
}

absl::Status Host::Switch(const std::string& release) {
  if (facts_.current == release) return absl::OkStatus();
  FAIRWAY_RETURN_IF_ERROR(Annotate(Call("switch " + release).status(),
                                   fmt::format("cannot make {} the current release", release)));
  facts_.current = release;
  return absl::OkStatus();
}

absl::Status Host::Init(const std::string& address) {
  return Annotate(Call("init " + address).status(), "cannot make the cluster's CA");
}

absl::Status Host::WriteSettings(const std::string& daemon, const std::string& text) {
  return Annotate(Call("settings " + daemon, fmt::format("text={}\n", Quoted(text))).status(),
                  fmt::format("the settings of {}", daemon));
}

absl::Status Host::CheckSettings(const std::string& daemon, const std::string& text,
                                 const std::string& release) {
  return Annotate(Call(fmt::format("check_settings {} {}", daemon, release),
                       fmt::format("text={}\n", Quoted(text)))
                      .status(),
                  fmt::format("{} would not take the settings of {}", release, daemon));
}

absl::StatusOr<bool> Host::Join(const std::string& worker, const std::string& controller,
                                const std::string& ca_hash, const std::string& token) {
  const auto said = Call(fmt::format("join {} {} {} {}", worker, controller, ca_hash,
                                     Sha256(facts_.Of(worker).certificate)),
                         fmt::format("token={}\n", Quoted(token)));
  if (!said.ok()) return Annotate(said.status(), "cannot join");
  return Says(*said, "joined");
}

absl::StatusOr<bool> Host::StartDaemon(const Daemon& daemon, const std::string& release) {
  const std::string_view program =
      daemon.name == kController ? "fairway-controller" : "fairway-worker";
  const auto said = Call(
      fmt::format("start {} {} {} {}", daemon.name, program, release, EndLimit(daemon).count()));
  if (!said.ok()) return Annotate(said.status(), fmt::format("cannot start {}", daemon.name));
  return Says(*said, "started");
}

absl::StatusOr<bool> Host::StopDaemon(const Daemon& daemon) {
  const auto said = Call("stop " + daemon.name, "", StopLimit(facts_.Of(daemon.name), daemon));
  if (!said.ok()) return Annotate(said.status(), fmt::format("cannot end {}", daemon.name));
  // It runs no more, whatever was known of it.
  if (const auto known = facts_.daemons.find(daemon.name); known != facts_.daemons.end())
    known->second.release.clear();
  return Says(*said, "stopped");
}

absl::StatusOr<std::string> Host::WhyEnded(const std::string& daemon) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string said, Call("ended " + daemon));
  return Says(said, "ended") ? ReasonIn(said) : "";
}

absl::Status Host::Tidy(const Plugin& plugin) {
  return Annotate(Call("tidy " + Quoted(plugin.digits)).status(), "cannot remove old releases");
}

absl::StatusOr<bool> Host::Purge() {
  const auto said = Call("purge");
  if (!said.ok()) return Annotate(said.status(), fmt::format("cannot remove {}", folder()));
  return Says(*said, "removed");
}

}  // namespace fairway
