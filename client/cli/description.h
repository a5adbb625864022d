// SPDX-License-Identifier: Apache-2.0
// What `fairway describe` shows of one object.
#ifndef FAIRWAY_CLIENT_CLI_DESCRIPTION_H_
#define FAIRWAY_CLIENT_CLI_DESCRIPTION_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/json_text.h"
#include "client/cli/listing.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

struct Description {
  std::string kind;                                        // "island"
  std::vector<std::pair<std::string, std::string>> lines;  // a name, and what is known; for people
  Json item;                                               // the same for programs
  std::vector<Listing> parts = {};                         // what belongs to it
};

// A line for each name, and a table for each part that has rows.
std::string DescriptionText(const Description& description);
// {"kind": "island", "item": {...}, "workers": [...], ...}: an array for each part.
Json DescriptionJson(const Description& description);

// The island, and its workers, devices and relays.
Description DescribeIsland(const v1::GetStatusResponse& status, const v1::Island& island);
// The worker with its executor, and its devices and relay.
Description DescribeWorker(const v1::GetStatusResponse& status, const v1::Executor& executor);

// The session, with the first of its nodes, arrays and programs.
Description DescribeSession(const v1::ListedSession& session, Listing nodes, Listing arrays,
                            Listing programs);

// The object of a row: a line for each column. `kind`: "array".
Description DescribeRow(std::string kind, const Listing& listing, const Listing::Row& row);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_DESCRIPTION_H_
