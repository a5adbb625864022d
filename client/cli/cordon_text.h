// SPDX-License-Identifier: Apache-2.0
// What `fairway drain` says.
#ifndef FAIRWAY_CLIENT_CLI_CORDON_TEXT_H_
#define FAIRWAY_CLIENT_CLI_CORDON_TEXT_H_

#include <chrono>
#include <string>

#include "base/status.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

// Before it waits. `now`: it was not cordoned before.
std::string BeginText(const std::string& island, bool now);
// Who has what there: a table.
std::string HoldersText(const std::string& island, const v1::DrainIslandResponse& progress);
// The same as a key: it changes when other sessions hold the island, not with what they have there.
std::string WhoHolds(const v1::DrainIslandResponse& progress);
std::string DrainedText(const std::string& island);
// DEADLINE_EXCEEDED: names the first few that have something there yet.
absl::Status NotDrained(const std::string& island, std::chrono::milliseconds waited,
                        const v1::DrainIslandResponse& progress);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_CORDON_TEXT_H_
