// SPDX-License-Identifier: Apache-2.0
#include "client/cli/listing.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "client/cli/printable.h"
#include "client/cli/status_text.h"

namespace fairway {
namespace {

// How many places a terminal gives it, if each character takes one.
size_t WidthOf(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string LimitText(int64_t limit) { return limit == 0 ? "none" : BytesText(limit); }

// Memory in use on the executor's devices, and the limit of one of them.
std::pair<int64_t, int64_t> MemoryOf(const v1::Executor& executor) {
  int64_t used = 0, limit = 0;
  for (const v1::Device& device : executor.devices()) {
    used += device.memory_used();
    limit = std::max(limit, device.memory_limit());
  }
  return {used, limit};
}

std::string RoundTripText(const v1::Executor& executor) {
  if (executor.round_trip_us() == 0) return "-";
  return fmt::format("{:.2f} ms", static_cast<double>(executor.round_trip_us()) / 1000);
}

}  // namespace

std::string ListingText(const Listing& listing, bool wide, std::string_view indent) {
  if (listing.rows.empty()) return fmt::format("{}no {}\n", indent, listing.kind);
  std::vector<std::vector<std::string>> lines(listing.rows.size() + 1);
  std::vector<size_t> widths;
  for (size_t i = 0; i < listing.columns.size(); ++i) {
    if (listing.columns[i].wide && !wide) continue;
    lines[0].push_back(listing.columns[i].name);
    size_t width = WidthOf(lines[0].back());
    for (size_t row = 0; row < listing.rows.size(); ++row) {
      const std::string& cell = listing.rows[row].cells[i];
      lines[row + 1].push_back(cell.empty() ? "-" : Printable(cell));
      width = std::max(width, WidthOf(lines[row + 1].back()));
    }
    widths.push_back(width);
  }
  std::string out;
  for (const std::vector<std::string>& line : lines) {
    out += indent;
    for (size_t i = 0; i < line.size(); ++i) {
      out += line[i];
      if (i + 1 < line.size()) out.append(widths[i] - WidthOf(line[i]) + 2, ' ');
    }
    out += '\n';
  }
  if (listing.left_out > 0)
    out += fmt::format("{}{} more {} are left out\n", indent, listing.left_out, listing.kind);
  return out;
}

Json ListingJson(const Listing& listing) {
  Json items = Json::array();
  for (const Listing::Row& row : listing.rows) items.push_back(row.item);
  return {{"kind", listing.kind}, {"items", std::move(items)}, {"left_out", listing.left_out}};
}

Listing IslandListing(const v1::GetStatusResponse& status) {
  Listing out{.kind = "islands",
              .columns = {{"NAME"},
                          {"STATE"},
                          {"WORKERS"},
                          {"DEVICES"},
                          {"MEMORY"},
                          {"LAUNCHED"},
                          {"IN-FLIGHT"},
                          {"PREPARED"},
                          {"QUEUED"},
                          {"EPOCH", true},
                          {"WAITS-FOR", true},
                          {"CORDONED", true}}};
  for (const v1::Island& island : status.islands()) {
    int workers = 0, up = 0, devices = 0;
    int64_t used = 0;
    for (const v1::Executor& executor : status.executors()) {
      if (executor.island() != island.name()) continue;
      ++workers;
      if (executor.up()) ++up;
      devices += executor.devices_size();
      used += MemoryOf(executor).first;
    }
    out.rows.push_back(
        {{island.name(), StateText(island), fmt::format("{}/{}", up, workers),
          fmt::format("{}", devices), BytesText(used), fmt::format("{}", island.gangs_launched()),
          fmt::format("{}", island.in_flight()), fmt::format("{}", island.prepared()),
          fmt::format("{}", island.queued()), fmt::format("{}", island.epoch()),
          island.lagging_worker(), CordonText(island)},
         ToJson(island)});
  }
  for (const v1::Island& island : status.absent_islands()) {
    std::vector<std::string> cells(out.columns.size());
    cells.front() = island.name();
    cells[1] = StateText(island);
    cells.back() = CordonText(island);
    out.rows.push_back({std::move(cells), ToJson(island)});
  }
  return out;
}

Listing WorkerListing(const v1::GetStatusResponse& status, std::string_view of_island) {
  Listing out{.kind = "workers",
              .columns = {{"NAME"},
                          {"ISLAND"},
                          {"STATE"},
                          {"DEVICES"},
                          {"PLATFORM"},
                          {"MEMORY"},
                          {"LIMIT-EACH"},
                          {"KIND", true},
                          {"SUPERVISOR", true},
                          {"ROUND-TRIP", true},
                          {"OPEN-COMMANDS", true},
                          {"RESUMED", true},
                          {"LOST-BEFORE", true}}};
  for (const v1::Executor& executor : status.executors()) {
    if (!of_island.empty() && executor.island() != of_island) continue;
    const auto [used, limit] = MemoryOf(executor);
    out.rows.push_back({{executor.worker(), executor.island(), StateText(executor),
                         fmt::format("{}", executor.devices_size()), executor.platform(),
                         BytesText(used), LimitText(limit), executor.device_kind(),
                         executor.supervisor_connected() ? "connected" : "not connected",
                         RoundTripText(executor), fmt::format("{}", executor.open_commands()),
                         fmt::format("{}", executor.links_resumed()), CauseOf(executor)},
                        ToJson(executor)});
  }
  return out;
}

Listing DeviceListing(const v1::GetStatusResponse& status, std::string_view of_island,
                      std::string_view of_worker) {
  Listing out{.kind = "devices",
              .columns = {{"NAME"},
                          {"ISLAND"},
                          {"STATE"},
                          {"MEMORY"},
                          {"LIMIT"},
                          {"ID", true},
                          {"PLATFORM", true},
                          {"KIND", true}}};
  for (const v1::Executor& executor : status.executors()) {
    if (!of_island.empty() && executor.island() != of_island) continue;
    if (!of_worker.empty() && executor.worker() != of_worker) continue;
    for (const v1::Device& device : executor.devices()) {
      const std::string name = fmt::format("{}/{}", executor.worker(), device.local_ordinal());
      Json item = {{"name", name},
                   {"worker", executor.worker()},
                   {"island", executor.island()},
                   {"up", executor.up()},
                   {"platform", executor.platform()},
                   {"device_kind", executor.device_kind()}};
      item.update(ToJson(device));
      out.rows.push_back(
          {{name, executor.island(), StateText(executor), BytesText(device.memory_used()),
            LimitText(device.memory_limit()), fmt::format("{}", device.id()), executor.platform(),
            executor.device_kind()},
           std::move(item)});
    }
  }
  return out;
}

}  // namespace fairway
