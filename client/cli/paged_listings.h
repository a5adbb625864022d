// SPDX-License-Identifier: Apache-2.0
// Asks a controller for what sessions have: its first pages, until there are `limit` rows (0: all).
#ifndef FAIRWAY_CLIENT_CLI_PAGED_LISTINGS_H_
#define FAIRWAY_CLIENT_CLI_PAGED_LISTINGS_H_

#include <cstdint>

#include "base/status.h"
#include "client/cli/admin_client.h"
#include "client/cli/listing.h"

namespace fairway {

// The errors are those of AdminClient.
absl::StatusOr<Listing> AskSessions(AdminClient& admin, const v1::ListRequest& request,
                                    uint64_t limit);
absl::StatusOr<Listing> AskArrays(AdminClient& admin, const v1::ListRequest& request,
                                  uint64_t limit);
absl::StatusOr<Listing> AskPrograms(AdminClient& admin, const v1::ListRequest& request,
                                    uint64_t limit);
// Nodes that move data, and all nodes.
absl::StatusOr<Listing> AskTransfers(AdminClient& admin, v1::ListRequest request, uint64_t limit);
absl::StatusOr<Listing> AskNodes(AdminClient& admin, const v1::ListRequest& request,
                                 uint64_t limit);
// The latest `limit` events.
absl::StatusOr<Listing> AskEvents(AdminClient& admin, const v1::ListRequest& request,
                                  uint64_t limit);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PAGED_LISTINGS_H_
