// SPDX-License-Identifier: Apache-2.0
// The versions of the links between workers and the controller (proto/fairway/v1/link.proto), and
// of what executors and relays send each other. A process of a worker says which versions it
// speaks; the controller takes the highest that it speaks, too (docs/design/0087-upgrades.md). No
// state; any thread.
#ifndef FAIRWAY_WIRE_LINK_PROTOCOL_H_
#define FAIRWAY_WIRE_LINK_PROTOCOL_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace fairway {

// Every build speaks its own version and the one before.
inline constexpr uint32_t kLinkProtocol = 14;
inline constexpr uint32_t kOldestLinkProtocol = kLinkProtocol - 1;
// From here on executors and relays take entries of the log that are for several executors.
inline constexpr uint32_t kTakesSpans = 14;

// For a worker's process: what it says in its registration. Version 13 has only the first field and
// takes only its own number there, so the oldest version stands there.
template <typename Registration>
void SayLinkProtocols(Registration* out) {
  out->set_protocol(kOldestLinkProtocol);
  out->set_newest_protocol(kLinkProtocol);
}

// For the controller: the version for a process that said so; `newest` 0: it speaks `oldest` only.
// FAILED_PRECONDITION: there is none; the text has the versions of both and what to upgrade. `who`:
// "worker w0".
absl::StatusOr<uint32_t> AgreeOnLinkProtocol(uint32_t oldest, uint32_t newest,
                                             std::string_view who);

// For a worker's process: the version that the controller says it took; 0: a controller of version
// 13 says nothing. FAILED_PRECONDITION: it was not offered.
absl::StatusOr<uint32_t> TakenLinkProtocol(uint32_t said);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_LINK_PROTOCOL_H_
