// SPDX-License-Identifier: Apache-2.0
// What crosses the links is encoded, framed and decoded by the codec that ships, between the hub
// and the machines. Here the receiver sends it again: the bytes must be the same.
#ifndef FAIRWAY_TESTS_SIM_WIRE_H_
#define FAIRWAY_TESTS_SIM_WIRE_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "core/device.h"
#include "graph/plan.h"
#include "transport/link.h"

namespace fairway::sim {

// INTERNAL: they are not what was received.
absl::Status SentAgain(const Frame& received, Incarnation incarnation,
                       const std::vector<Command>& commands);
absl::Status SentAgain(const std::string& received, Incarnation incarnation, const Report& report);

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_WIRE_H_
