// SPDX-License-Identifier: Apache-2.0
#include "client/cli/paged_listings.h"

#include "client/cli/paging.h"

namespace fairway {
namespace {

template <typename Response, typename RowsOf>
absl::StatusOr<Listing> Ask(AdminClient& admin,
                            absl::StatusOr<Response> (AdminClient::*page)(const v1::ListRequest&),
                            RowsOf rows_of, Listing (*listing_of)(const Response&),
                            const v1::ListRequest& request, uint64_t limit) {
  FAIRWAY_ASSIGN_OR_RETURN(
      const Paged<Response> rows,
      ListPages<Response>([&](const v1::ListRequest& next) { return (admin.*page)(next); }, rows_of,
                          request, limit));
  Listing listing = listing_of(rows.rows);
  listing.left_out = rows.left_out;
  return listing;
}

}  // namespace

absl::StatusOr<Listing> AskSessions(AdminClient& admin, const v1::ListRequest& request,
                                    uint64_t limit) {
  return Ask(
      admin, &AdminClient::ListSessions,
      [](v1::ListSessionsResponse& of) { return of.mutable_sessions(); }, &SessionListing, request,
      limit);
}

absl::StatusOr<Listing> AskArrays(AdminClient& admin, const v1::ListRequest& request,
                                  uint64_t limit) {
  return Ask(
      admin, &AdminClient::ListArrays,
      [](v1::ListArraysResponse& of) { return of.mutable_arrays(); }, &ArrayListing, request,
      limit);
}

absl::StatusOr<Listing> AskPrograms(AdminClient& admin, const v1::ListRequest& request,
                                    uint64_t limit) {
  return Ask(
      admin, &AdminClient::ListPrograms,
      [](v1::ListProgramsResponse& of) { return of.mutable_programs(); }, &ProgramListing, request,
      limit);
}

absl::StatusOr<Listing> AskTransfers(AdminClient& admin, v1::ListRequest request, uint64_t limit) {
  request.set_transfers(true);
  return Ask(
      admin, &AdminClient::ListNodes, [](v1::ListNodesResponse& of) { return of.mutable_nodes(); },
      &TransferListing, request, limit);
}

absl::StatusOr<Listing> AskNodes(AdminClient& admin, const v1::ListRequest& request,
                                 uint64_t limit) {
  return Ask(
      admin, &AdminClient::ListNodes, [](v1::ListNodesResponse& of) { return of.mutable_nodes(); },
      &NodeListing, request, limit);
}

absl::StatusOr<Listing> AskEvents(AdminClient& admin, const v1::ListRequest& request,
                                  uint64_t limit) {
  FAIRWAY_ASSIGN_OR_RETURN(
      Listing events,
      Ask(
          admin, &AdminClient::ListEvents,
          [](v1::ListEventsResponse& of) { return of.mutable_events(); }, &EventListing, request,
          /*limit=*/0));
  KeepLatest(events, limit);
  return events;
}

}  // namespace fairway
