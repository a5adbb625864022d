// SPDX-License-Identifier: Apache-2.0
#include "client/cli/description.h"

#include <algorithm>

#include <utility>

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include "client/cli/printable.h"
#include "client/cli/status_text.h"

namespace fairway {
namespace {

std::string CommandsText(const v1::Executor& executor) {
  std::string out = fmt::format("{} ({})", executor.open_commands(),
                                BytesText(static_cast<int64_t>(executor.open_command_bytes())));
  if (executor.still_ms() > 0)
    out += fmt::format("; none acknowledged for {:.1f} s",
                       static_cast<double>(executor.still_ms()) / 1000);
  return out;
}

// The relays of an island, or that of a worker.
Listing RelayListing(const v1::GetStatusResponse& status, std::string_view of_island,
                     std::string_view of_worker) {
  Listing out{
      .kind = "relays",
      .columns = {{"WORKER"}, {"BELOW"}, {"EXECUTORS"}, {"RELAYS"}, {"MESSAGES"}, {"BYTES"}}};
  for (const v1::Relay& relay : status.relays()) {
    if (!of_island.empty() && relay.island() != of_island) continue;
    if (!of_worker.empty() && relay.worker() != of_worker) continue;
    out.rows.push_back(
        {{relay.worker(), relay.above().empty() ? "controller" : relay.above(),
          fmt::format("{}", relay.executors()), fmt::format("{}", relay.relays()),
          fmt::format("{}", relay.messages()), BytesText(static_cast<int64_t>(relay.bytes()))},
         ToJson(relay)});
  }
  return out;
}

}  // namespace

std::string DescriptionText(const Description& description) {
  size_t width = 0;
  for (const auto& [name, text] : description.lines) width = std::max(width, name.size() + 2);
  std::string out;
  for (const auto& [name, text] : description.lines) {
    std::string begin = name + ":";
    // A text of several lines goes on below its first one.
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      out += fmt::format("{:<{}}{}\n", begin, width,
                         text.empty() ? "-" : Printable(text.substr(at, end - at)));
      begin.clear();
      at = end + 1;
    }
  }
  for (const Listing& part : description.parts) {
    if (part.rows.empty()) continue;
    out += fmt::format("\n{}:\n{}", part.kind, ListingText(part, /*wide=*/true, "  "));
  }
  return out;
}

Json DescriptionJson(const Description& description) {
  Json out = {{"kind", description.kind}, {"item", description.item}};
  for (const Listing& part : description.parts) {
    out[part.kind] = ListingJson(part)["items"];
    if (part.left_out > 0) out[part.kind + "_left_out"] = part.left_out;
  }
  return out;
}

Description DescribeIsland(const v1::GetStatusResponse& status, const v1::Island& island) {
  return {.kind = "island",
          .lines = {{"name", island.name()},
                    {"state", StateText(island)},
                    {"cordoned", island.cordoned_by().empty() ? "no" : CordonText(island)},
                    {"epoch", fmt::format("{}", island.epoch())},
                    {"sessions", fmt::format("{}", island.sessions())},
                    {"gangs launched", fmt::format("{}", island.gangs_launched())},
                    {"nodes in flight", fmt::format("{}", island.in_flight())},
                    {"nodes prepared", fmt::format("{}", island.prepared())},
                    {"nodes that wait for memory", fmt::format("{}", island.queued())},
                    {"nodes given up for memory", fmt::format("{}", island.nodes_given_up())},
                    {"waits for worker",
                     island.lagging_worker().empty() ? "none" : island.lagging_worker()}},
          .item = ToJson(island),
          .parts = {WorkerListing(status, island.name()), DeviceListing(status, island.name()),
                    RelayListing(status, island.name(), "")}};
}

Description DescribeWorker(const v1::GetStatusResponse& status, const v1::Executor& executor) {
  const std::string round_trip =
      executor.round_trip_us() == 0
          ? "not known yet"
          : fmt::format("{:.2f} ms", static_cast<double>(executor.round_trip_us()) / 1000);
  return {
      .kind = "worker",
      .lines = {{"name", executor.worker()},
                {"island", executor.island()},
                {"executor", StateText(executor)},
                {"incarnation", fmt::format("{}", executor.incarnation())},
                {"supervisor", executor.supervisor_connected() ? "connected" : "not connected"},
                {"runtime", executor.runtime()},
                {"platform", executor.platform()},
                {"platform version", executor.platform_version()},
                {"device kind", executor.device_kind()},
                {"data port", executor.data_endpoint()},
                {"link protocol",
                 executor.link_protocol() == 0 ? "-" : fmt::format("{}", executor.link_protocol())},
                {"round trip", round_trip},
                {"commands come from", executor.log_from().empty()
                                           ? "the controller"
                                           : "the relay of " + executor.log_from()},
                {"commands not acknowledged", CommandsText(executor)},
                {"connections resumed", fmt::format("{}", executor.links_resumed())},
                {"fetches", fmt::format("{}", executor.executor_fetches())},
                {"lost before", executor.last_error().empty() ? "never" : executor.last_error()}},
      .item = ToJson(executor),
      .parts = {DeviceListing(status, "", executor.worker()),
                RelayListing(status, "", executor.worker())}};
}

Description DescribeSession(const v1::ListedSession& session, Listing nodes, Listing arrays,
                            Listing programs) {
  return {.kind = "session",
          .lines = {{"id", fmt::format("{}", session.id())},
                    {"tenant", session.tenant()},
                    {"state", session.state()},
                    {"devices it sees", fmt::format("{}", session.devices())},
                    {"memory of devices", BytesText(session.device_memory())},
                    {"memory of the controller",
                     BytesText(static_cast<int64_t>(session.record_memory()))},
                    {"arrays", fmt::format("{}", session.arrays())},
                    {"computations", fmt::format("{}", session.computations())},
                    {"programs", fmt::format("{}", session.programs())},
                    {"unfinished nodes", fmt::format("{}", session.nodes_unfinished())}},
          .item = ToJson(session),
          .parts = {std::move(nodes), std::move(arrays), std::move(programs)}};
}

Description DescribeRow(std::string kind, const Listing& listing, const Listing::Row& row) {
  Description out{.kind = std::move(kind), .lines = {}, .item = row.item};
  for (size_t i = 0; i < row.cells.size(); ++i) {
    std::string name = absl::AsciiStrToLower(listing.columns[i].name);
    std::ranges::replace(name, '-', ' ');
    out.lines.emplace_back(std::move(name), row.cells[i]);
  }
  return out;
}

}  // namespace fairway
