// SPDX-License-Identifier: Apache-2.0
// What `fairway get` shows: the objects of one kind, a row for each.
#ifndef FAIRWAY_CLIENT_CLI_LISTING_H_
#define FAIRWAY_CLIENT_CLI_LISTING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/json_text.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

struct Listing {
  struct Column {
    std::string name;   // "IN-FLIGHT"
    bool wide = false;  // only `-o wide` shows it
  };
  struct Row {
    std::vector<std::string> cells;  // one for each column
    Json item;                       // all that is known, for programs
  };
  std::string kind;  // "islands"
  std::vector<Column> columns;
  std::vector<Row> rows = {};
  uint64_t left_out = 0;  // so many more there are
};

// A table with a line for each row, below the columns' names; each line begins with `indent`. What
// a terminal would not print as it stands is shown as '?': clients choose names.
std::string ListingText(const Listing& listing, bool wide, std::string_view indent = "");
// {"kind": "islands", "items": [...], "left_out": 0}
Json ListingJson(const Listing& listing);

// The kinds that a controller's status has, in its order. `of`: only of this island, or worker.
Listing IslandListing(const v1::GetStatusResponse& status);
Listing WorkerListing(const v1::GetStatusResponse& status, std::string_view of_island = "");
Listing DeviceListing(const v1::GetStatusResponse& status, std::string_view of_island = "",
                      std::string_view of_worker = "");

// What sessions have. Of nodes that move data, TransferListing says from where to where.
Listing SessionListing(const v1::ListSessionsResponse& sessions);
Listing ArrayListing(const v1::ListArraysResponse& arrays);
Listing ProgramListing(const v1::ListProgramsResponse& programs);
Listing TransferListing(const v1::ListNodesResponse& nodes);
Listing NodeListing(const v1::ListNodesResponse& nodes);
Listing EventListing(const v1::ListEventsResponse& events);

// Leaves the first rows out, so that `limit` are left; 0: all are.
void KeepLatest(Listing& listing, uint64_t limit);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_LISTING_H_
