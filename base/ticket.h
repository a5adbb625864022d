// SPDX-License-Identifier: Apache-2.0
// Tickets: what a process shows at a data port to get bytes there, or to push some
// (docs/design/0069-tickets.md).
#ifndef FAIRWAY_BASE_TICKET_H_
#define FAIRWAY_BASE_TICKET_H_

#include <cstdint>

#include "base/ids.h"
#include "base/status.h"

namespace fairway {

// All zeros: there is none.
struct Ticket {
  uint64_t first = 0;
  uint64_t second = 0;

  explicit operator bool() const { return (first | second) != 0; }
  // For lists and tests. Who checks a ticket calls one of the functions below.
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

// The secret of a data port. The process that serves there makes it and tells it to the controller
// alone, so only these two can give tickets for the port. It is in no log, file or page.
struct PortKey {
  uint64_t first = 0;
  uint64_t second = 0;

  explicit operator bool() const { return (first | second) != 0; }
  friend bool operator==(const PortKey&, const PortKey&) = default;
};

// Random, from the operating system; never all zeros.
PortKey RandomPortKey();

// The ticket with which `receiver` gets bytes of `transfer` at the port. No state; any thread.
Ticket TicketFor(const PortKey& key, TransferId transfer, Incarnation receiver);
// The ticket for what members of gangs pull from the port, and push to it, while they run.
Ticket GangTicket(const PortKey& key);

// Both take as long for a wrong ticket as for the right one. PERMISSION_DENIED: `shown` is none, or
// a wrong one; the text says who asked for what.
absl::Status CheckTicket(const PortKey& key, TransferId transfer, Incarnation receiver,
                         const Ticket& shown);
// `right`: the GangTicket of the port.
absl::Status CheckGangTicket(const Ticket& right, Incarnation from, const Ticket& shown);

}  // namespace fairway

#endif  // FAIRWAY_BASE_TICKET_H_
