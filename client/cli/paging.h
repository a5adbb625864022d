// SPDX-License-Identifier: Apache-2.0
// Long lists, which a controller tells in pages (ListRequest of admin.proto).
#ifndef FAIRWAY_CLIENT_CLI_PAGING_H_
#define FAIRWAY_CLIENT_CLI_PAGING_H_

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

// The rows of the list's first pages, and the number of those that are left out.
template <typename Response>
struct Paged {
  Response rows;
  uint64_t left_out = 0;
};

// Asks `list` for page after page until there are `limit` rows (0: all of them). `rows_of` gives
// the rows of a response. If the controller does not know how many there are, the rest is counted,
// page by page.
template <typename Response, typename List, typename RowsOf>
absl::StatusOr<Paged<Response>> ListPages(List list, RowsOf rows_of, v1::ListRequest request,
                                          uint64_t limit) {
  Paged<Response> out;
  auto* const rows = rows_of(out.rows);
  const auto full = [&] { return limit != 0 && static_cast<uint64_t>(rows->size()) >= limit; };
  for (;;) {
    FAIRWAY_ASSIGN_OR_RETURN(Response page, list(request));
    for (auto& row : *rows_of(page)) {
      if (full()) {
        ++out.left_out;
      } else {
        *rows->Add() = std::move(row);
      }
    }
    if (full() && page.total() > 0) {
      const auto shown = static_cast<uint64_t>(rows->size());
      out.left_out = page.total() > shown ? page.total() - shown : 0;
      return out;
    }
    if (!page.has_next()) return out;
    *request.mutable_after() = page.next();
  }
}

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PAGING_H_
