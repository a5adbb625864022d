// SPDX-License-Identifier: Apache-2.0
// Lists of what sessions have, and of events.
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/time_text.h"
#include "client/cli/listing.h"
#include "client/cli/status_text.h"

namespace fairway {
namespace {

template <typename Names>
std::string Joined(const Names& names) {
  return fmt::format("{}", fmt::join(names, ","));
}

std::string Number(uint64_t number) { return fmt::format("{}", number); }

}  // namespace

Listing SessionListing(const v1::ListSessionsResponse& sessions) {
  Listing out{.kind = "sessions",
              .columns = {{"ID"},
                          {"TENANT"},
                          {"STATE"},
                          {"ARRAYS"},
                          {"NODES"},
                          {"MEMORY"},
                          {"DEVICES", true},
                          {"COMPUTATIONS", true},
                          {"PROGRAMS", true},
                          {"RECORDS", true}}};
  for (const v1::ListedSession& row : sessions.sessions()) {
    out.rows.push_back({{Number(row.id()), row.tenant(), row.state(), Number(row.arrays()),
                         Number(row.nodes_unfinished()), BytesText(row.device_memory()),
                         Number(row.devices()), Number(row.computations()), Number(row.programs()),
                         BytesText(static_cast<int64_t>(row.record_memory()))},
                        ToJson(row)});
  }
  return out;
}

Listing ArrayListing(const v1::ListArraysResponse& arrays) {
  Listing out{.kind = "arrays",
              .columns = {{"SESSION"},
                          {"HANDLE"},
                          {"TYPE"},
                          {"STATE"},
                          {"SHARDS"},
                          {"ISLANDS"},
                          {"BYTES"},
                          {"TENANT", true},
                          {"ERROR", true}}};
  for (const v1::ListedArray& row : arrays.arrays()) {
    out.rows.push_back({{Number(row.session()), Number(row.handle()), row.type(), row.state(),
                         Number(row.shards()), Joined(row.islands()), BytesText(row.bytes()),
                         row.tenant(), row.error()},
                        ToJson(row)});
  }
  return out;
}

Listing ProgramListing(const v1::ListProgramsResponse& programs) {
  Listing out{
      .kind = "programs",
      .columns = {
          {"SESSION"}, {"HANDLE"}, {"KIND"}, {"NAME"}, {"ISLANDS"}, {"STEPS"}, {"TENANT", true}}};
  for (const v1::ListedProgram& row : programs.programs()) {
    out.rows.push_back({{Number(row.session()), Number(row.handle()), row.kind(), row.name(),
                         Joined(row.islands()), Number(row.steps()), row.tenant()},
                        ToJson(row)});
  }
  return out;
}

Listing TransferListing(const v1::ListNodesResponse& nodes) {
  Listing out{.kind = "transfers",
              .columns = {{"NODE"},
                          {"SESSION"},
                          {"KIND"},
                          {"STATE"},
                          {"FROM"},
                          {"TO"},
                          {"BYTES"},
                          {"WAITS-FOR"},
                          {"TENANT", true},
                          {"NAME", true}}};
  for (const v1::ListedNode& row : nodes.nodes()) {
    const bool fetch = row.kind() == "fetch";
    // A small upload that goes to its devices later comes from the controller, for its client.
    const std::string from = fetch                    ? row.island()
                             : row.kind() == "upload" ? "client"
                                                      : Joined(row.from());
    out.rows.push_back({{Number(row.id()), Number(row.session()), row.kind(), row.state(), from,
                         fetch ? "client" : row.island(), BytesText(row.bytes()), row.waits_for(),
                         row.tenant(), row.name()},
                        ToJson(row)});
  }
  return out;
}

Listing NodeListing(const v1::ListNodesResponse& nodes) {
  Listing out{.kind = "nodes",
              .columns = {{"NODE"},
                          {"SESSION"},
                          {"KIND"},
                          {"STATE"},
                          {"ISLAND"},
                          {"BYTES"},
                          {"WAITS-FOR"},
                          {"NAME"},
                          {"TENANT", true}}};
  for (const v1::ListedNode& row : nodes.nodes()) {
    out.rows.push_back(
        {{Number(row.id()), Number(row.session()), row.kind(), row.state(), row.island(),
          BytesText(row.bytes()), row.waits_for(), row.name(), row.tenant()},
         ToJson(row)});
  }
  return out;
}

Listing EventListing(const v1::ListEventsResponse& events) {
  const auto time = [](int64_t ms) {
    return TimeText(std::chrono::sys_seconds(std::chrono::seconds(ms / 1000)));
  };
  Listing out{.kind = "events",
              .columns = {{"ID", true},
                          {"FIRST", true},
                          {"LAST"},
                          {"SEVERITY"},
                          {"REASON"},
                          {"OBJECT"},
                          {"TENANT", true},
                          {"COUNT"},
                          {"TEXT"}}};
  for (const v1::ListedEvent& row : events.events()) {
    out.rows.push_back(
        {{Number(row.id()), time(row.first_ms()), time(row.last_ms()), row.severity(), row.reason(),
          row.object(), row.tenant(), Number(row.count()), row.text()},
         ToJson(row)});
  }
  return out;
}

void KeepLatest(Listing& listing, uint64_t limit) {
  if (limit == 0 || listing.rows.size() <= limit) return;
  const size_t left_out = listing.rows.size() - limit;
  listing.rows.erase(listing.rows.begin(),
                     listing.rows.begin() + static_cast<std::ptrdiff_t>(left_out));
  listing.left_out += left_out;
}

}  // namespace fairway
