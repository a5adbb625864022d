// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/controller_host.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/host.h"

namespace fairway {
namespace {

using nlohmann::json;

constexpr int kClientPort = 29000;

// What is not there, or of another type, counts as empty: the host may have another version.
template <typename T>
T Value(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return T{};
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<T>() : T{};
  } else if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() && found->template get<T>();
  } else {
    return found->is_number_integer() ? found->template get<T>() : T{};
  }
}

}  // namespace

WorkerState ClusterState::Of(const std::string& worker) const {
  const auto found = workers.find(worker);
  return found == workers.end() ? WorkerState{} : found->second;
}

absl::StatusOr<ClusterState> ParseState(std::string_view text) {
  text.remove_prefix(std::min(text.find('{'), text.size()));  // a login may say something before
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("executors") || !parsed["executors"].is_array() ||
      !parsed.contains("islands") || !parsed["islands"].is_array())
    return InvalidArgument("the answer of `fairway status` is not understood");
  ClusterState out;
  out.version = Value<std::string>(parsed, "version");
  out.link = Value<std::string>(parsed, "link_address");
  // It goes into settings files.
  if (out.link.find_first_of("'\n") != std::string::npos || !SplitHostPort(out.link).ok())
    return InvalidArgument("the answer of `fairway status` has no link_address");
  std::set<std::string> up;
  for (const json& island : parsed["islands"]) {
    if (island.is_object() && Value<bool>(island, "up"))
      up.insert(Value<std::string>(island, "name"));
  }
  for (const json& executor : parsed["executors"]) {
    if (!executor.is_object()) continue;
    WorkerState state;
    state.island = Value<std::string>(executor, "island");
    state.up = Value<bool>(executor, "up");
    state.island_up = up.contains(state.island);
    state.incarnation = Value<uint64_t>(executor, "incarnation");
    state.last_error = Value<std::string>(executor, "last_error");
    if (executor.contains("devices") && executor["devices"].is_array())
      state.devices = static_cast<int>(executor["devices"].size());
    out.workers[Value<std::string>(executor, "worker")] = state;
  }
  return out;
}

std::string ClientAddress(const Daemon& controller) {
  int port = kClientPort;
  const auto found = controller.settings.find("port");
  if (found != controller.settings.end() && !absl::SimpleAtoi(found->second, &port))
    port = kClientPort;  // the controller refuses what is no port
  return HostPort(controller.address, port);
}

absl::StatusOr<ClusterState> AskState(Host& host, const Daemon& controller) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string said,
                           host.Call("ask_status " + ClientAddress(controller)));
  return ParseState(said);
}

absl::StatusOr<std::map<std::string, JoinToken>> ParseTokens(std::string_view text) {
  std::map<std::string, JoinToken> out;
  std::string worker;
  for (const auto line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0].starts_with("token=")) worker = words[0].substr(6);
    if (words[0].starts_with("fw_")) out[worker].token = words[0];
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "--ca-hash") out[worker].ca_hash = words[i + 1];
    }
  }
  for (const auto& [name, token] : out) {
    // They go into a script.
    if (name.empty() || token.token.empty() || !token.ca_hash.starts_with("sha256:") ||
        token.ca_hash.find_first_not_of("sha256:0123456789abcdef,") != std::string::npos)
      return InvalidArgument("the answer of `fairway token create` is not understood");
  }
  return out;
}

absl::StatusOr<std::map<std::string, JoinToken>> MakeTokens(
    Host& host, const Daemon& controller, const std::vector<std::string>& workers) {
  if (workers.empty()) return std::map<std::string, JoinToken>{};
  const auto said =
      host.Call(fmt::format("tokens {} {}", ClientAddress(controller), fmt::join(workers, " ")));
  if (!said.ok()) return Annotate(said.status(), "cannot make tokens for workers");
  return ParseTokens(*said);
}

}  // namespace fairway
